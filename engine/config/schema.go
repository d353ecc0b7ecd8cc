package config

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// node is a part of a JSON Schema (draft 7, which TOML editors support).
type node map[string]any

// Schema returns the JSON Schema of a configuration file, for editors. It contains the keys of all models, data sets
// and policies, with the bounds of each key; Load checks the rules over several keys.
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
		properties[t.name] = node{"type": "object", "description": t.doc + onlyWith(t.needs), "additionalProperties": false, "properties": keys}
	}
	text, err := json.MarshalIndent(node{
		"$schema":              "http://json-schema.org/draft-07/schema#",
		"title":                "hetero-train configuration",
		"type":                 "object",
		"additionalProperties": false,
		"properties":           properties,
	}, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("config: schema: %v", err)) // cannot happen: node contains only maps of strings, numbers and lists
	}
	return append(text, '\n')
}

// addOwn adds a key of one family of kinds. If another family has a key of that name, both forms are allowed.
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

// schema returns the schema of the key itself.
func (k Key) schema(doc string) node {
	doc += k.conditions()
	if k.unit != "" {
		doc += " Unit: " + k.unit + "."
	}
	s := node{"description": doc}
	if k.varies == "" {
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
			s["default"] = []string{} // not null
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
			s["default"] = []int{} // not null
		}
		if k.filled {
			s["minItems"] = max(1, k.length)
		}
		if k.length > 0 { // a key without a default value may be an empty list
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
