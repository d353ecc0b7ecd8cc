package config

import (
	"fmt"
	"slices"
	"strings"
)

// Describe documents a key, or all keys of a table, as text for a terminal. A key can have different forms in several
// models, data sets or policies. For an unknown name, the error suggests the nearest key.
func Describe(cat Catalog, name string) (string, error) {
	var b strings.Builder
	var all []string
	for _, t := range cat.tables(Default()) {
		add := func(keys []Key, kinds []Kind) {
			for _, k := range keys {
				full := t.name + "." + k.name
				all = append(all, full)
				if full != name && t.name != name {
					continue
				}
				if b.Len() > 0 {
					b.WriteByte('\n')
				}
				k.describe(&b, full, names(kinds))
			}
		}
		add(t.keys, nil)
		for _, f := range families(cat.kinds(t.name)) {
			add(f.keys, f.kinds)
		}
	}
	if b.Len() > 0 {
		return b.String(), nil
	}
	near := Closest(name, all)
	if near == "" {
		if at := slices.IndexFunc(all, func(full string) bool { return leafOf(full) == name }); at >= 0 {
			near = all[at]
		}
	}
	if near != "" {
		near = "; nearest: " + near
	}
	return "", fmt.Errorf("unknown key or table %s%s", quote(name), near)
}

// describe writes the properties of a key. The parameter kinds contains the models, data sets or policies that have the
// key; nil means all.
func (k Key) describe(b *strings.Builder, full string, kinds []string) {
	def := strings.ReplaceAll(k.variation(), "`", "")
	if def == "" {
		def = formatValue(k.def)
	}
	fmt.Fprintf(b, "%s\n", full)
	for _, line := range [][2]string{
		{"meaning", strings.ReplaceAll(k.doc+k.conditions(), "`", "")},
		{"only for", strings.Join(kinds, ", ")},
		{"type", strings.ReplaceAll(k.markdownType(), "`", "")},
		{"unit", k.unit},
		{"default", def},
		{"a change", k.effect.String()},
	} {
		if line[1] != "" {
			fmt.Fprintf(b, "  %-9s %s\n", line[0], line[1])
		}
	}
}
