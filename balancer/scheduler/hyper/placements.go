package hyper

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// placement is a [Placement] as JSON. NaN has no JSON form, so a number that is not known is null.
type placement struct {
	Kind        string   `json:"kind"`
	Class       string   `json:"class"`
	Priority    *float64 `json:"priority"`
	GPUs        *float64 `json:"gpus"`
	CPUs        *float64 `json:"cpus"`
	Memory      *float64 `json:"memory"`
	Network     *float64 `json:"network"`
	Model       string   `json:"gpu"`
	GPUMemory   *float64 `json:"gpu_memory"`
	Bandwidth   *float64 `json:"gpu_bandwidth"`
	Compute     *float64 `json:"gpu_compute"`
	Utilization *float64 `json:"gpu_utilization"`
	Efficiency  *float64 `json:"efficiency"`
}

func known(x float64) *float64 {
	if math.IsNaN(x) {
		return nil
	}
	return &x
}

func value(x *float64) float64 {
	if x == nil {
		return math.NaN()
	}
	return *x
}

// WritePlacements writes placements as JSON lines. A number that is not known is null.
func WritePlacements(w io.Writer, list []Placement) error {
	out := bufio.NewWriter(w)
	encoder := json.NewEncoder(out)
	for i := range list {
		j, g := &list[i].Job, &list[i].GPU
		if err := encoder.Encode(placement{
			j.Kind, j.Class, known(j.Priority), known(j.GPUs), known(j.CPUs), known(j.Memory), known(j.Network),
			g.Model, known(g.Memory), known(g.Bandwidth), known(g.Compute), known(g.Utilization), known(list[i].Efficiency),
		}); err != nil {
			return fmt.Errorf("placement %d: %w", i, err)
		}
	}
	return out.Flush()
}

// ReadPlacements reads the output of WritePlacements. Unknown keys, a missing efficiency and a text that was cut short
// are errors with their line.
func ReadPlacements(r io.Reader) ([]Placement, error) {
	var list []Placement
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	n := 1
	for ; lines.Scan(); n++ {
		var p placement
		decoder := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&p); err != nil {
			return nil, fmt.Errorf("placements: line %d: got %.60q, want a JSON object of a placement: %w", n, lines.Text(), err)
		}
		if decoder.More() {
			return nil, fmt.Errorf("placements: line %d: got text after the object, want one object on each line", n)
		}
		if p.Efficiency == nil || *p.Efficiency < 0 {
			return nil, fmt.Errorf("placements: line %d: efficiency: got %v, want a number of at least 0", n, value(p.Efficiency))
		}
		list = append(list, Placement{
			JobFacts{p.Kind, p.Class, value(p.Priority), value(p.GPUs), value(p.CPUs), value(p.Memory), value(p.Network)},
			GPUFacts{p.Model, value(p.GPUMemory), value(p.Bandwidth), value(p.Compute), value(p.Utilization)}, *p.Efficiency,
		})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("placements: line %d: %w", n, err)
	}
	return list, nil
}
