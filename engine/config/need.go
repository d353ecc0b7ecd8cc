package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Need is a condition on the values of other keys. If a need of a key is not met, the key has no effect; see
// [Key.Only]. Create a Need with [Is], [IsNot], [Between] or [Any].
type Need struct {
	any  []Need // alternatives of [Any]; if set, the other fields are unused
	key  string // full dotted key
	not  bool   // true: the value must not be in want; false: it must be in want
	want []any  // values in the types of Key.field
	// If want is nil: the bounds of a number.
	least, most float64
}

// Is returns a need that is met if a key, given by its full dotted name, has one of the values.
func Is(key string, values ...any) Need { return Need{key: key, want: values} }

func anys(texts []string) []any {
	all := make([]any, len(texts))
	for i, text := range texts {
		all[i] = text
	}
	return all
}

// IsNot returns a need that is met if a key, given by its full dotted name, has none of the values.
func IsNot(key string, values ...any) Need { return Need{key: key, not: true, want: values} }

// Between returns a need that is met if the number in a key is at least low and at most high. The parameter key is the
// full dotted name of the key.
func Between(key string, low, high float64) Need { return Need{key: key, least: low, most: high} }

// Any returns a need that is met if at least one of needs is met.
func Any(needs ...Need) Need { return Need{any: needs} }

// Only adds needs to a key. The key has an effect only if all its needs are met. If a key is set, but a need is not
// met, [Config.Unused] reports the key.
func (k Key) Only(needs ...Need) Key {
	k.needs = append(slices.Clip(k.needs), needs...)
	return k
}

// OverriddenBy declares that this key has no effect if another key, given by its full dotted name, is not at its
// default. [Config.Unused] reports this key, except if the file sets it and the command line sets the other key,
// because then the override is intended.
func (k Key) OverriddenBy(key string) Key { k.overriddenBy = key; return k }

// String returns the need as a condition, such as: optimizer.name = "sgd".
func (n Need) String() string { return n.text("") }

// text returns the condition. It writes mark before and after each key and value.
func (n Need) text(mark string) string {
	var parts []string
	if n.any != nil {
		for _, one := range n.any {
			parts = append(parts, one.text(mark))
		}
		return strings.Join(parts, " or ")
	}
	for _, value := range n.want {
		parts = append(parts, mark+formatValue(value)+mark)
	}
	switch {
	case n.want != nil && len(n.want) == 0: // the catalog has no kind that reads the key
		parts = []string{"no value"}
	case n.want == nil:
		parts = []string{mark + formatBound(n.least) + "…" + formatBound(n.most) + mark}
	}
	relation, last := " = ", " or "
	if n.not {
		relation, last = " other than ", " and "
	}
	if end := len(parts) - 1; end > 0 {
		parts = []string{strings.Join(parts[:end], ", ") + last + parts[end]}
	}
	return mark + n.key + mark + relation + parts[0]
}

// met reports whether values meet the need. values maps full dotted keys to TOML values.
func (n Need) met(values map[string]string) bool {
	if n.any != nil {
		return slices.ContainsFunc(n.any, func(one Need) bool { return one.met(values) })
	}
	if n.want == nil {
		x, err := strconv.ParseFloat(values[n.key], 64)
		return err == nil && x >= n.least && x <= n.most
	}
	return n.not != slices.ContainsFunc(n.want, func(value any) bool { return values[n.key] == formatValue(value) })
}

// got returns the values that do not meet the need. It lists each key once.
func (n Need) got(values map[string]string) string {
	if n.any == nil {
		return values[n.key]
	}
	parts := make([]string, 0, len(n.any))
	for _, one := range n.any {
		if part := one.key + " = " + values[one.key]; !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ", ")
}

// Ignorer is implemented by the [Options] of models, data sets and policies that ignore some common keys of their
// table.
type Ignorer interface {
	Ignores() []string // names of the ignored keys, without the table
}

// Ignores reports whether the options of a component state that it ignores the key of its table.
func Ignores(o Options, key string) bool {
	i, ok := o.(Ignorer)
	return ok && slices.Contains(i.Ignores(), key)
}

// SampleIgnorer is implemented by the [Options] of data sets of type [AnySamples]. It states which keys of its table
// the data set ignores if the model reads samples of type s.
type SampleIgnorer interface {
	IgnoresWith(s Samples) []string // names of the ignored keys, without the table
}

// Unused is a key that is set but has no effect.
type Unused struct {
	Key    string // full dotted key
	Value  string // value as TOML
	Origin string // origin of the value, in the form of Config.Origin
	Why    string // reason, which completes the sentence of String
}

// String returns the text of the warning.
func (u Unused) String() string {
	return fmt.Sprintf("%s = %s (%s) has no effect: %s", u.Key, u.Value, u.Origin, u.Why)
}

// Unused returns the keys that are set but have no effect because of the value of another key, in the order of the
// file. It omits keys of the file that have their default value, because a file may contain every key.
//
// The parameter actual contains the values that the caller selected for keys with value "auto", by full dotted key.
func (c *Config) Unused(actual map[string]string) (all []Unused) {
	values, _ := c.flat()
	for key, value := range actual {
		values[key] = quote(value)
	}
	keys := c.keys()
	for _, t := range c.tables() {
		for _, k := range t.keys {
			key := t.name + "." + k.name
			at, given := c.origins[key]
			if !given || at.name == "" || at.usual || !at.typed() && values[key] == formatValue(k.def) {
				continue
			}
			k = k.Only(t.needs...)
			if why := c.unusedBecause(t.name, k, at, values, keys); why != "" {
				all = append(all, c.NoEffect(key, why))
			}
		}
	}
	return all
}

// unusedBecause returns the reason why a key has no effect, or "" if it has an effect.
func (c *Config) unusedBecause(table string, k Key, at origin, values map[string]string, keys map[string]Key) string {
	if by := k.overriddenBy; by != "" && values[by] != formatValue(keys[by].def) &&
		(at.typed() || !c.origins[by].typed()) {
		return fmt.Sprintf("%s = %s overrides it", by, values[by])
	}
	for _, n := range k.needs {
		if !n.met(values) {
			return fmt.Sprintf("it needs %s (got %s)", n, n.got(values))
		}
	}
	if own := c.ownOptions(table); own != nil {
		if Ignores(*own, k.name) {
			return fmt.Sprintf("%s = %s does not read it", choosers[table], values[choosers[table]])
		}
		if i, ok := (*own).(SampleIgnorer); ok && slices.Contains(i.IgnoresWith(c.Model.Samples), k.name) {
			return fmt.Sprintf("%s = %s does not read it with a model of %v", choosers[table], values[choosers[table]],
				c.Model.Samples)
		}
	}
	return ""
}

// NoEffect returns the warning for a key that has no effect for a reason that the caller states.
func (c *Config) NoEffect(key, why string) Unused {
	return Unused{Key: key, Value: c.keys()[key].text(), Origin: c.Origin(key), Why: why}
}

// conditions returns a text for the documentation of a key: its needs and the key that overrides it.
func (k Key) conditions() string {
	text := onlyWith(k.needs)
	if k.overriddenBy != "" {
		text += fmt.Sprintf(" `%s` overrides this key.", k.overriddenBy)
	}
	return text
}

// onlyWith returns a sentence that states needs, or "" if there are none.
func onlyWith(needs []Need) string {
	if len(needs) == 0 {
		return ""
	}
	var texts []string
	for _, n := range needs {
		texts = append(texts, n.clause())
	}
	return " Only if " + strings.Join(texts, " and ") + "."
}

// clause returns the need as a clause, such as: `optimizer.name` is `"sgd"`.
func (n Need) clause() string {
	if n.any == nil {
		if n.not {
			return strings.Replace(n.text("`"), " other than ", " is not ", 1)
		}
		return strings.Replace(n.text("`"), " = ", " is ", 1)
	}
	parts := make([]string, 0, len(n.any))
	for _, one := range n.any {
		parts = append(parts, one.clause())
	}
	return strings.Join(parts, ", or if ")
}
