package nn_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// twoBlocks returns a network of three layers. The parameters that match f are frozen.
func twoBlocks(t *testing.T, f nn.Freeze, training bool) *graph.Graph {
	t.Helper()
	g, err := graph.Build(func(g *graph.Graph) {
		g.Freeze(f.Holds)
		net := &nn.Net{Graph: g, Training: training, Compute: tensor.F32}
		x := net.BatchNorm("bn1", net.Conv2D("conv1", g.Input("x", tensor.F32, 2, 3, 4, 4), nn.Conv{Out: 4, Kernel: 1}),
			nn.Norm{ReLU: true})
		net.NextLayer()
		x = net.BatchNorm("layer1.0.bn1", net.Conv2D("layer1.0.conv1", x, nn.Conv{Out: 4, Kernel: 1}),
			nn.Norm{ReLU: true})
		net.NextLayer()
		net.Logits("fc", net.GlobalAvgPool("pool", x), 2)
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestPatternsFreezeParametersAndModules(t *testing.T) {
	stem, block := "conv1.weight bn1.weight bn1.bias", "layer1.0.conv1.weight layer1.0.bn1.weight layer1.0.bn1.bias"
	for _, c := range []struct {
		freeze nn.Freeze
		want   string
	}{
		{nn.Freeze{}, ""},
		{nn.Freeze{Patterns: []string{"conv1"}}, "conv1.weight"}, // does not match layer1.0.conv1
		{nn.Freeze{Patterns: []string{"layer1"}}, block},
		{nn.Freeze{Patterns: []string{"layer1.*"}}, block},
		{nn.Freeze{Patterns: []string{"layer[12]", "bn1"}}, "bn1.weight bn1.bias " + block},
		{nn.Freeze{Patterns: []string{"*.bias"}}, "bn1.bias layer1.0.bn1.bias fc.bias"},
		{nn.Freeze{Patterns: []string{"*bn?"}}, "bn1.weight bn1.bias layer1.0.bn1.weight layer1.0.bn1.bias"},
		{nn.Freeze{Layers: 1}, stem},
		{nn.Freeze{Layers: 2, Patterns: []string{"fc.bias"}}, stem + " " + block + " fc.bias"},
	} {
		g := twoBlocks(t, c.freeze, true)
		var got []string
		for _, p := range g.Params {
			if p.Frozen {
				got = append(got, p.Name)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: got %v, want %s", c.freeze, got, c.want)
		}
		if err := c.freeze.Check(g); err != nil {
			t.Errorf("%+v: %v", c.freeze, err)
		}
	}
}

func TestFrozenNormalisationUsesAndKeepsItsStatistics(t *testing.T) {
	g := twoBlocks(t, nn.Freeze{Patterns: []string{"bn1", "layer1.0.bn1.bias"}}, true)
	var updated []string
	for _, n := range g.Nodes {
		if n.Op.Kind() == "batch_norm_running" {
			updated = append(updated, n.In[0].Name)
		}
	}
	if want := []string{"layer1.0.bn1.running_mean"}; !slices.Equal(updated, want) {
		// a normalisation must update its statistics even if one of its parameters is frozen
		t.Errorf("got updates of %v, want %v", updated, want)
	}
	order := func(g *graph.Graph) (names []string) {
		for _, s := range g.States {
			names = append(names, s.Name)
		}
		return names
	}
	if a, b := order(g),
		order(twoBlocks(t, nn.Freeze{Patterns: []string{"bn1", "layer1.0.bn1.bias"}}, false)); !slices.Equal(a, b) {
		t.Errorf("states lie as %v in training, as %v in evaluation", a, b)
	}
}

func TestWhatCannotBeFrozenIsSaid(t *testing.T) {
	for _, c := range []struct {
		freeze    nn.Freeze
		want      string
		unmatched string
	}{
		{nn.Freeze{Patterns: []string{"bn1", "layer2"}}, `pattern "layer2" matches no parameter`, "layer2"},
		{nn.Freeze{Patterns: []string{"conv1.bias"}}, `pattern "conv1.bias" matches no parameter`, "conv1.bias"},
		{nn.Freeze{Patterns: []string{"layer["}}, `pattern "layer[": syntax error`, ""},
		{nn.Freeze{Layers: 3}, "got 3 layers, want fewer than the 3 of the model", ""},
		{nn.Freeze{Patterns: []string{"*"}}, "no parameter can be trained", ""},
	} {
		err := c.freeze.Check(twoBlocks(t, c.freeze, true))
		var fault *nn.FreezeError
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.want) || fault.Unmatched != c.unmatched {
			t.Errorf("%+v: got %v, want %q", c.freeze, err, c.want)
		}
		if c.unmatched != "" && (!slices.Contains(fault.Names, "layer1.0.bn1.bias") ||
			!slices.Contains(fault.Names, "layer1.0") || !slices.Contains(fault.Names, "layer1")) {
			t.Errorf("%+v: got the names %v, want parameters and the modules that hold them", c.freeze, fault.Names)
		}
	}
}
