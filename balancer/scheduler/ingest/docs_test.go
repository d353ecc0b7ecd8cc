package ingest

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// TestTheDocumentationListsAllColumns compares the tables of docs/scheduling.md with those of the program.
func TestTheDocumentationListsAllColumns(t *testing.T) {
	text, err := os.ReadFile("../../../docs/scheduling.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range Tables() {
		var b strings.Builder
		fmt.Fprintf(&b, "Table `%s`:\n\n| Column | Values | Needed | Meaning |\n|---|---|---|---|\n", table)
		for _, c := range Columns(table) {
			needed := "no"
			if c.Needed {
				needed = "yes"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.Name, values(c), needed, c.About)
		}
		if !strings.Contains(string(text), b.String()) {
			t.Errorf("docs/scheduling.md: table %s: got none or another, want\n\n%s", table, b.String())
		}
	}
}

func values(c Column) string {
	if c.Text {
		return "text"
	}
	unit := ""
	if names := c.Dimension.Units(); len(names) > 0 {
		unit = " " + names[0]
	}
	switch c.Dimension {
	case Fraction:
		unit = ""
	case Celsius:
		unit = " °C"
	}
	kind := "number"
	if c.Integer {
		kind = "integer"
	}
	switch {
	case c.Least == math.SmallestNonzeroFloat64:
		return kind + " above 0" + unit
	case c.Most == unlimited:
		return fmt.Sprintf("%s from %v%s", kind, c.Least, unit)
	}
	return fmt.Sprintf("%s from %v to %v%s", kind, c.Least, c.Most, unit)
}
