package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// DefaultValue replaces the usual default of a key if all needs are met. A need may name a key that has no
// DefaultValue, or a key that precedes this one in the order of the file.
type DefaultValue struct {
	Key   string // full dotted key
	Value any    // value in the type of the key's field
	Needs []Need
}

// If adds a default that replaces the usual default of the key if all needs are met. If the needs of several defaults
// are met, the first one applies.
func (k Key) If(value any, needs ...Need) Key {
	k.defaults = append(slices.Clip(k.defaults), DefaultValue{Value: value, Needs: needs})
	return k
}

// defaults returns the defaults of the keys that depend on the traits.
func (d DataTraits) defaults() (all []DefaultValue) {
	if d.ImageSize > 0 {
		all = append(all, DefaultValue{Key: "data.image_size", Value: d.ImageSize})
	}
	if d.CropPadding > 0 {
		all = append(all, DefaultValue{Key: "data.crop_padding", Value: d.CropPadding})
	}
	if d.RandomResizedCrop {
		all = append(all,
			DefaultValue{Key: "data.random_resized_crop", Value: true, Needs: []Need{Is("data.crop_padding", 0)}})
	}
	if d.Flip {
		all = append(all, DefaultValue{Key: "data.flip", Value: true})
	}
	return all
}

// allDefaults returns all defaults that a kind determines, for keys of any table.
func (k Kind) allDefaults() []DefaultValue { return append(k.Data.defaults(), k.Defaults...) }

// fillDefaults sets the keys whose default depends on other keys, unless given returns true for the key. The parameter
// kinds contains the selected model, data set and policy. Their defaults take precedence over those of the keys.
func (c *Config) fillDefaults(given func(key string) bool, kinds ...Kind) {
	tables := c.tables()
	values, _ := flat(tables)
	c.usual = map[string]string{}
	for _, t := range tables {
		for _, k := range t.keys {
			key := t.name + "." + k.name
			if given(key) {
				continue
			}
			for _, from := range append(slices.Clone(kinds), Kind{Defaults: k.defaultsOf(key)}) {
				d, found := from.defaultOf(key, values)
				if !found {
					continue
				}
				k.def = d.Value
				k.setDefault()
				if values[key] != k.text() {
					c.usual[key] = cmp.Or(from.Name, d.condition())
				}
				values[key] = k.text()
				break
			}
		}
	}
}

// defaultsOf returns the defaults of the key itself. The parameter key is its full name.
func (k Key) defaultsOf(key string) []DefaultValue {
	all := slices.Clone(k.defaults)
	for i := range all {
		all[i].Key = key
	}
	return all
}

// defaultOf returns the first default of a key whose needs are met.
func (k Kind) defaultOf(key string, values map[string]string) (DefaultValue, bool) {
	all := k.allDefaults()
	i := slices.IndexFunc(all, func(d DefaultValue) bool {
		return d.Key == key && !slices.ContainsFunc(d.Needs, func(n Need) bool { return !n.met(values) })
	})
	if i < 0 {
		return DefaultValue{}, false
	}
	return all[i], true
}

// DefaultOf returns the source of an unusual default, such as the name of the model. It returns "" if the key is set or
// has its usual default.
func (c *Config) DefaultOf(key string) string { return c.usual[key] }

// condition returns the needs of a default as text.
func (d DefaultValue) condition() string {
	var parts []string
	for _, n := range d.Needs {
		parts = append(parts, n.String())
	}
	return strings.Join(parts, ", ")
}

// check returns an error if the key of a default does not exist or does not allow the value.
func (d DefaultValue) check(keys map[string]Key) error {
	k, known := keys[d.Key]
	if !known {
		return fmt.Errorf("its default of %s: there is no such key", d.Key)
	}
	value, err := parseValue(formatValue(d.Value), false)
	if err != nil {
		return fmt.Errorf("its default of %s: %w", d.Key, err)
	}
	if f, ok := k.assign(value); !ok {
		f.Key = d.Key
		return fmt.Errorf("its default of %s", f)
	}
	return nil
}

// varies returns the documentation of a default that depends on other keys: "`224` for `images` and `webdataset`, else
// `32`". It returns "" if the key has only one default. It does not list the defaults of models, because the page of
// [Markdown] has a table of them.
func (cat Catalog) varies(key string, k Key) string {
	var text strings.Builder
	for _, g := range groupDefaults(append(slices.Clone(cat.DataSets), cat.Policies...), key) {
		fmt.Fprintf(&text, "`%s` for %s%s, ", g.value, and(g.owners), onlyIf(g.needs))
	}
	for _, d := range k.defaults {
		fmt.Fprintf(&text, "`%s`%s, ", formatValue(d.Value), onlyIf(d.Needs))
	}
	if text.Len() > 0 {
		text.WriteString("else ")
	}
	if groupDefaults(cat.Models, key) != nil {
		return text.String() + "`" + formatValue(k.def) + "`, unless the model has its own default"
	}
	if text.Len() == 0 {
		return ""
	}
	return text.String() + "`" + formatValue(k.def) + "`"
}

// sameDefault is a default that several kinds have in common.
type sameDefault struct {
	value  string // as TOML
	needs  []Need
	owners []string
}

// groupDefaults returns the defaults that kinds give to a key, in the order of their first owners.
func groupDefaults(kinds []Kind, key string) (groups []*sameDefault) {
	for _, kind := range kinds {
		for _, d := range kind.allDefaults() {
			if d.Key != key {
				continue
			}
			value := formatValue(d.Value)
			i := slices.IndexFunc(groups, func(g *sameDefault) bool {
				return g.value == value && onlyIf(g.needs) == onlyIf(d.Needs)
			})
			if i < 0 {
				groups, i = append(groups, &sameDefault{value: value, needs: d.Needs}), len(groups)
			}
			groups[i].owners = append(groups[i].owners, "`"+kind.Name+"`")
		}
	}
	return groups
}

// writeDefaults writes a table of the defaults that the kinds of a table determine, for keys of any table.
func (cat Catalog) writeDefaults(b *strings.Builder, kinds []Kind) {
	if !slices.ContainsFunc(kinds, func(k Kind) bool { return k.Defaults != nil }) {
		return
	}
	b.WriteString("\nDefaults that depend on the model. The first row whose condition is met applies:\n\n| Key | Default | Models | Condition |\n|---|---|---|---|\n")
	for _, t := range cat.tables(Default()) {
		for _, k := range t.keys {
			for _, g := range groupDefaults(kinds, t.name+"."+k.name) {
				fmt.Fprintf(b, "| `%s.%s` | `%s` | %s | %s |\n", t.name, k.name, g.value, strings.Join(g.owners, ", "),
					strings.TrimPrefix(onlyIf(g.needs), " "))
			}
		}
	}
}

// and joins words: "a, b and c".
func and(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// onlyIf returns needs as a clause that follows a value: " if `optimizer.name` is `"adamw"`".
func onlyIf(needs []Need) string {
	var parts []string
	for _, n := range needs {
		parts = append(parts, n.clause())
	}
	if parts == nil {
		return ""
	}
	return " if " + strings.Join(parts, " and ")
}
