package ingest

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Dimension is the quantity that a number measures. It determines the valid units.
type Dimension int

const (
	Count      Dimension = iota // no unit
	Bytes                       // base unit: byte
	ByteRate                    // byte/s
	FLOPRate                    // FLOP/s
	Seconds                     // s
	Celsius                     // degrees Celsius
	Fraction                    // 1
	StepRate                    // steps/s
	dimensions = iota
)

// unit is the name of a unit, and its size in base units. The size is in size if it is at least 1, else it is 1/per.
// Division by per can be exact where multiplication by 1/per is not.
type unit struct {
	name      string
	size, per float64
}

var units = [dimensions][]unit{
	Count: nil,
	Bytes: {
		{"B", 1, 0}, {"kB", 1e3, 0}, {"MB", 1e6, 0}, {"GB", 1e9, 0}, {"TB", 1e12, 0}, {"PB", 1e15, 0},
		{"KiB", 1 << 10, 0}, {"MiB", 1 << 20, 0}, {"GiB", 1 << 30, 0}, {"TiB", 1 << 40, 0}, {"PiB", 1 << 50, 0},
	},
	ByteRate: {
		{"B/s", 1, 0}, {"kB/s", 1e3, 0}, {"MB/s", 1e6, 0}, {"GB/s", 1e9, 0}, {"TB/s", 1e12, 0},
		{"KiB/s", 1 << 10, 0}, {"MiB/s", 1 << 20, 0}, {"GiB/s", 1 << 30, 0}, {"TiB/s", 1 << 40, 0},
		{"kbit/s", 1e3 / 8, 0}, {"Mbit/s", 1e6 / 8, 0}, {"Gbit/s", 1e9 / 8, 0}, {"Tbit/s", 1e12 / 8, 0},
	},
	FLOPRate: {{"FLOP/s", 1, 0}, {"MFLOP/s", 1e6, 0}, {"GFLOP/s", 1e9, 0}, {"TFLOP/s", 1e12, 0}, {"PFLOP/s", 1e15, 0},
		{"GFLOPS", 1e9, 0}, {"TFLOPS", 1e12, 0}, {"PFLOPS", 1e15, 0}},
	Seconds:  {{"s", 1, 0}, {"ms", 0, 1e3}, {"min", 60, 0}, {"h", 3600, 0}, {"d", 86400, 0}},
	Celsius:  {{"C", 1, 0}, {"°C", 1, 0}},
	Fraction: {{"%", 0, 100}},
	StepRate: {{"steps/s", 1, 0}, {"/s", 1, 0}, {"steps/min", 0, 60}, {"steps/h", 0, 3600}},
}

// Units returns the names of the units of a dimension, the base unit first.
func (d Dimension) Units() []string {
	var names []string
	for _, u := range units[d] {
		names = append(names, u.name)
	}
	return names
}

// want describes the valid numbers of a dimension, for an error.
func (d Dimension) want() string {
	switch d {
	case Count:
		return "a number without a unit"
	case Fraction:
		return "a number, or a percentage such as 35 %"
	}
	return "a number in " + units[d][0].name + ", or a number with one of the units " + strings.Join(d.Units(), ", ")
}

// Quantity reads a number with an optional unit, such as "16 GiB" or "16GiB", and returns it in the base unit. A number
// without a unit is in the base unit. NaN and infinite numbers are errors.
func Quantity(text string, d Dimension) (float64, error) {
	text = strings.TrimSpace(text)
	end := strings.LastIndexAny(text, "0123456789.") + 1
	// The number ends with the last digit: digits can belong to the exponent, but never to a unit.
	number, name := strings.TrimSpace(text[:end]), strings.TrimSpace(text[end:])
	x, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsInf(x, 0) || math.IsNaN(x) || strings.ContainsAny(number, "xXpP_") {
		return 0, fmt.Errorf("got %s, want %s", quote(text), d.want())
	}
	if name == "" {
		return x, nil
	}
	i := slices.IndexFunc(units[d], func(u unit) bool { return u.name == name })
	if i < 0 {
		return 0, fmt.Errorf("got %s, want %s", quote(text), d.want())
	}
	if u := units[d][i]; u.per > 0 {
		x /= u.per
	} else {
		x *= u.size
	}
	if math.IsInf(x, 0) {
		return 0, fmt.Errorf("got %s, want a finite number", quote(text))
	}
	return x, nil
}
