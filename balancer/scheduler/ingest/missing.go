package ingest

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Missing is a column whose number is missing in some rows.
type Missing struct {
	Table  Table
	Column string
	Rows   int    // rows that lack it
	Of     int    // rows
	First  string // name of the first row that lacks it
	Needed bool   // the simulator needs it: see Data.Fill
}

// String returns one line.
func (m Missing) String() string {
	s := fmt.Sprintf("%s.%s: missing in %d of %d rows (first: %s)", m.Table, m.Column, m.Rows, m.Of, quote(m.First))
	if m.Needed {
		s += "; the simulator needs this figure"
	}
	return s
}

// figure is a number of a table that may be missing.
type figure struct {
	table  Table
	column string
	needed bool
	// rows returns the number of rows; at returns the name of a row and its number.
	rows func(*Data) int
	at   func(d *Data, i int) (string, *float64)
}

var figures = []figure{
	{GPUTypes, "memory", true, typeRows, func(d *Data, i int) (string, *float64) {
		return d.Cluster.Types[i].Name, &d.Cluster.Types[i].Memory
	}},
	{GPUTypes, "bandwidth", false, typeRows, func(d *Data, i int) (string, *float64) {
		return d.Cluster.Types[i].Name, &d.Cluster.Types[i].Bandwidth
	}},
	{GPUTypes, "compute", false, typeRows, func(d *Data, i int) (string, *float64) {
		return d.Cluster.Types[i].Name, &d.Cluster.Types[i].Compute
	}},
	{Machines, "cpus", true, machineRows, func(d *Data, i int) (string, *float64) {
		return d.Cluster.Machines[i].Name, &d.Cluster.Machines[i].CPUs
	}},
	{Machines, "memory", true, machineRows, func(d *Data, i int) (string, *float64) {
		return d.Cluster.Machines[i].Name, &d.Cluster.Machines[i].Memory
	}},
	{Machines, "network", false, machineRows, func(d *Data, i int) (string, *float64) {
		return d.Cluster.Machines[i].Name, &d.Cluster.Machines[i].Network
	}},
	{GPUs, "utilization", false, gpuRows, func(d *Data, i int) (string, *float64) {
		return d.Cluster.GPUs[i].Name, &d.Cluster.GPUs[i].Utilization
	}},
	{GPUs, "temperature", false, gpuRows, func(d *Data, i int) (string, *float64) {
		return d.Cluster.GPUs[i].Name, &d.Cluster.GPUs[i].Temperature
	}},
	{Kinds, "gpu_memory", true, kindRows, func(d *Data, i int) (string, *float64) {
		return d.Workload.Kinds[i].Name, &d.Workload.Kinds[i].GPUMemory
	}},
	{Kinds, "save", true, kindRows, func(d *Data, i int) (string, *float64) {
		return d.Workload.Kinds[i].Name, &d.Workload.Kinds[i].Save
	}},
	{Kinds, "load", true, kindRows, func(d *Data, i int) (string, *float64) {
		return d.Workload.Kinds[i].Name, &d.Workload.Kinds[i].Load
	}},
	{Jobs, "cpus", true, jobRows, func(d *Data, i int) (string, *float64) {
		return d.Workload.Jobs[i].Name, &d.Workload.Jobs[i].CPUs
	}},
	{Jobs, "memory", true, jobRows, func(d *Data, i int) (string, *float64) {
		return d.Workload.Jobs[i].Name, &d.Workload.Jobs[i].Memory
	}},
	{Jobs, "network", true, jobRows, func(d *Data, i int) (string, *float64) {
		return d.Workload.Jobs[i].Name, &d.Workload.Jobs[i].Network
	}},
	{Jobs, "priority", true, jobRows, func(d *Data, i int) (string, *float64) {
		return d.Workload.Jobs[i].Name, &d.Workload.Jobs[i].Priority
	}},
}

func typeRows(d *Data) int    { return len(d.Cluster.Types) }
func machineRows(d *Data) int { return len(d.Cluster.Machines) }
func gpuRows(d *Data) int     { return len(d.Cluster.GPUs) }
func kindRows(d *Data) int    { return len(d.Workload.Kinds) }
func jobRows(d *Data) int     { return len(d.Workload.Jobs) }

// missing counts the rows that lack a figure, and calls each for them.
func (f *figure) missing(d *Data, each func(x *float64)) Missing {
	m := Missing{Table: f.table, Column: f.column, Of: f.rows(d), Needed: f.needed}
	for i := range m.Of {
		if name, x := f.at(d, i); math.IsNaN(*x) {
			each(x)
			if m.Rows++; m.Rows == 1 {
				m.First = name
			}
		}
	}
	return m
}

// Missing lists the numbers that are missing in rows, in the order of tables and columns.
func (d *Data) Missing() []Missing {
	var list []Missing
	for _, f := range figures {
		m := f.missing(d, func(*float64) {})
		if m.Rows > 0 {
			list = append(list, m)
		}
	}
	return list
}

// Default is a number that the user gives for all rows in which it is missing.
type Default struct {
	Table  Table
	Column string
	Value  float64
}

// ParseDefault reads "table.column=number", such as "jobs.cpus=4" or "kinds.gpu_memory=8 GiB".
func ParseDefault(text string) (Default, error) {
	key, value, found := strings.Cut(text, "=")
	name, column, dotted := strings.Cut(strings.TrimSpace(key), ".")
	i := slices.IndexFunc(figures, func(f figure) bool { return string(f.table) == name && f.column == column })
	if !found || !dotted || i < 0 {
		var names []string
		for _, f := range figures {
			names = append(names, string(f.table)+"."+f.column)
		}
		return Default{},
			fmt.Errorf("default for missing figures: got %s, want TABLE.COLUMN=NUMBER, where TABLE.COLUMN is one of %s",
				quote(text), strings.Join(names, ", "))
	}
	for _, c := range Columns(Table(name)) {
		if c.Name == column {
			x, got, want := c.numberOf(value)
			if want != "" {
				return Default{}, fmt.Errorf("default of %s.%s: got %s, want %s", name, column, got, want)
			}
			return Default{Table(name), column, x}, nil
		}
	}
	panic("ingest: a figure without a column: " + name + "." + column) // a mistake in the tables of this package
}

// Unlimited returns defaults for traces that state no requested resources. No job needs CPU cores, memory or network,
// checkpoints take no time, and no job is urgent.
func Unlimited() []Default {
	return []Default{{Kinds, "gpu_memory", 0}, {Kinds, "save", 0}, {Kinds, "load", 0},
		{Jobs, "cpus", 0}, {Jobs, "memory", 0}, {Jobs, "network", 0}, {Jobs, "priority", 0}}
}

// Fill replaces missing numbers by defaults, and returns the replaced ones. It never changes a number that a source
// states. If a number has several defaults, the last one counts.
func (d *Data) Fill(defaults []Default) []Missing {
	var filled []Missing
	for _, f := range figures {
		value := math.NaN()
		for _, v := range defaults {
			if v.Table == f.table && v.Column == f.column {
				value = v.Value
			}
		}
		if math.IsNaN(value) {
			continue
		}
		m := f.missing(d, func(x *float64) { *x = value })
		if m.Rows > 0 {
			filled = append(filled, m)
		}
	}
	return filled
}
