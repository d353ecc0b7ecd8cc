package config

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/pelletier/go-toml/v2"

	"github.com/hetero-train/hetero-train/engine/golden"
)

func resolvedSchema(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	var schema jsonschema.Schema
	if err := json.Unmarshal(Schema(town), &schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		t.Fatal(err)
	}
	return resolved
}

// asJSON returns a TOML text as the JSON value that a TOML-aware editor validates against the schema.
func asJSON(t *testing.T, text string) any {
	t.Helper()
	var decoded map[string]any
	if err := toml.Unmarshal([]byte(text), &decoded); err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(decoded)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(encoded, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestSchemaAcceptsWhatLoadAccepts(t *testing.T) {
	schema := resolvedSchema(t)
	for _, text := range []string{
		"", string(Default().TOML()),
		string(mustParse(t, "[model]\nname = \"tall\"\nheight = 9\n").TOML()),
		string(mustParse(t, "[data]\ndataset = \"streets\"\nwidth = 9\nmean = [0, 0, 0]\nstd = [1, 1, 1]\n").TOML()),
		"[model]\nname = \"wide\"\nwidth = 4\n",
	} {
		if _, err := Parse("run.toml", []byte(text), town); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(asJSON(t, text)); err != nil {
			t.Errorf("%v\nof:\n%s", err, text)
		}
	}
}

func TestSchemaRefusesFaultsOfSingleKeys(t *testing.T) {
	schema := resolvedSchema(t)
	for _, text := range []string{
		"colour = 1", "[optimiser]", "[data]\nbatchsize = 3", "[data]\nbatch_size = \"128\"", "[data]\nbatch_size = 0",
		"[data]\nimage_size = 4097", "[data]\nval_fraction = 1.0", "[data]\nstd = [0.0, 1.0, 1.0]",
		"[data]\nmean = [0, 0, 0, 0]",
		"[train]\nprecision = \"fp8\"", "[model]\nname = \"small\"", "[model]\nheight = 0",
		"[optimizer]\nbetas = [0.9]", "[optimizer]\neps = 0",
		"[data]\nflip = 1", "[balance]\nfixed_shares = [1.5]",
	} {
		if err := schema.Validate(asJSON(t, text)); err == nil {
			t.Errorf("accepted:\n%s", text)
		}
	}
}

// Two models may use the same name for different keys. The schema must then accept the values of both keys.
func TestSchemaOfAKeyWithTwoMeanings(t *testing.T) {
	two := Catalog{Models: []Kind{
		{Name: "tall", Options: func() Options { return new(tallOptions) }},
		{Name: "odd", Options: func() Options { return new(oddOptions) }},
	}}
	text := string(Schema(two))
	if !strings.Contains(text, "anyOf") || !strings.Contains(text, "Only tall. Floors.") ||
		!strings.Contains(text, "Only odd. A name.") {
		t.Errorf("got %s", text)
	}
}

type oddOptions struct{ Height string }

func (o *oddOptions) Keys() []Key {
	return []Key{String(&o.Height, "height", "low").Doc("A name.")}
}

// The golden file is the page of documentation for a small catalog.
func TestMarkdown(t *testing.T) {
	text := string(Markdown(town))
	for _, want := range []string{
		"## [data]", "| `batch_size` | integer, 1…16777216 | samples | `128` |",
		"| `lr` | number ≥ 0 |  | `0.001` if `optimizer.name` is `\"adamw\"`, else `0.05` | another run |",
		"- `tall`: two keys", "Keys of [model] only for `tall`, `taller`:",
		"| `height` | integer ≥ 1 | floors | `3` | another run | Floors. |",
		"| `wire_dtype` | `\"auto\"` `\"f32\"` `\"bf16\"` |", "| `betas` | list of 2 numbers, 0 ≤ x < 1 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	for _, table := range Default().tables() {
		for _, k := range table.keys {
			if !strings.Contains(text, "| `"+k.name+"` | ") {
				t.Errorf("%s.%s is not documented", table.name, k.name)
			}
		}
	}
}

// The golden file is the resolved default configuration, so every change of a default appears in its diff.
func TestDefaultAsTOML(t *testing.T) {
	golden.Check(t, filepath.Join("testdata", "default.toml"), string(Default().TOML()))
}
