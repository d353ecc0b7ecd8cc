package telemetry

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table of docs/reports.md")

func TestRowsOfMetricsAreComplete(t *testing.T) {
	names := map[string]string{}
	for m, d := range Metrics {
		if d.Key == "" || d.Doc == "" {
			t.Errorf("metric %d: got %+v, want a key and its meaning", m, d)
		}
		for kind, name := range map[string]string{"key": d.Key, "column": d.Column, "tag": d.Tag,
			"Prometheus": d.Prometheus} {
			if before, twice := names[kind+name]; twice && name != "" {
				t.Errorf("%s %s: two metrics have it, %s and %s", kind, name, before, d.Key)
			}
			names[kind+name] = d.Key
		}
		if (d.Prometheus == "") != (d.Help == "") || d.Prometheus != "" && (d.Kind != Number || d.Scope != OfRun) {
			t.Errorf("%s: want a name and a description for Prometheus, only for numbers of the run", d.Key)
		}
		if d.Panel != nil && (d.Column == "" || d.Scope != OfRun) {
			t.Errorf("%s: want a column of the run for its chart", d.Key)
		}
		if d.Kind == Number && (d.Optional || d.Point == MeanOfSteps) {
			t.Errorf("%s: a number is in each record, and its point shows the last step", d.Key)
		}
		if d.Kind == Number && d.Scope == OfRank {
			t.Errorf("%s: a value that differs between ranks is a Sensor", d.Key)
		}
	}
}

// The documentation must list the keys of records. -update rewrites the list.
func TestDocumentationListsTheMetrics(t *testing.T) {
	const path, start, end = "../../docs/reports.md", "<!-- metrics -->\n", "<!-- end of metrics -->"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), start)
	got, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no %q and %q", path, start, end)
	}
	want := table()
	if *update {
		if err := os.WriteFile(path, []byte(before+start+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != want {
		t.Errorf("%s: the table of metrics differs; go test -update rewrites it", path)
	}
}

// table returns a Markdown table of the metrics and sensors of a record.
func table() string {
	var b strings.Builder
	b.WriteString("| Key | Unit | Of | Meaning | TensorBoard, MLflow | Prometheus |\n|---|---|---|---|---|---|\n")
	code := func(name string) string {
		if name == "" {
			return ""
		}
		return "`" + name + "`"
	}
	for _, d := range Metrics {
		of, chart := "run", code(d.Tag)
		if d.Scope == OfRank {
			of = "rank"
		}
		if d.Point == MeanOfSteps {
			chart += " (mean)"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", d.Key, d.Unit, of, d.Doc, chart, code(d.Prometheus))
	}
	for _, d := range Declared {
		if d.Column != "" {
			fmt.Fprintf(&b, "| `%s` | %s | rank | %s | | |\n", d.Column, d.Unit, d.Name)
		}
	}
	return b.String()
}
