package ingest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Table is a kind of rows. A source has rows of one table (CSV) or of several (TOML, JSON lines).
type Table string

// The tables, in the order in which they refer to each other.
const (
	GPUTypes Table = "gpu_types"
	Machines Table = "machines"
	GPUs     Table = "gpus"
	Kinds    Table = "kinds"
	Jobs     Table = "jobs"
	Speeds   Table = "speeds"
	Pairs    Table = "pairs"
	Curves   Table = "curves"
)

// Column describes a column of a table.
type Column struct {
	Name      string
	Text      bool      // true: a text; false: a number
	Dimension Dimension // of a number
	Needed    bool      // a row without this column is a fault; if false, the number is NaN in such a row
	Integer   bool
	Least     float64 // smallest valid number, in the base unit
	Most      float64 // largest valid number
	About     string

	plausible float64 // a number between 0 and this limit probably lacks its unit
}

const (
	maxCount  = 1 << 16
	unlimited = math.MaxFloat64
	mib       = 1 << 20

	leastSpeed = 1e-9 // steps/s: a step takes 32 years

	// spareCells is the number of cells that a row may have in addition to the columns of its table. A row with some
	// unknown cells therefore gets an error for each. With more cells, the time would grow with the square of their
	// number.
	spareCells = 64
)

// maxGavelGPUs limits the number of GPUs of a measurement or of a job, and maxFigures the size of the table of speeds
// (kinds x types x numbers of GPUs).
const (
	maxGavelGPUs = 1 << 12
	maxFigures   = 1 << 24
)

func text(name, about string) Column {
	return Column{Name: name, Text: true, Needed: true, About: about}
}

// tables lists the columns of each table. Missing numbers that are not Needed are NaN in the result.
var tables = []struct {
	name    Table
	columns []Column
}{
	{GPUTypes, []Column{
		text("name", "name of the type"),
		{Name: "memory", Dimension: Bytes, Needed: true, Most: unlimited, plausible: mib, About: "device memory"},
		{Name: "bandwidth", Dimension: ByteRate, Most: unlimited, plausible: 1e6, About: "bandwidth of device memory"},
		{Name: "compute", Dimension: FLOPRate, Most: unlimited, plausible: 1e6, About: "peak arithmetic"},
	}},
	{Machines, []Column{
		text("name", "name of the machine"),
		{Name: "cpus", Needed: true, Most: maxCount, About: "CPU cores"},
		{Name: "memory", Dimension: Bytes, Needed: true, Most: unlimited, plausible: mib, About: "host memory"},
		{Name: "network", Dimension: ByteRate, Least: 1, Most: unlimited, plausible: 1e3,
			About: "link to other machines"},
		{Name: "gpu_type", Text: true, About: "type of the GPUs that column gpus counts"},
		{Name: "gpus", Integer: true, Most: maxCount,
			About: "number of GPUs, named MACHINE/0, MACHINE/1, ..., instead of rows of table gpus"},
	}},
	{GPUs, []Column{
		text("name", "name of the GPU"),
		text("type", "name of its type"),
		text("machine", "name of its machine"),
		{Name: "utilization", Dimension: Fraction, Most: 1, About: "measured utilization"},
		{Name: "temperature", Dimension: Celsius, Least: -273.15, Most: 1000, About: "measured temperature"},
	}},
	{Kinds, []Column{
		text("name", "name of the kind of job"),
		text("class", "simulation, learning or processing"),
		{Name: "gpu_memory", Dimension: Bytes, Most: unlimited, plausible: 1e4, About: "memory on each GPU"},
		{Name: "save", Dimension: Seconds, Most: unlimited, About: "time to write a checkpoint"},
		{Name: "load", Dimension: Seconds, Most: unlimited, About: "time to continue from a checkpoint"},
		{Name: "batch", Integer: true, Least: 1, Most: 1 << 30,
			About: "samples of each GPU in a step, for gangs on several types"},
	}},
	{Jobs, []Column{
		text("name", "name of the job"),
		text("kind", "name of its kind"),
		{Name: "arrival", Dimension: Seconds, Needed: true, Most: unlimited,
			About: "time of arrival; rows must be in this order"},
		{Name: "work", Needed: true, Least: math.SmallestNonzeroFloat64, Most: unlimited, About: "steps"},
		{Name: "gpus", Needed: true, Integer: true, Least: 1, Most: maxCount, About: "GPUs, all at the same time"},
		{Name: "cpus", Most: maxCount, About: "CPU cores for each GPU"},
		{Name: "memory", Dimension: Bytes, Most: unlimited, plausible: 1e4, About: "host memory for each GPU"},
		{Name: "network", Dimension: ByteRate, Most: unlimited,
			About: "traffic of each GPU while the job spans machines"},
		{Name: "priority", Most: 1, About: "0 to 1; 1 is the most urgent"},
		{Name: "estimate", Least: math.SmallestNonzeroFloat64, Most: unlimited,
			About: "steps that the policies see instead of work"},
		{Name: "estimate_error", Least: 1e-6, Most: 5,
			About: "standard deviation of the logarithm of the error of a random estimate, instead of estimate"},
	}},
	{Speeds, []Column{
		text("kind", "name of a kind"),
		text("gpu_type", "name of a type of GPU"),
		{Name: "gpus", Needed: true, Integer: true, Least: 1, Most: maxGavelGPUs, About: "number of GPUs"},
		{Name: "speed", Dimension: StepRate, Needed: true, Most: unlimited, plausible: leastSpeed,
			About: "all GPUs in one machine; 0: does not run there, but may run over several machines"},
		{Name: "spread_speed", Dimension: StepRate, Most: unlimited, plausible: leastSpeed,
			About: "over several machines; missing: does not run there"},
	}},
	{Pairs, []Column{
		text("kind", "name of a kind"),
		text("other", "name of the kind that shares its GPUs"),
		text("gpu_type", "name of a type of GPU"),
		{Name: "gpus", Needed: true, Integer: true, Least: 1, Most: maxGavelGPUs,
			About: "number of GPUs that both use"},
		{Name: "speed", Dimension: StepRate, Needed: true, Most: unlimited, plausible: leastSpeed, About: "of kind"},
		{Name: "other_speed", Dimension: StepRate, Needed: true, Most: unlimited, plausible: leastSpeed,
			About: "of other"},
	}},
	{Curves, []Column{
		text("kind", "name of a kind that has a batch"),
		text("gpu_type", "name of a type of GPU"),
		{Name: "samples", Needed: true, Least: math.SmallestNonzeroFloat64, Most: 1 << 30,
			About: "samples of a step on one GPU; ascending"},
		{Name: "seconds", Dimension: Seconds, Needed: true, Least: math.SmallestNonzeroFloat64, Most: unlimited,
			About: "time of the step"},
	}},
}

// Tables returns the names of all tables.
func Tables() []Table {
	var list []Table
	for _, t := range tables {
		list = append(list, t.name)
	}
	return list
}

// Columns returns the columns of a table, nil for an unknown table.
func Columns(t Table) []Column {
	i := tableIndex(string(t))
	if i < 0 {
		return nil
	}
	return slices.Clone(tables[i].columns)
}

func tableIndex(name string) int {
	for i, t := range tables {
		if string(t.name) == name {
			return i
		}
	}
	return -1
}

// cell is a value of a row: string, float64, int64 or bool. nil and "" are missing.
type cell struct {
	column string
	value  any
	line   int
}

// row is a row of a source before its cells are checked.
type row struct {
	source string
	line   int
	table  int // index into tables
	cells  []cell
}

// record is a checked row: for each column, its text or its number. A missing text is "", and a missing number is NaN.
type record struct {
	source string
	line   int
	texts  []string
	number []float64
}

// check converts a row. ok is false if a needed cell is missing or a cell is invalid; the faults are in f.
func (r *row) check(f *faults) (out record, ok bool) {
	columns := tables[r.table].columns
	out = record{source: r.source, line: r.line, texts: make([]string, len(columns)),
		number: make([]float64, len(columns))}
	for i := range out.number {
		out.number[i] = math.NaN()
	}
	if most := len(columns) + spareCells; len(r.cells) > most {
		f.add(r.source, r.line, "row of table "+string(tables[r.table].name), fmt.Sprintf("%d cells", len(r.cells)),
			fmt.Sprintf("at most one for each of the %d columns", len(columns)))
		return out, false
	}
	ok = true
	seen, invalid := make([]bool, len(columns)), make([]bool, len(columns))
	for _, c := range r.cells {
		i := slices.IndexFunc(columns, func(k Column) bool { return k.Name == c.column })
		if i < 0 {
			f.add(r.source, c.line, "column of table "+string(tables[r.table].name), quote(c.column),
				"one of "+columnNames(r.table))
			ok = false
			continue
		}
		if seen[i] {
			f.add(r.source, c.line, r.what(i), "the column a second time", "each column once")
			ok = false
			continue
		}
		if seen[i] = true; c.value == nil {
			continue
		}
		if s, is := c.value.(string); is && strings.TrimSpace(s) == "" {
			continue
		}
		got, want := "", ""
		if columns[i].Text {
			out.texts[i], got, want = textOf(c.value)
		} else {
			out.number[i], got, want = columns[i].numberOf(c.value)
		}
		if want != "" {
			f.add(r.source, c.line, r.what(i), got, want)
			ok, invalid[i] = false, true
		}
	}
	for i, c := range columns {
		if c.Needed && !invalid[i] && out.texts[i] == "" && math.IsNaN(out.number[i]) {
			f.add(r.source, r.line, r.what(i), "none", c.want())
			ok = false
		}
	}
	return out, ok
}

// what returns the text for a cell in error messages: its table, the name of its row if there is one, and its column.
func (r *row) what(column int) string {
	name := strings.TrimSuffix(string(tables[r.table].name), "s")
	for _, c := range r.cells {
		if s, ok := c.value.(string); ok && c.column == "name" && s != "" {
			name += " " + quote(s)
		}
	}
	return name + ": " + tables[r.table].columns[column].Name
}

func columnNames(table int) string {
	var names []string
	for _, c := range tables[table].columns {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}

// show formats a value of a source for a fault.
func show(v any) string {
	if s, ok := v.(string); ok {
		return quote(s)
	}
	return quote(fmt.Sprint(v))
}

const maxName = 200

func textOf(v any) (s, got, want string) {
	s, ok := v.(string)
	s = strings.TrimSpace(s)
	if !ok || len(s) > maxName || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return "", show(v), fmt.Sprintf("a text of at most %d bytes without control characters", maxName)
	}
	return s, "", ""
}

// want describes the valid values of a column.
func (c *Column) want() string {
	if c.Text {
		return "a text: " + c.About
	}
	limits := ""
	switch {
	case c.Least == math.SmallestNonzeroFloat64:
		limits = " above 0"
	case c.Most == unlimited:
		limits = fmt.Sprintf(" of at least %v", c.Least)
	default:
		limits = fmt.Sprintf(" from %v to %v", c.Least, c.Most)
	}
	kind := c.Dimension.want()
	if c.Integer {
		kind = "an integer"
	}
	return kind + limits
}

func (c *Column) numberOf(v any) (x float64, got, want string) {
	switch v := v.(type) {
	case float64:
		x = v
	case int64:
		x = float64(v)
	case string:
		var err error
		if x, err = Quantity(v, c.Dimension); err != nil {
			return math.NaN(), show(v), c.want()
		}
	default:
		return math.NaN(), show(v), c.want()
	}
	if !(x >= c.Least && x <= c.Most) || c.Integer && x != math.Trunc(x) {
		return math.NaN(), show(v), c.want()
	}
	if x > 0 && x < c.plausible {
		return math.NaN(), show(v) + ", which is " + fmt.Sprintf("%v %s", x, units[c.Dimension][0].name),
			fmt.Sprintf("at least %v %s, or 0: is the unit missing?", c.plausible, units[c.Dimension][0].name)
	}
	return x, "", ""
}
