package config

import (
	"reflect"
	"slices"
)

// Catalog lists the models and data sets that the program was built with.
type Catalog struct {
	Models   []Kind
	DataSets []Kind
}

// Kind is one model or data set.
type Kind struct {
	Name string // the value of model.name or data.dataset
	Doc  string // one sentence for configs/README.md
	// Options makes the struct of the keys that only this kind has; nil if it has none.
	Options func() Options
}

func (k Kind) options() Options {
	if k.Options == nil {
		return nil
	}
	return k.Options()
}

func find(kinds []Kind, name string) (Kind, bool) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return kinds[i], true
}

func names(kinds []Kind) []string {
	all := make([]string, len(kinds))
	for i, k := range kinds {
		all[i] = k.Name
	}
	return all
}

// tables binds every key to its field in c and lets model.name and data.dataset take only what is listed.
func (cat Catalog) tables(c *Config) []table {
	ts := c.tables()
	for _, t := range ts {
		for i, k := range t.keys {
			switch {
			case t.name == "model" && k.name == "name":
				t.keys[i].enum = names(cat.Models)
			case t.name == "data" && k.name == "dataset":
				t.keys[i].enum = names(cat.DataSets)
			}
		}
	}
	return ts
}

// kinds are the models for the [model] table, the data sets for [data], none for the others.
func (cat Catalog) kinds(table string) []Kind {
	switch table {
	case "model":
		return cat.Models
	case "data":
		return cat.DataSets
	}
	return nil
}

// owners names the kinds of a table that have the key as one of their own.
func (cat Catalog) owners(table, key string) []string {
	var have []string
	for _, kind := range cat.kinds(table) {
		if o := kind.options(); o != nil && slices.ContainsFunc(o.Keys(), func(k Key) bool { return k.name == key }) {
			have = append(have, kind.Name)
		}
	}
	return have
}

// family is a set of kinds that share one type of options.
type family struct {
	kinds []Kind
	keys  []Key // at their defaults
}

// families groups kinds by their type of options, in the order of the list.
func families(kinds []Kind) []family {
	var all []family
	index := make(map[reflect.Type]int)
	for _, kind := range kinds {
		o := kind.options()
		if o == nil {
			continue
		}
		t := reflect.TypeOf(o)
		i, seen := index[t]
		if !seen {
			i = len(all)
			index[t] = i
			all = append(all, family{keys: o.Keys()})
		}
		all[i].kinds = append(all[i].kinds, kind)
	}
	return all
}
