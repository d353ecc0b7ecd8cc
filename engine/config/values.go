package config

import (
	"slices"
	"strings"
)

// Values is what is known of a key's values, for completion on command lines.
type Values struct {
	Key     string   // full dotted key
	Doc     string   // the first sentence of its meaning
	Allowed []string // every value that it may have; nil where there are too many to list
	Path    bool     // it names a file or folder
	Learnt  bool     // it affects what is learnt: Key.Learnt

	Classified bool // it says itself whether it does
}

// Values lists every key of every table, model and data set, in the order of the documentation.
func (cat Catalog) Values() []Values {
	var all []Values
	seen := map[string]bool{}
	add := func(table string, keys []Key) {
		for _, k := range keys {
			v := k.values(table)
			if seen[v.Key] { // of another family of models
				continue
			}
			seen[v.Key] = true
			all = append(all, v)
		}
	}
	for _, t := range cat.tables(Default()) {
		add(t.name, t.keys)
		for _, f := range families(cat.kinds(t.name)) {
			add(t.name, f.keys)
		}
	}
	return all
}

func (k Key) values(table string) Values {
	first, _, _ := strings.Cut(k.doc, ". ")
	v := Values{Key: table + "." + k.name, Doc: strings.TrimSuffix(strings.ReplaceAll(first, "`", ""), "."), Allowed: slices.Clone(k.enum), Learnt: k.effect != operational, Classified: k.effect != unclassified}
	switch k.field.(type) {
	case *bool:
		v.Allowed = []string{"true", "false"}
	case *string:
		v.Path = len(k.enum) == 0 && (k.name == "path" || k.name == "init_from" || k.name == "weather" || strings.HasSuffix(k.name, "_dir") ||
			strings.HasSuffix(k.name, "_file") || strings.HasSuffix(k.name, "_profiles"))
	}
	return v
}
