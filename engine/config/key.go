package config

import (
	"fmt"
	"math"
	"slices"
)

// Key is one key of a table, with all its properties and the field that it sets. Create a Key with [String], [Strings],
// [Choice], [Int], [Seed], [Float], [Bool], [Ints] or [Floats].
type Key struct {
	name   string // name without the table
	field  any    // destination of the value: *string, *[]string, *int, *uint64, *float64, *bool, *[]int, *[]float64
	def    any    // default, in the type that field points to
	doc    string
	unit   string
	varies func() string            // documentation of a default that depends on another key; set by Catalog.tables
	enum   []string                 // allowed values of a string key; empty: any value
	meant  func(text string) string // set by Meant
	place  place                    // check of a text that names a place; nil: none
	isPath bool                     // set by Path
	min    float64                  // bounds of a number, or of each element of a list
	max    float64
	above  bool // min is excluded
	below  bool // max is excluded
	length int  // number of elements of a list that is not empty; 0: any number
	filled bool // the list must not be empty
	shapes bool // shapes or names of parameters depend on the key, so another value results in another model
	effect effect

	defaults     []DefaultValue // set by If; DefaultValue.Key is empty
	needs        []Need         // set by Only
	overriddenBy string         // set by OverriddenBy
	silent       string         // set by Silent
	atEnd        bool           // set by SilentAtEnd
}

// effect states whether a run may resume after a change of a key.
type effect uint8

const (
	unclassified effect = iota // treated as learnt
	learnt
	operational
)

// String returns the effect in the words of the documentation.
func (e effect) String() string {
	return [...]string{"another run", "another run", "resumes"}[e]
}

// Options is a struct with the keys that only one model, data set or policy has. Its method Keys lists them:
//
//	func (o *Options) Keys() []config.Key {
//		return []config.Key{
//			config.Float(&o.Dropout, "dropout", 0.1).AtLeast(0).Below(1).Doc("Fraction of activations set to zero."),
//		}
//	}
type Options interface {
	Keys() []Key
}

// String returns a key for any text.
func String(field *string, name, def string) Key {
	return Key{name: name, field: field, def: def}
}

// Strings returns a key for a list of non-empty texts.
func Strings(field *[]string, name string, def ...string) Key {
	return Key{name: name, field: field, def: def}
}

// Choice returns a key for one of the given values.
func Choice(field *string, name, def string, values ...string) Key {
	return Key{name: name, field: field, def: def, enum: values}
}

// Int returns a key for an integer, by default between 0 and 2^31-1.
func Int(field *int, name string, def int) Key {
	return Key{name: name, field: field, def: def, min: 0, max: math.MaxInt32}
}

// Seed returns a key for an integer between 0 and 2^63-1, the range of TOML.
func Seed(field *uint64, name string, def uint64) Key {
	return Key{name: name, field: field, def: def, min: 0, max: math.MaxInt64}
}

// Float returns a key for a finite number, by default at least 0.
func Float(field *float64, name string, def float64) Key {
	return Key{name: name, field: field, def: def, min: 0, max: math.Inf(1)}
}

// Bool returns a key for true or false.
func Bool(field *bool, name string, def bool) Key {
	return Key{name: name, field: field, def: def}
}

// Ints returns a key for a list of integers, by default each between 0 and 2^31-1.
func Ints(field *[]int, name string, def ...int) Key {
	return Key{name: name, field: field, def: def, min: 0, max: math.MaxInt32}
}

// Floats returns a key for a list of finite numbers, by default each at least 0.
func Floats(field *[]float64, name string, def ...float64) Key {
	return Key{name: name, field: field, def: def, min: 0, max: math.Inf(1)}
}

// Doc sets the documentation of the key, in Markdown.
func (k Key) Doc(text string) Key { k.doc = text; return k }

// Unit sets the unit of a number.
func (k Key) Unit(unit string) Key { k.unit = unit; return k }

// AtLeast requires a value of at least bound.
func (k Key) AtLeast(bound float64) Key { k.min, k.above = bound, false; return k }

// Above requires a value above bound.
func (k Key) Above(bound float64) Key { k.min, k.above = bound, true; return k }

// Shapes marks a key that changes names or shapes of the model's parameters. A run cannot resume with another value.
func (k Key) Shapes() Key { k.shapes = true; return k }

// Learnt marks a key that affects training results or reported results. If its value changes, the run is a different
// run.
func (k Key) Learnt() Key { k.effect = learnt; return k }

// Operational marks a key that affects the duration, location, speed or output of a run, but not its training results.
// A run may resume with another value. If the key is a path, only the path may change; the caller that resumes a run
// must compare the contents.
func (k Key) Operational() Key { k.effect = operational; return k }

// each applies mark to all keys that are neither Learnt nor Operational.
func each(mark func(Key) Key, keys []Key) []Key {
	for i, k := range keys {
		if k.effect == unclassified {
			keys[i] = mark(k)
		}
	}
	return keys
}

// AtMost requires a value of at most bound.
func (k Key) AtMost(bound float64) Key { k.max, k.below = bound, false; return k }

// Below requires a value below bound.
func (k Key) Below(bound float64) Key { k.max, k.below = bound, true; return k }

// Length requires that a list is empty or has n elements.
func (k Key) Length(n int) Key { k.length = n; return k }

// NotEmpty refuses an empty list.
func (k Key) NotEmpty() Key { k.filled = true; return k }

// Meant sets a function for values that are not allowed. The function returns the quoted value that the user probably
// meant. If it returns "", the error suggests the most similar value.
func (k Key) Meant(f func(text string) string) Key { k.meant = f; return k }

func (k Key) setDefault() {
	switch field := k.field.(type) {
	case *string:
		*field = k.def.(string)
	case *int:
		*field = k.def.(int)
	case *uint64:
		*field = k.def.(uint64)
	case *float64:
		*field = k.def.(float64)
	case *bool:
		*field = k.def.(bool)
	case *[]string:
		*field = slices.Clone(k.def.([]string))
	case *[]int:
		*field = slices.Clone(k.def.([]int))
	case *[]float64:
		*field = slices.Clone(k.def.([]float64))
	default:
		panic(fmt.Sprintf("config: key %s has a field of type %T", k.name, k.field))
	}
}

// variation returns the documentation of a default that depends on another key, or "".
func (k Key) variation() string {
	if k.varies == nil {
		return ""
	}
	return k.varies()
}
