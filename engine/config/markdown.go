package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

const markdownHead = `# Configuration

A TOML file contains the settings of a run: ` + "`hetero-train -c FILE`" + `.
This page lists every key; ` + "`hetero-train config docs`" + ` prints it.

- A missing key has its default value.
- The program refuses unknown keys, NaN, values of the wrong type or out of range, and keys of one table that differ only in case.
  It reports all errors together, with file and line, and starts nothing (exit code 2).
- ` + "`--set table.key=value`" + ` (repeatable) overrides the file, and the file overrides the defaults.
  Values have TOML syntax, but strings need no quotes: ` + "`--set train.epochs=3 --set model.name=resnet18`" + `.
- The maximum size of a file is 64 KiB.
- ` + "`hetero-train config show -c FILE`" + ` prints the resolved configuration.
  ` + "`hetero-train config schema`" + ` prints a JSON Schema for editors.
- Column "A change" shows whether a run resumes after the key was changed.
  "resumes": the run resumes with the changed value.
  "another run": the key affects training results, so the run resumes only with ` + "`--allow table.key`" + `.
  On resume, the program checks that data and initial weights have the same content; their paths may change (docs/training.md).
- "Only if" in column "Meaning" states when a key has an effect.
- The TOML files in this folder are examples of complete runs.
`

// Markdown returns a page that documents all keys of all tables, models, data sets and policies.
func Markdown(cat Catalog) []byte {
	var b strings.Builder
	b.WriteString(markdownHead)
	for _, t := range cat.tables(Default()) {
		fmt.Fprintf(&b, "\n## [%s]\n\n%s\n\n", t.name, t.doc+onlyWith(t.needs))
		writeKeys(&b, t.keys)
		writeKinds(&b, t.name, cat.kinds(t.name))
		if t.name == "model" {
			cat.writeDefaults(&b, cat.Models)
		}
	}
	return []byte(b.String())
}

func writeKeys(b *strings.Builder, keys []Key) {
	b.WriteString("| Key | Type | Unit | Default | A change | Meaning |\n|---|---|---|---|---|---|\n")
	for _, k := range keys {
		def := k.variation()
		if def == "" {
			def = "`" + formatValue(k.def) + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s |\n", k.name, k.markdownType(), k.unit, def, k.effect,
			strings.ReplaceAll(k.doc+k.conditions(), "|", `\|`))
	}
}

// writeKinds writes the list of models, data sets or policies, and then their own keys.
func writeKinds(b *strings.Builder, table string, kinds []Kind) {
	what := map[string]string{"model": "models", "data": "data sets", "balance": "policies"}[table]
	if len(kinds) == 0 {
		return
	}
	fmt.Fprintf(b, "\nThe %s:\n\n", what)
	for _, kind := range kinds {
		fmt.Fprintf(b, "- `%s`: %s", kind.Name, kind.Doc)
		if i, ok := kind.options().(Ignorer); ok && len(i.Ignores()) > 0 {
			fmt.Fprintf(b, " (ignores `%s`)", strings.Join(i.Ignores(), "`, `"))
		}
		b.WriteByte('\n')
	}
	for _, f := range families(kinds) {
		fmt.Fprintf(b, "\nKeys of [%s] only for `%s`:\n\n", table, strings.Join(names(f.kinds), "`, `"))
		writeKeys(b, f.keys)
	}
}

// markdownType returns the type of the key with its values or bounds. It omits bounds that follow from the type.
func (k Key) markdownType() string {
	switch k.field.(type) {
	case *string:
		if len(k.enum) == 0 {
			return "string"
		}
		quoted := make([]string, len(k.enum))
		for i, v := range k.enum {
			quoted[i] = "`" + quote(v) + "`"
		}
		return strings.Join(quoted, " ")
	case *bool:
		return "boolean"
	case *[]string:
		return k.kind()
	}
	kind := k.kind()
	if k.length > 0 {
		kind = fmt.Sprintf("list of %d %s", k.length, strings.TrimPrefix(kind, "list of "))
	}
	bounded := k.max < math.MaxInt32
	switch low := formatBound(k.min); {
	case k.above && !bounded:
		return kind + " > " + low
	case !bounded:
		return kind + " ≥ " + low
	default:
		return kind + ", " + k.interval()
	}
}

// interval returns the allowed range, such as 0…1 or 0 < x < 1.
func (k Key) interval() string {
	low, high := formatBound(k.min), formatBound(k.max)
	if !k.above && !k.below {
		return low + "…" + high
	}
	left, right := "≤", "≤"
	if k.above {
		left = "<"
	}
	if k.below {
		right = "<"
	}
	return fmt.Sprintf("%s %s x %s %s", low, left, right, high)
}

// formatBound formats a bound without an exponent: 16777216, not 1.6777216e+07.
func formatBound(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
