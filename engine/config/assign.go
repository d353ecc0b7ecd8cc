package config

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// assign checks a decoded TOML value and sets the field of the key. If the value is invalid, it returns false and a
// Fault without place and key.
func (k Key) assign(value any) (Fault, bool) {
	fault := func(message string) (Fault, bool) {
		return Fault{Message: message, Got: describe(value), Want: k.want()}, false
	}
	switch field := k.field.(type) {
	case *string:
		text, ok := value.(string)
		switch {
		case !ok:
			return fault("wrong type")
		case len(k.enum) > 0 && !slices.Contains(k.enum, text):
			f, _ := fault("unknown value")
			f.Want += "; nearest: " + k.nearest(text)
			return f, false
		case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return fault("contains a control character")
		case k.place != nil && k.place(text) != nil:
			return Fault{Message: k.place(text).Error()}, false
		}
		*field = text
	case *bool:
		on, ok := value.(bool)
		if !ok {
			return fault("wrong type")
		}
		*field = on
	case *[]string:
		list, message := texts(value)
		if message != "" {
			return fault(message)
		}
		*field = list
	case *int, *uint64, *float64:
		x, message := k.number(value)
		if message != "" {
			return fault(message)
		}
		setNumber(field, x)
	case *[]int, *[]float64:
		list, ok := value.([]any)
		if !ok {
			return fault("wrong type")
		}
		if k.filled && len(list) == 0 {
			return fault("is empty")
		}
		if k.length > 0 && len(list) > 0 && len(list) != k.length {
			return fault(fmt.Sprintf("has length %d", len(list)))
		}
		numbers := make([]any, len(list))
		for i, element := range list {
			x, message := k.number(element)
			if message != "" {
				return fault(fmt.Sprintf("element %d: %s", i+1, message))
			}
			numbers[i] = x
		}
		setList(field, numbers)
	}
	return Fault{}, true
}

// nearest returns the allowed value that the user probably meant by text.
func (k Key) nearest(text string) string {
	if k.meant != nil {
		if meant := k.meant(text); meant != "" {
			return meant
		}
	}
	return quote(nearest(text, k.enum))
}

// texts returns value as a list of strings. If value is invalid, message is not "".
func texts(value any) (list []string, message string) {
	elements, ok := value.([]any)
	if !ok {
		return nil, "wrong type"
	}
	for i, element := range elements {
		text, ok := element.(string)
		switch {
		case !ok:
			return nil, fmt.Sprintf("element %d: wrong type", i+1)
		case text == "":
			return nil, fmt.Sprintf("element %d: is empty", i+1)
		case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return nil, fmt.Sprintf("element %d: contains a control character", i+1)
		}
		list = append(list, text)
	}
	return list, ""
}

// number checks the type and bounds of one number. It returns an int64 or a float64. If value is invalid, message is
// not "".
func (k Key) number(value any) (x any, message string) {
	var v float64
	switch n := value.(type) {
	case int64:
		x, v = n, float64(n)
		if !k.whole() {
			x = v
		}
	case float64:
		if k.whole() {
			return nil, "wrong type"
		}
		x, v = n, n
	default:
		return nil, "wrong type"
	}
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return nil, "not a finite number"
	case v < k.min || k.above && v == k.min:
		return nil, "too small"
	case v > k.max && k.max == math.MaxInt32: // this bound is that of the type, so the message omits it
		return nil, "too large, above 2147483647"
	case v > k.max || k.below && v == k.max:
		return nil, "too large"
	}
	return x, ""
}

func (k Key) whole() bool {
	switch k.field.(type) {
	case *int, *uint64, *[]int:
		return true
	}
	return false
}

func setNumber(field, x any) {
	switch field := field.(type) {
	case *int:
		*field = int(x.(int64))
	case *uint64:
		*field = uint64(x.(int64))
	case *float64:
		*field = x.(float64)
	}
}

func setList(field any, numbers []any) {
	switch field := field.(type) {
	case *[]int:
		*field = nil
		for _, x := range numbers {
			*field = append(*field, int(x.(int64)))
		}
	case *[]float64:
		*field = nil
		for _, x := range numbers {
			*field = append(*field, x.(float64))
		}
	}
}

// kind returns the type of the key as error messages name it.
func (k Key) kind() string {
	switch k.field.(type) {
	case *string:
		return "string"
	case *bool:
		return "boolean"
	case *int, *uint64:
		return "integer"
	case *float64:
		return "number"
	case *[]string:
		return "list of strings"
	case *[]int:
		return "list of integers"
	default:
		return "list of numbers"
	}
}

// want describes the accepted values: "an integer from 1 to 4096".
func (k Key) want() string {
	switch k.field.(type) {
	case *string:
		if len(k.enum) > 0 {
			return "one of " + orList(k.enum)
		}
		return "a string"
	case *[]string:
		return "a list of strings"
	case *bool:
		return "true or false"
	case *int, *uint64:
		return "an integer " + k.bounds()
	case *float64:
		return "a number " + k.bounds()
	}
	what := k.kind()
	if k.length > 0 {
		what = fmt.Sprintf("list of %d %s", k.length, strings.TrimPrefix(what, "list of "))
	}
	return "a " + what + " " + k.bounds()
}

// bounds describes the allowed numbers: "of at least 1", "from 0 to 1", "above 0 and below 1".
func (k Key) bounds() string {
	low, high := formatBound(k.min), formatBound(k.max)
	unbounded := k.max >= math.MaxInt32
	switch {
	case unbounded && k.above:
		return "above " + low
	case unbounded:
		return "of at least " + low
	case !k.above && !k.below:
		return "from " + low + " to " + high
	}
	text := "of at least " + low
	if k.above {
		text = "above " + low
	}
	if k.below {
		return text + " and below " + high
	}
	return text + " and at most " + high
}

// describe returns a decoded TOML value as text for a message.
func describe(value any) string {
	switch v := value.(type) {
	case string:
		return quote(shorten(v))
	case map[string]any:
		return "a table"
	case []any:
		if len(v) > 0 {
			if _, tables := v[0].(map[string]any); tables {
				return "a list of tables"
			}
		}
		parts := make([]string, 0, len(v))
		for _, element := range v[:min(len(v), 16)] {
			parts = append(parts, describe(element))
		}
		if len(v) > 16 {
			parts = append(parts, "…")
		}
		return shorten("[" + strings.Join(parts, ", ") + "]")
	case float64:
		return formatFloat(v)
	default:
		return shorten(fmt.Sprint(v))
	}
}
