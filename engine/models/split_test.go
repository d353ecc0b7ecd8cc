package models_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/models/bert"
	"github.com/hetero-train/hetero-train/engine/models/gpt2"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/nn/random"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// share computes the losses and gradients of the given samples on a device. It pads the samples to the given number of
// positions. All dropouts are active.
func share(t *testing.T, dev device.Device, model models.Language, samples []int, positions int) (loss float64,
	grads map[string][]float64) {
	t.Helper()
	n := len(samples)
	g, err := graph.Build(func(g *graph.Graph) {
		net := &nn.Net{Graph: g, Training: true, Compute: tensor.F32, IDs: g.Input("ids", tensor.I64, n),
			Key: g.Input("key", tensor.U32, 2)}
		p := model(net, models.Tokens{Tokens: g.Input("tokens", tensor.I32, n, positions),
			Lengths: g.Input("lengths", tensor.I32, n)})
		l, _ := g.LinearCrossEntropy("loss", p.Rows, p.Weight, g.Input("labels", tensor.I32, n*positions), p.Bias)
		g.Output("loss", l)
		g.Differentiate(l, g.Input("scale", tensor.F32, 1))
	})
	if err != nil {
		t.Fatal(err)
	}
	in := map[string][]float64{"key": {7, 9}, "scale": {1.0 / 32}}
	for _, s := range samples {
		length := 3 + 4*s%9
		in["ids"], in["lengths"] = append(in["ids"], float64(1<<33+s)), append(in["lengths"], float64(length))
		for p := range positions {
			token, label := random.New(1, "tokens").Bits(uint64(100*s+p))%31, -1.0
			if p < length {
				label = float64(random.New(1, "labels").Bits(uint64(100*s+p)) % 31)
			}
			in["tokens"], in["labels"] = append(in["tokens"], float64(token)), append(in["labels"], label)
		}
	}
	cache := plan.NewCache(dev)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p, err := plan.Compile(cache, g, nil)
	check(err)
	state, err := plan.NewState(cache, p.Params())
	check(err)
	stream, err := dev.NewStream()
	check(err)
	arena, err := dev.Alloc(p.ArenaBytes())
	check(err)
	check(p.Bind(device.Whole(arena), state))
	for _, info := range state.Params.Params {
		v, s := make([]float64, info.Spec.Shape.Elements()), random.New(3, info.Name)
		for i := range v {
			v[i] = s.Gaussian(uint64(i), info.Init.A, 0.1)
		}
		check(state.Write(state.Values, info, reference.Encode(tensor.F32, v)))
	}
	for _, info := range state.Params.States {
		check(state.Write(state.States, info, reference.Encode(tensor.F32, *info.Init.Values)))
	}
	for _, input := range g.Inputs {
		at, spec, err := p.Input(input.Name)
		check(err)
		copy(at.Host(), reference.Encode(spec.DType, in[input.Name]))
	}
	check(errors.Join(p.Prepare(stream), p.Forward(stream), p.Backward(stream), stream.Sync()))
	at, spec, err := p.Output("loss")
	check(err)
	for _, l := range reference.Decode(spec.DType, at.Host()) {
		loss += l
	}
	grads = map[string][]float64{}
	for _, info := range state.Params.Params {
		raw := make([]byte, info.Spec.Shape.Elements()*4)
		check(state.Read(state.Grads, info, raw))
		grads[info.Name] = reference.Decode(tensor.F32, raw)
	}
	check(errors.Join(stream.Close(), p.Close(), arena.Free(), state.Close(), cache.Close()))
	return loss, grads
}

// TestSharesAddUpToTheBatch compares shares of a batch with the whole batch. Dropout is active, and depends only on
// samples, positions and layers. The sums of losses and gradients over the shares must therefore equal those of the
// batch, even if a share is padded to another length. Sums of f32 in another order differ by a few times 1e-7 of their
// norm. One different element in a dropout mask changes the sums by far more than 1e-5.
func TestSharesAddUpToTheBatch(t *testing.T) {
	for name, model := range map[string]models.Language{
		"gpt2": gpt2.Build(gpt2.Size{Vocabulary: 31, Positions: 16, Layers: 2, Heads: 2, Channels: 16},
			gpt2.Options{EmbeddingDropout: 0.1, AttentionDropout: 0.2, ResidualDropout: 0.3}),
		"bert": bert.Build(bert.Size{Vocabulary: 31, Positions: 16, Segments: 2, Layers: 2, Heads: 2, Channels: 16},
			bert.Options{HiddenDropout: 0.2, AttentionDropout: 0.3}),
	} {
		for _, open := range []func(t *testing.T) device.Device{
			func(*testing.T) device.Device { return reference.New() }, openCPU} {
			dev := open(t)
			t.Run(fmt.Sprintf("%s/%s", name, dev.Info().Kind), func(t *testing.T) {
				whole, want := share(t, dev, model, []int{0, 1, 2, 3, 4}, 13)
				var sum float64
				got := map[string][]float64{}
				for _, part := range []struct {
					samples   []int
					positions int
				}{{[]int{0}, 12}, {[]int{1, 2, 3}, 16}, {[]int{4}, 13}} {
					loss, grads := share(t, dev, model, part.samples, part.positions)
					sum += loss
					for k, v := range grads {
						if got[k] == nil {
							got[k] = make([]float64, len(v))
						}
						for i := range v {
							got[k][i] += v[i]
						}
					}
				}
				if d := sum/whole - 1; !(d < 1e-6 && d > -1e-6) {
					t.Errorf("got loss %.9g, want %.9g", sum, whole)
				}
				all := 0.0
				for _, v := range want {
					all = max(all, norm(v))
				}
				for k, v := range want {
					diff := make([]float64, len(v))
					for i := range v {
						diff[i] = got[k][i] - v[i]
					}
					if d := norm(diff); !(d <= 1e-5*norm(v)+1e-7*all) {
						t.Errorf("gradient of %s differs by %g of %g", k, d, norm(v))
					}
				}
			})
		}
	}
}
