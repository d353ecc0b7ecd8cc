package plan

import (
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// A device with the op computes the loss over a vocabulary and its gradient together, unless another node reads the
// loss, or the factor of the loss is computed.
func TestTheLossOverAVocabularyIsComputedWithItsGradient(t *testing.T) {
	const both, loss, diff = "linear_cross_entropy_both", "linear_cross_entropy", "linear_cross_entropy_diff"
	for _, c := range []struct {
		name            string
		refused         bool // the device lacks the op
		read            bool // another node reads the loss
		computed, alone bool // the factor is computed; there is no gradient
		want            []string
	}{
		{name: "gradient", want: []string{both}},
		{name: "no such op", refused: true, want: []string{loss, diff}},
		{name: "another reader", read: true, want: []string{loss, diff}},
		{name: "computed factor", computed: true, want: []string{loss, diff}},
		{name: "no gradient", alone: true, want: []string{loss}},
	} {
		g, err := graph.Build(func(g *graph.Graph) {
			x, w := g.Param("x", graph.Normal(1), 6, 4), g.Param("w", graph.Normal(1), 5, 4)
			y, _ := g.LinearCrossEntropy("loss", x, w, g.Input("labels", tensor.I32, 6), nil)
			g.Output("loss", y)
			if c.read {
				g.Output("square", g.Unary("square", device.Square, y))
			}
			scale := g.Input("scale", tensor.F32, 1)
			if c.computed {
				scale = g.Unary("scale again", device.Square, scale)
			}
			if !c.alone {
				g.Differentiate(y, scale)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		dev := newParticular()
		dev.refuse = func(op device.Op, _, _ []device.TensorSpec) bool { return c.refused && op.Kind() == both }
		cache := NewCache(dev)
		p, err := Compile(cache, g, nil)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var got []string
		for _, l := range p.Launches() {
			if slices.Contains([]string{both, loss, diff}, l.Op.Kind()) {
				got = append(got, l.Op.Kind())
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
		if err := p.Free(); err != nil {
			t.Error(err)
		}
		if err := cache.Close(); err != nil {
			t.Error(err)
		}
	}
}
