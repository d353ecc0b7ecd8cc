package config

import (
	"slices"
	"strings"
)

// Values describes the values of a key, for completion on the command line.
type Values struct {
	Key     string   // full dotted key
	Doc     string   // first sentence of the documentation
	Allowed []string // all allowed values; nil if there are too many to list
	Path    bool     // true if the value is the path of a file or folder
	Learnt  bool     // true if the key affects training results: Key.Learnt

	Classified bool // true if the key is marked Learnt or Operational
}

// Values lists the keys of all tables, models and data sets, in the order of the documentation.
func (cat Catalog) Values() []Values {
	var all []Values
	seen := map[string]bool{}
	add := func(table string, keys []Key) {
		for _, k := range keys {
			v := k.values(table)
			if seen[v.Key] { // another family of models has the same key
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
	v := Values{Key: table + "." + k.name, Doc: strings.TrimSuffix(strings.ReplaceAll(first, "`", ""), "."),
		Allowed: slices.Clone(k.enum), Learnt: k.effect != operational, Classified: k.effect != unclassified}
	switch k.field.(type) {
	case *bool:
		v.Allowed = []string{"true", "false"}
	case *string:
		v.Path = k.isPath
	}
	return v
}
