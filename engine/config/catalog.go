package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
)

// Catalog contains the models, data sets and policies of the program.
type Catalog struct {
	Models   []Kind
	DataSets []Kind
	Policies []Kind
}

// Kind is one model, data set or policy.
type Kind struct {
	Name string // value of model.name, data.dataset or balance.policy that selects the kind
	Doc  string // phrase that describes the kind in configs/README.md
	// Options returns a new struct with the keys that only this kind has. Options is nil if there are no such keys.
	Options func() Options
	Data    DataTraits // traits of a data set; unused for other kinds
	Learns  bool       // a policy that reads and stores step-time curves (balance.curve_cache)
	// Defaults contains defaults of common keys in any table. They apply if this kind is selected.
	Defaults []DefaultValue
	// Samples is the type of the samples that a model reads or a data set contains. A model trains only on data sets
	// with the same type.
	Samples Samples
}

// Samples is a type of training samples.
type Samples string

// The types of training samples.
const (
	Images Samples = "" // labelled images
	Tokens Samples = "tokens"
	// AnySamples is the type of a data set that can provide any type of samples. It provides the type that the model
	// reads.
	AnySamples Samples = "any"
)

func (s Samples) String() string {
	switch s {
	case Images:
		return "images"
	case AnySamples:
		return "images or tokens"
	}
	return string(s)
}

// DataTraits are properties of a data set that affect other keys. The zero value describes a data set for which
// data.path is optional and whose images are neither cropped nor mirrored by default.
type DataTraits struct {
	NeedsPath bool // data.path must be set
	// the samples are generated from the seed: data.path must be empty, and the data set can be a fallback
	Computed bool
	ValPath  bool // data.val_path may name evaluation samples

	// Defaults of the keys with the same names.
	ImageSize         int // pixels; 0 means 32
	CropPadding       int // pixels
	RandomResizedCrop bool
	Flip              bool
}

// choosers maps each table whose keys depend on a kind to the key that selects the kind.
var choosers = map[string]string{"model": "model.name", "data": "data.dataset", "balance": "balance.policy"}

func (k Kind) options() Options {
	if k.Options == nil {
		return nil
	}
	return k.Options()
}

// withDefaults returns the options of the kind with default values. It returns nil if the kind has no options.
func (k Kind) withDefaults() Options {
	o := k.options()
	if o != nil {
		for _, key := range o.Keys() {
			key.setDefault()
		}
	}
	return o
}

// DataSetOptions returns the options of the data set called name, with default values. It returns nil if the data set
// is unknown or has no options.
func (cat Catalog) DataSetOptions(name string) Options { return defaultsOf(cat.DataSets, name) }

// PolicyOptions returns the options of the policy called name, with default values. It returns nil if the policy is
// unknown or has no options.
func (cat Catalog) PolicyOptions(name string) Options { return defaultsOf(cat.Policies, name) }

// SamplesOf returns the type of samples that a model reads. It returns Images for an unknown model.
func (cat Catalog) SamplesOf(model string) Samples {
	kind, _ := find(cat.Models, model)
	return kind.Samples
}

func defaultsOf(kinds []Kind, name string) Options {
	kind, _ := find(kinds, name)
	return kind.withDefaults()
}

// Check returns an error that lists all faults of the catalog: duplicate names, names that a configuration cannot
// contain, and keys that already exist in a table.
func (cat Catalog) Check() error {
	var errs []error
	common, keys := map[string][]string{}, new(Config).keys()
	for _, t := range new(Config).tables() {
		for _, k := range t.keys {
			common[t.name] = append(common[t.name], k.name)
		}
	}
	for _, list := range []struct {
		what, table string
	}{{"model", "model"}, {"data set", "data"}, {"policy", "balance"}} {
		seen := map[string]bool{}
		for _, kind := range cat.kinds(list.table) {
			if !kindName.MatchString(kind.Name) {
				errs = append(errs,
					fmt.Errorf("%s %q: invalid name, want letters, digits, _ and -, the first one a letter", list.what,
						kind.Name))
			}
			if seen[kind.Name] {
				errs = append(errs, fmt.Errorf("%s %q: this name is used twice; choose another name for yours",
					list.what, kind.Name))
			}
			seen[kind.Name] = true
			for _, d := range kind.Defaults {
				if err := d.check(keys); err != nil {
					errs = append(errs, fmt.Errorf("%s %q: %w", list.what, kind.Name, err))
				}
			}
			o := kind.options()
			if o == nil {
				continue
			}
			taken := slices.Clone(common[list.table])
			for _, k := range o.Keys() {
				if slices.Contains(taken, k.name) {
					errs = append(errs, fmt.Errorf("%s %q: its key %s.%s exists already; choose another name",
						list.what, kind.Name, list.table, k.name))
				}
				taken = append(taken, k.name)
			}
		}
	}
	return errors.Join(errs...)
}

var kindName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

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

// namesOf returns the names of the kinds for which is returns true.
func namesOf(kinds []Kind, is func(Kind) bool) []string {
	return names(slices.DeleteFunc(slices.Clone(kinds), func(k Kind) bool { return !is(k) }))
}

// tables returns the tables of a configuration for this catalog. If a key selects a kind, only names in the catalog are
// allowed. The documentation includes the defaults that depend on other keys.
func (cat Catalog) tables(c *Config) []table {
	c.Data.withValPath = namesOf(cat.DataSets, func(k Kind) bool { return k.Data.ValPath })
	c.Balance.learning = namesOf(cat.Policies, func(k Kind) bool { return k.Learns })
	ts := c.tables()
	for _, t := range ts {
		for i, k := range t.keys {
			key := &t.keys[i]
			name := t.name + "." + k.name
			key.varies = func() string { return cat.varies(name, k) }
			switch name {
			case choosers[t.name]:
				key.enum = names(cat.kinds(t.name))
			case "data.fallback":
				key.enum = append([]string{""},
					names(slices.DeleteFunc(slices.Clone(cat.DataSets),
						func(k Kind) bool { return !k.Data.Computed || k.Samples != Images }))...)
			}
		}
	}
	return ts
}

// kinds returns the models for table [model], the data sets for [data], the policies for [balance], and nil for other
// tables.
func (cat Catalog) kinds(table string) []Kind {
	switch table {
	case "model":
		return cat.Models
	case "data":
		return cat.DataSets
	case "balance":
		return cat.Policies
	}
	return nil
}

// owners returns the names of those kinds of a table whose own keys include key.
func (cat Catalog) owners(table, key string) []string {
	var have []string
	for _, kind := range cat.kinds(table) {
		if o := kind.options(); o != nil && slices.ContainsFunc(o.Keys(), func(k Key) bool { return k.name == key }) {
			have = append(have, kind.Name)
		}
	}
	return have
}

// family is a set of kinds whose options have the same type.
type family struct {
	kinds []Kind
	keys  []Key // keys of the options, with default values
}

// families groups kinds by the type of their options, in the order of the list.
func families(kinds []Kind) []family {
	var all []family
	index := make(map[reflect.Type]int)
	for _, kind := range kinds {
		o := kind.options()
		if o == nil {
			continue
		}
		keys := o.Keys()
		if len(keys) == 0 {
			continue
		}
		t := reflect.TypeOf(o)
		i, seen := index[t]
		if !seen {
			i = len(all)
			index[t] = i
			all = append(all, family{keys: keys})
		}
		all[i].kinds = append(all[i].kinds, kind)
	}
	return all
}
