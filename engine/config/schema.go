package config

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// node is an object of a JSON Schema of draft 7, the draft that TOML editors support.
type node map[string]any

// Schema returns the JSON Schema of a configuration file, for editors. It contains the keys of all models, data sets
// and policies, with the bounds of each key. It does not contain rules over several keys, which only Load checks.
func Schema(cat Catalog) []byte {
	properties := node{}
	for _, t := range cat.tables(Default()) {
		keys := node{}
		for _, k := range t.keys {
			keys[k.name] = k.schema(k.doc)
		}
		for _, f := range families(cat.kinds(t.name)) {
			for _, k := range f.keys {
				addOwn(keys, k, f)
			}
		}
		properties[t.name] = node{"type": "object", "description": t.doc + onlyWith(t.needs),
			"additionalProperties": false, "properties": keys}
	}
	text, err := json.MarshalIndent(node{
		"$schema":              "http://json-schema.org/draft-07/schema#",
		"title":                "hetero-train configuration",
		"type":                 "object",
		"additionalProperties": false,
		"properties":           properties,
	}, "", "  ")
	if err != nil {
		// unreachable: a node contains only maps, lists, strings and numbers
		panic(fmt.Sprintf("config: schema: %v", err))
	}
	return append(text, '\n')
}

// addOwn adds a key of one family to the schema of a table. If another family has a key with the same name, the schema
// allows both.
func addOwn(keys node, k Key, f family) {
	own := k.schema(fmt.Sprintf("Only %s. %s", strings.Join(names(f.kinds), ", "), k.doc))
	switch other := keys[k.name].(type) {
	case nil:
		keys[k.name] = own
	case node:
		if forms, several := other["anyOf"].([]node); several {
			other["anyOf"] = append(forms, own)
		} else {
			keys[k.name] = node{"anyOf": []node{other, own}}
		}
	}
}

// schema returns the schema of the key, without conditions on other keys.
func (k Key) schema(doc string) node {
	doc += k.conditions()
	if k.unit != "" {
		doc += " Unit: " + k.unit + "."
	}
	s := node{"description": doc}
	if k.variation() == "" {
		s["default"] = k.def
	}
	switch k.field.(type) {
	case *string:
		s["type"] = "string"
		if len(k.enum) > 0 {
			s["enum"] = k.enum
		}
	case *[]string:
		s["type"], s["items"] = "array", node{"type": "string", "minLength": 1}
		if formatValue(k.def) == "[]" {
			s["default"] = []string{} // an empty list instead of null
		}
	case *bool:
		s["type"] = "boolean"
	case *int, *uint64, *float64:
		k.numberSchema(s)
	default:
		element := node{}
		k.numberSchema(element)
		s["type"], s["items"] = "array", element
		if formatValue(k.def) == "[]" {
			s["default"] = []int{} // an empty list instead of null
		}
		if k.filled {
			s["minItems"] = max(1, k.length)
		}
		if k.length > 0 { // a list without a default may be empty
			s["maxItems"] = k.length
		}
	}
	return s
}

func (k Key) numberSchema(s node) {
	s["type"] = "number"
	if k.whole() {
		s["type"] = "integer"
	}
	low, high := "minimum", "maximum"
	if k.above {
		low = "exclusiveMinimum"
	}
	if k.below {
		high = "exclusiveMaximum"
	}
	s[low] = k.min
	if !math.IsInf(k.max, 1) && k.max != math.MaxInt64 {
		s[high] = k.max
	}
}
