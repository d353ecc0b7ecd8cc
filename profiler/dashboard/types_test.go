package dashboard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/balancer/policies"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/golden"
	"github.com/hetero-train/hetero-train/profiler/analysis"
	"github.com/hetero-train/hetero-train/profiler/runs"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// The types of the page must be those of the server's answers. -update rewrites the file. Afterwards, run
// scripts/dashboard_ui.sh.
func TestThePageHasTheTypesOfTheAnswers(t *testing.T) {
	golden.Check(t, "ui/src/answers.ts", typescript())
}

// typescript returns the content of ui/src/answers.ts.
func typescript() string {
	p := &declared{names: map[reflect.Type]string{}}
	for _, answer := range []any{listing{}, runs.View{}, runs.Figures{}, comparison{}} {
		p.of(reflect.TypeOf(answer))
	}
	var b strings.Builder
	b.WriteString(
		"// The answers of the server. Written by: go test ./profiler/dashboard -run Types -args -update\n\n" +
			"import type { Maybe } from './format'\n")
	for _, text := range p.texts {
		b.WriteString("\n" + text)
	}
	b.WriteString("\n// Charts of one metric, from telemetry.Metrics.\nexport const charts = [\n")
	for _, d := range telemetry.Metrics {
		if d.Panel != nil {
			text, err := json.Marshal(struct {
				*telemetry.Panel
				Column string `json:"column"`
				Unit   string `json:"unit"`
			}{d.Panel, d.Column, d.Unit})
			if err != nil {
				panic(err)
			}
			fmt.Fprintf(&b, "  %s,\n", text)
		}
	}
	b.WriteString("]\n\n// Policies that equalize the measured times of the ranks, from policies.Makers.\nexport const learning = [")
	for _, m := range policies.Makers() {
		if m.Learns {
			fmt.Fprintf(&b, "'%s', ", m.Name)
		}
	}
	return strings.TrimSuffix(b.String(), ", ") + "]\n"
}

// declared collects the TypeScript types of Go types.
type declared struct {
	names map[reflect.Type]string
	texts []string
}

var (
	numberType  = reflect.TypeFor[experiment.Number]()
	valuesType  = reflect.TypeFor[runs.Values]()
	recordType  = reflect.TypeFor[runtime.Record]()
	timeType    = reflect.TypeFor[time.Time]()
	rawJSONType = reflect.TypeFor[json.RawMessage]()
)

// pageNames contains names for types whose Go names have another meaning in TypeScript or in the page.
var pageNames = map[reflect.Type]string{
	recordType:                                "RankRecord",
	reflect.TypeFor[runtime.Event]():          "RunEvent",
	reflect.TypeFor[runtime.EventMetric]():    "Metric",
	reflect.TypeFor[runtime.BucketTimes]():    "Bucket",
	reflect.TypeFor[runs.CurveView]():         "Curve",
	reflect.TypeFor[runs.Point]():             "CurvePoint",
	reflect.TypeFor[runs.CommunicationView](): "Communication",
	reflect.TypeFor[runs.LinkView]():          "Link",
}

// filled names lists that are never null, because the server creates them even if they have no elements.
var filled = map[reflect.Type][]string{
	reflect.TypeFor[listing]():                {"runs"},
	reflect.TypeFor[comparison]():             {"compared", "failed"},
	reflect.TypeFor[analysis.Sheet]():         {"runs", "labels", "results", "settings", "notes"},
	reflect.TypeFor[runs.Listing]():           {"runs"},
	reflect.TypeFor[runs.View]():              {"ranks", "curves"},
	reflect.TypeFor[runs.CurveView]():         {"shares"},
	reflect.TypeFor[runs.Decision]():          {"shares", "next"},
	reflect.TypeFor[runs.CommunicationView](): {"ranks", "links"},
	reflect.TypeFor[runs.Figures]():           {"steps", "times", "lines"},
}

// of returns the name of the TypeScript type of a Go type.
func (p *declared) of(t reflect.Type) string {
	switch t {
	case numberType:
		return "Maybe"
	case valuesType:
		return "Maybe[]"
	case timeType:
		return "string"
	case rawJSONType:
		return "unknown"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	case reflect.Pointer:
		if inner := p.of(t.Elem()); inner != "number" {
			return inner + " | null"
		}
		return "Maybe"
	case reflect.Slice:
		return array(p.of(t.Elem()))
	case reflect.Map:
		return "Record<string, " + p.of(t.Elem()) + ">"
	case reflect.Struct:
		return p.object(t)
	case reflect.Interface:
		return "unknown"
	}
	return "number"
}

func array(of string) string {
	if strings.Contains(of, " ") {
		return "(" + of + ")[]"
	}
	return of + "[]"
}

// object declares the type of a struct and returns its name. If the struct has no name, object returns the type itself.
func (p *declared) object(t reflect.Type) string {
	if name, known := p.names[t]; known {
		return name
	}
	name := cmp.Or(pageNames[t], t.Name())
	if name != "" {
		name = strings.ToUpper(name[:1]) + name[1:]
	}
	for other, used := range p.names {
		if used == name && name != "" {
			panic(fmt.Sprintf("%v and %v have one name in the page; add a name to pageNames", t, other))
		}
	}
	fields := p.fields(t)
	if t == recordType {
		fields = recordFields()
	}
	if name == "" {
		return "{ " + strings.Join(fields, "; ") + " }"
	}
	p.names[t] = name
	p.texts = append(p.texts, "export type "+name+" = {\n  "+strings.Join(fields, "\n  ")+"\n}\n")
	return name
}

func (p *declared) fields(t reflect.Type) (all []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag == "-":
			continue
		case f.Anonymous && tag == "":
			all = append(all, p.fields(f.Type)...)
			continue
		case !f.IsExported():
			continue
		case tag == "":
			tag = f.Name
		}
		of := p.of(f.Type)
		switch {
		case strings.Contains(options, "omitempty"), strings.Contains(options, "omitzero"):
			tag += "?"
			of = strings.TrimSuffix(of, " | null")
		case f.Type.Kind() == reflect.Map, f.Type.Kind() == reflect.Slice && f.Type != valuesType &&
			f.Type != rawJSONType:
			if !slices.Contains(filled[t], tag) {
				of += " | null"
			}
		}
		all = append(all, tag+": "+of)
	}
	return all
}

// recordFields returns the fields of a record: the metrics, and the sensors that have a column.
func recordFields() (all []string) {
	for _, d := range telemetry.Metrics {
		of := "number"
		switch d.Kind {
		case telemetry.Flag:
			of = "boolean"
		case telemetry.Number, telemetry.Instant, telemetry.Derived:
			of = "Maybe"
		}
		key := d.Key
		if d.Optional {
			key += "?"
		}
		all = append(all, key+": "+of)
	}
	for _, d := range telemetry.Declared {
		if d.Column == "" {
			continue
		}
		key := d.Column
		if d.Optional {
			key += "?"
		}
		all = append(all, key+": Maybe")
	}
	return all
}
