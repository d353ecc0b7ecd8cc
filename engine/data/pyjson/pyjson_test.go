package pyjson

import (
	"encoding/json"
	"fmt"
	"testing"
)

func TestStandard(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": NaN, "b": [Infinity, -Infinity, NaN]}`: `{"a": null, "b": [null, null, null]}`,
		`{"NaN": "NaN", "x": "\"NaN"}`:                `{"NaN": "NaN", "x": "\"NaN"}`,
		`{"x": "a\\", "y": NaN}`:                      `{"x": "a\\", "y": null}`,
		`NaN`:                                         `null`,
		``:                                            ``,
		`"open NaN`:                                   `"open NaN`,
		`"open \`:                                     `"open \`,
	} {
		if got := string(Standard([]byte(text))); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestUnmarshal(t *testing.T) {
	for text, want := range map[string]string{
		`{"label": 3, "score": NaN}`:  "map[label:3 score:null]",
		`{"label": NaN}`:              "map[label:null]",
		`{"label": 3}`:                "map[label:3]",
		`{"label": 3, "score": NaNo}`: "",
		`{"label": 3, "score": nan}`:  "",
		`{"label": `:                  "",
	} {
		var got map[string]json.RawMessage
		err := Unmarshal([]byte(text), &got)
		values := map[string]string{}
		for k, v := range got {
			values[k] = string(v)
		}
		if (err == nil) != (want != "") || err == nil && fmt.Sprint(values) != want {
			t.Errorf("%s: got %v, %v, want %s", text, values, err, want)
		}
	}
}

// FuzzUnmarshal compares the results with those of package json, for valid JSON.
func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"a": NaN, "b": "NaN\"", "c": [-Infinity]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var want, got any
		plain := json.Unmarshal(text, &want)
		err := Unmarshal(text, &got)
		if plain == nil && (err != nil || fmt.Sprint(got) != fmt.Sprint(want)) {
			t.Fatalf("%q: got %v, %v, want %v", text, got, err, want)
		}
		if plain == nil && string(Standard(text)) != string(text) {
			t.Fatalf("%q became %q", text, Standard(text))
		}
	})
}
