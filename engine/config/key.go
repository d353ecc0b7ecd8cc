package config

import (
	"fmt"
	"math"
	"slices"
)

// Key is one key of a table: the field it sets, and everything that is said about it anywhere.
// Make one with [String], [Strings], [Choice], [Int], [Seed], [Float], [Bool], [Ints] or [Floats].
type Key struct {
	name   string // without the table
	field  any    // *string, *[]string, *int, *uint64, *float64, *bool, *[]int, *[]float64
	def    any    // the field's element: string, int, …
	doc    string
	unit   string
	varies string                   // what the documentation says where the default depends on another key
	enum   []string                 // for strings: the allowed values; empty means any
	meant  func(text string) string // see Meant
	min    float64                  // bounds of a number, or of each element of a list
	max    float64
	above  bool // min itself is not allowed
	below  bool // max itself is not allowed
	length int  // of a list that is not empty; 0 means any
	filled bool // the list must not be empty
	shapes bool // parameters of other shapes or names: another model
	effect effect

	needs        []Need // see Only
	overriddenBy string // see OverriddenBy
}

// effect says what a change of a key means to a run that resumes.
type effect uint8

const (
	unclassified effect = iota // counts as learnt
	learnt
	operational
)

// String is the effect as the documentation names it.
func (e effect) String() string {
	return [...]string{"another run", "another run", "resumes"}[e]
}

// Options is a struct of keys that only one model or data set has. It lists them once:
//
//	func (o *Options) Keys() []config.Key {
//		return []config.Key{
//			config.Float(&o.Dropout, "dropout", 0.1).AtLeast(0).Below(1).Doc("Share of activations set to zero."),
//		}
//	}
type Options interface {
	Keys() []Key
}

// String is a key of any text.
func String(field *string, name, def string) Key {
	return Key{name: name, field: field, def: def}
}

// Strings is a key of a list of texts, none of them empty, by default empty.
func Strings(field *[]string, name string, def ...string) Key {
	return Key{name: name, field: field, def: def}
}

// Choice is a key of one of the given values.
func Choice(field *string, name, def string, values ...string) Key {
	return Key{name: name, field: field, def: def, enum: values}
}

// Int is a key of a whole number, by default between 0 and 2^31-1.
func Int(field *int, name string, def int) Key {
	return Key{name: name, field: field, def: def, min: 0, max: math.MaxInt32}
}

// Seed is a key of a whole number between 0 and 2^63-1, what TOML can hold.
func Seed(field *uint64, name string, def uint64) Key {
	return Key{name: name, field: field, def: def, min: 0, max: math.MaxInt64}
}

// Float is a key of a finite number, by default at least 0.
func Float(field *float64, name string, def float64) Key {
	return Key{name: name, field: field, def: def, min: 0, max: math.Inf(1)}
}

// Bool is a key of true or false.
func Bool(field *bool, name string, def bool) Key {
	return Key{name: name, field: field, def: def}
}

// Ints is a key of a list of whole numbers, by default empty and each between 0 and 2^31-1.
func Ints(field *[]int, name string, def ...int) Key {
	return Key{name: name, field: field, def: def, min: 0, max: math.MaxInt32}
}

// Floats is a key of a list of finite numbers, by default empty and each at least 0.
func Floats(field *[]float64, name string, def ...float64) Key {
	return Key{name: name, field: field, def: def, min: 0, max: math.Inf(1)}
}

// Doc says what the key means, in Markdown.
func (k Key) Doc(text string) Key { k.doc = text; return k }

// Unit names the unit of a number.
func (k Key) Unit(unit string) Key { k.unit = unit; return k }

// AtLeast allows least and more.
func (k Key) AtLeast(least float64) Key { k.min, k.above = least, false; return k }

// Above allows only more than bound.
func (k Key) Above(bound float64) Key { k.min, k.above = bound, true; return k }

// Shapes marks a key on which names or shapes of the model's parameters depend: a run cannot go on with another value.
func (k Key) Shapes() Key { k.shapes = true; return k }

// Learnt marks a key that affects what a run learns or reports as its result: a run with another value is another run.
func (k Key) Learnt() Key { k.effect = learnt; return k }

// Operational marks a key that affects how long, where, how fast or how visibly a run trains, but not what a step learns: a run may
// resume with another value. Of a path the text is operational; whoever resumes compares the content.
func (k Key) Operational() Key { k.effect = operational; return k }

// each marks the keys of a table that are not marked one by one.
func each(mark func(Key) Key, keys []Key) []Key {
	for i, k := range keys {
		if k.effect == unclassified {
			keys[i] = mark(k)
		}
	}
	return keys
}

// AtMost allows most and less.
func (k Key) AtMost(most float64) Key { k.max, k.below = most, false; return k }

// Below allows only less than bound.
func (k Key) Below(bound float64) Key { k.max, k.below = bound, true; return k }

// Length demands so many elements of a list that is not empty.
func (k Key) Length(n int) Key { k.length = n; return k }

// NotEmpty refuses an empty list.
func (k Key) NotEmpty() Key { k.filled = true; return k }

// Varies says in words how the default depends on other keys.
func (k Key) Varies(text string) Key { k.varies = text; return k }

// Meant lets f say which value a text that is not allowed was meant to be, quoted, where that is not the one of the nearest spelling; "" where it is.
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
