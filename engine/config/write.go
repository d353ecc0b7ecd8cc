package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// TOML returns every key with its value. [Parse] of this text with the same [Catalog] returns an equal Config.
func (c *Config) TOML() []byte {
	var b strings.Builder
	for i, t := range c.tables() {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "[%s]\n", t.name)
		for _, k := range t.keys {
			fmt.Fprintf(&b, "%s = %s\n", k.name, k.text())
		}
	}
	return []byte(b.String())
}

// Difference is a key whose value differs between two configurations.
type Difference struct {
	Key    string // full dotted key
	Old    string // value as TOML; "" if the key does not exist, for example because it belongs to another model
	New    string
	Shapes bool // true if names or shapes of parameters depend on the key: Key.Shapes
	Learnt bool // true if the key affects training results: Key.Learnt
}

// Diff returns the keys whose values differ between old and new, in the order of the file.
func Diff(old, new *Config) []Difference {
	before, oldOrder := old.flat()
	after, order := new.flat()
	keys := old.keys()
	maps.Copy(keys, new.keys())
	difference := func(key string) Difference {
		return Difference{Key: key, Old: before[key], New: after[key], Shapes: keys[key].shapes,
			Learnt: keys[key].effect != operational}
	}
	var all []Difference
	for _, key := range order {
		if before[key] != after[key] {
			all = append(all, difference(key))
		}
	}
	for _, key := range oldOrder {
		if _, stays := after[key]; !stays {
			all = append(all, difference(key))
		}
	}
	return all
}

// keys returns all keys by full dotted name.
func (c *Config) keys() map[string]Key {
	all := make(map[string]Key)
	for _, t := range c.tables() {
		for _, k := range t.keys {
			all[t.name+"."+k.name] = k
		}
	}
	return all
}

// Learnt reports whether a key, given by its full dotted name, exists, and whether it affects training results
// (Key.Learnt).
func (c *Config) Learnt(key string) (affects, known bool) {
	k, known := c.keys()[key]
	return known && k.effect != operational, known
}

// Setting is a key with its value.
type Setting struct{ Key, Value string } // full dotted key; value as TOML

// Settings returns all keys with their values, in the order of the file.
func (c *Config) Settings() []Setting {
	values, order := c.flat()
	all := make([]Setting, len(order))
	for i, key := range order {
		all[i] = Setting{key, values[key]}
	}
	return all
}

// flat returns the values as TOML by full dotted key, and the keys in the order of the file.
func (c *Config) flat() (values map[string]string, order []string) { return flat(c.tables()) }

func flat(tables []table) (values map[string]string, order []string) {
	values = make(map[string]string)
	for _, t := range tables {
		for _, k := range t.keys {
			key := t.name + "." + k.name
			values[key] = k.text()
			order = append(order, key)
		}
	}
	return values, order
}

// text returns the value of the field as TOML.
func (k Key) text() string {
	switch field := k.field.(type) {
	case *string:
		return formatValue(*field)
	case *int:
		return formatValue(*field)
	case *uint64:
		return formatValue(*field)
	case *float64:
		return formatValue(*field)
	case *bool:
		return formatValue(*field)
	case *[]string:
		return formatValue(*field)
	case *[]int:
		return formatValue(*field)
	case *[]float64:
		return formatValue(*field)
	}
	panic(fmt.Sprintf("config: key %s has a field of type %T", k.name, k.field))
}

// formatValue returns the value of a field, or a default, as TOML.
func formatValue(value any) string {
	switch v := value.(type) {
	case string:
		return quote(v)
	case float64:
		return formatFloat(v)
	case []string:
		return formatList(v)
	case []int:
		return formatList(v)
	case []float64:
		return formatList(v)
	}
	return fmt.Sprint(value)
}

func formatList[T any](list []T) string {
	parts := make([]string, len(list))
	for i, x := range list {
		parts[i] = formatValue(x)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// formatFloat returns the shortest text that parses to x as a TOML float: 1.0, 0.05, 1e-08.
func formatFloat(x float64) string {
	switch {
	case math.IsNaN(x):
		return "nan"
	case math.IsInf(x, 0):
		return strings.ToLower(strconv.FormatFloat(x, 'f', -1, 64))
	}
	text := strconv.FormatFloat(x, 'g', -1, 64)
	if !slices.ContainsFunc([]byte(text), func(c byte) bool { return c == '.' || c == 'e' }) {
		text += ".0"
	}
	return text
}

// quote returns text as a TOML basic string.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
