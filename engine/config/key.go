package config

import (
	"fmt"
	"math"
	"slices"
)

// Key is one key of a table: the field that it sets, and all of its properties. Create one with [String], [Strings],
// [Choice], [Int], [Seed], [Float], [Bool], [Ints] or [Floats].
type Key struct {
	name   string // without the table
	field  any    // *string, *[]string, *int, *uint64, *float64, *bool, *[]int, *[]float64
	def    any    // the field's element: string, int, …
	doc    string
	unit   string
	varies string                   // documentation of a default that depends on another key
	enum   []string                 // for strings: the allowed values; empty allows any
	meant  func(text string) string // see Meant
	min    float64                  // bounds of a number, or of each element of a list
	max    float64
	above  bool // min itself is not allowed
	below  bool // max itself is not allowed
	length int  // of a non-empty list; 0 allows any
	filled bool // the list must not be empty
	shapes bool // shapes or names of parameters depend on the key: another value means another model
	effect effect

	needs        []Need // see Only
	overriddenBy string // see OverriddenBy
}

// effect is the consequence of a changed key for a run that resumes.
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

// Options is a struct with the keys that only one model or data set has. It lists them once:
//
//	func (o *Options) Keys() []config.Key {
//		return []config.Key{
//			config.Float(&o.Dropout, "dropout", 0.1).AtLeast(0).Below(1).Doc("Share of activations set to zero."),
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

// Doc sets the meaning of the key, in Markdown.
func (k Key) Doc(text string) Key { k.doc = text; return k }

// Unit sets the unit of a number.
func (k Key) Unit(unit string) Key { k.unit = unit; return k }

// AtLeast requires a value of at least least.
func (k Key) AtLeast(least float64) Key { k.min, k.above = least, false; return k }

// Above requires a value above bound.
func (k Key) Above(bound float64) Key { k.min, k.above = bound, true; return k }

// Shapes marks a key on which names or shapes of the model's parameters depend: a run cannot resume with another value.
func (k Key) Shapes() Key { k.shapes = true; return k }

// Learnt marks a key that affects training results or reported results: with another value, the run is another run.
func (k Key) Learnt() Key { k.effect = learnt; return k }

// Operational marks a key that affects how long, where, how fast or how visibly a run trains, but not its training
// results: a run may resume with another value. For a path, the text is operational; the caller that resumes must
// compare the contents.
func (k Key) Operational() Key { k.effect = operational; return k }

// each marks those keys of a table that are not marked individually.
func each(mark func(Key) Key, keys []Key) []Key {
	for i, k := range keys {
		if k.effect == unclassified {
			keys[i] = mark(k)
		}
	}
	return keys
}

// AtMost requires a value of at most most.
func (k Key) AtMost(most float64) Key { k.max, k.below = most, false; return k }

// Below requires a value below bound.
func (k Key) Below(bound float64) Key { k.max, k.below = bound, true; return k }

// Length requires n elements in a non-empty list.
func (k Key) Length(n int) Key { k.length = n; return k }

// NotEmpty refuses an empty list.
func (k Key) NotEmpty() Key { k.filled = true; return k }

// Varies describes how the default depends on other keys.
func (k Key) Varies(text string) Key { k.varies = text; return k }

// Meant sets a function that returns the value, quoted, that the user meant by a text that is not allowed, or "" to
// suggest the nearest spelling.
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
