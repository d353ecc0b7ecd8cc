// Package pyjson reads JSON as Python's package json writes it by default. NaN, Infinity and -Infinity, which are not
// valid JSON, are read as null.
package pyjson

import (
	"bytes"
	"encoding/json"
)

// Unmarshal is json.Unmarshal, but also accepts NaN, Infinity and -Infinity. For other invalid text, it returns the
// error of json.Unmarshal.
func Unmarshal(text []byte, into any) error {
	err := json.Unmarshal(text, into)
	if err == nil {
		return nil
	}
	standard := Standard(text)
	if bytes.Equal(standard, text) || !json.Valid(standard) {
		return err
	}
	return json.Unmarshal(standard, into)
}

var words = [][]byte{[]byte("-Infinity"), []byte("Infinity"), []byte("NaN")}

// Standard returns the text with null instead of NaN, Infinity and -Infinity. It does not change strings.
func Standard(text []byte) []byte { return Replace(text, "null") }

// Replace is Standard with another JSON value instead of null.
func Replace(text []byte, with string) []byte {
	var out []byte
	from, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch {
		case quoted && text[i] == '\\':
			i++
		case text[i] == '"':
			quoted = !quoted
		case !quoted:
			for _, word := range words {
				if bytes.HasPrefix(text[i:], word) {
					out = append(append(out, text[from:i]...), with...)
					i += len(word) - 1
					from = i + 1
					break
				}
			}
		}
	}
	if from == 0 {
		return text
	}
	return append(out, text[from:]...)
}
