package divide

import "math"

// Worth is the value of a rank for the group.
type Worth struct {
	With, Without float64 // s with the best shares; +Inf if the other ranks cannot hold the batch
}

// Loss returns by how much a step becomes longer without the rank, as a fraction of the step. exposed is the time of a
// step in which ranks only communicate, in s; NaN means unknown and counts as 0. Loss assumes that exposed is the same
// without the rank.
func (w Worth) Loss(exposed float64) float64 {
	if math.IsNaN(exposed) {
		exposed = 0
	}
	return (w.Without - w.With) / (w.With + exposed)
}

// Marginal returns the worth of every rank. It compares the shortest step with the rank and the shortest step without
// it.
func Marginal(b Batch, curves []Curve) ([]Worth, error) {
	scaled := Plain(curves)
	best, err := SolveScaled(b, scaled)
	if err != nil {
		return nil, err
	}
	with, _ := Slowest(curves, best)
	out := make([]Worth, len(curves))
	b.Limits = b.Capacities(len(curves))
	for r, limit := range b.Limits {
		b.Limits[r] = 0
		out[r] = Worth{With: with, Without: math.Inf(1)}
		if without, err := SolveScaled(b, scaled); err == nil {
			out[r].Without, _ = Slowest(curves, without)
		}
		b.Limits[r] = limit
	}
	return out, nil
}
