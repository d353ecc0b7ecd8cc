package models_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/nn"
)

// pieces is a model that cuts its activations (N·T, C) into columns and concatenates them again.
func pieces(columns int) models.Language {
	return func(net *nn.Net, in models.Tokens) models.Prediction {
		g, table := net.Graph, net.Table("table", 31, columns, 0.5)
		x := net.Rows(g.Embedding("embedding", in.Tokens, graph.Tables{Weight: table}, net.Compute))
		var parts []*graph.Value
		for i := range columns {
			parts = append(parts, g.Unary(fmt.Sprint("piece ", i), graph.Tanh, g.Slice(fmt.Sprint("cut ", i), x, 1, columns-1-i, 1)))
		}
		return models.Prediction{Rows: net.Projection("hidden", g.Concat("join", 1, parts...), columns, 0.5), Weight: table}
	}
}

// Devices limit the inputs of a kernel, and a model of one's own needs more of them.
func TestOwnModelsGiveEqualGradientsOnEveryDevice(t *testing.T) {
	for name, model := range map[string]models.Language{"40 values in one concat": pieces(40), "300 values in one concat": pieces(300)} {
		t.Run(name, func(t *testing.T) {
			compare(t, model, reference.New(), openCPU(t))
		})
	}
}

// compare requires equal losses and gradients of a model on two devices, up to the order of f32 sums.
func compare(t *testing.T, model models.Language, one, other device.Device) {
	t.Helper()
	loss, want := share(t, one, model, []int{0, 1, 2}, 13)
	got, grads := share(t, other, model, []int{0, 1, 2}, 13)
	if !(math.Abs(got/loss-1) < 1e-6) {
		t.Errorf("got loss %.9g, want %.9g", got, loss)
	}
	for name, v := range want {
		diff := make([]float64, len(v))
		for i := range v {
			diff[i] = grads[name][i] - v[i]
		}
		if d := norm(diff); !(norm(v) > 1e-4 && d <= 1e-5*norm(v)) {
			t.Errorf("gradient of %s differs by %g of %g", name, d, norm(v))
		}
	}
}
