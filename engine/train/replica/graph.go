package replica

import (
	"cmp"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// graphOf describes the graph of a pass.
type graphOf struct {
	training   bool
	samples    int
	total      int // samples of the micro-batch over all ranks; 0: Options.MicroBatch
	recomputed int // number of the first layers whose activations the backward pass recomputes
	positions  int // number of positions of a sample; 0: all
}

// graph builds the graph of a pass.
func (o Options) graph(of graphOf) (*graph.Graph, error) {
	learns, training, n := o.Task, of.training, of.samples
	if of.positions > 0 {
		learns = learns.(task.Shortener).Shorten(of.positions)
	}
	return graph.Build(func(g *graph.Graph) {
		if o.Compute == tensor.F64 {
			g.UseF64()
		}
		g.Freeze(o.Freeze.Holds)
		net := &nn.Net{Graph: g, Training: training, Compute: o.Compute, GhostGroup: o.GhostGroup}
		if training {
			net.IDs, net.Key = g.Input(data.IDs, tensor.I64, n), g.Input(keyInput, tensor.U32, 2)
			net.Sync = o.Peers.statistics(g, cmp.Or(of.total, o.MicroBatch()))
		}
		logits := o.logits || !training && o.Task.Report().Classes > 0
		out := learns.Graph(net, n, logits)
		loss, weights := out.Loss, (*graph.Value)(nil)
		if training && o.ClassWeights != nil {
			weights = g.Input(classWeightInput, g.ParamType(), out.Loss.Shape[0])
			loss = g.Binary("weighted loss", device.Mul, out.Loss, weights)
		}
		g.Output("loss", loss)
		g.Output("position", out.Position)
		if logits {
			g.Output("logits", out.Logits)
		}
		if out.SampleLoss != nil {
			g.Output(sampleLoss, out.SampleLoss)
			g.Output(samplePosition, out.SamplePosition)
		}
		if training {
			g.Recompute(of.recomputed)
			terms := []graph.Term{{Loss: out.Loss, Scale: g.Input(scaleInput, g.ParamType(), 1), Weights: weights}}
			if out.SampleLoss != nil {
				terms = append(terms,
					graph.Term{Loss: out.SampleLoss, Scale: g.Input(sampleScaleInput, g.ParamType(), 1)})
			}
			g.DifferentiateTerms(terms...)
		}
	})
}

// statistics returns the exchange for batch normalisation over the samples of all ranks. It returns nil if each rank
// uses its own samples.
func (p *Peers) statistics(g *graph.Graph, micro int) *graph.Ranks {
	if p == nil || !p.SyncNorm {
		return nil
	}
	size := p.Group.Size()
	return &graph.Ranks{Rank: p.Group.Rank(), Count: size, Samples: g.Input(gradsync.SamplesInput, tensor.I32, size),
		Total: micro}
}

// Check returns an error if the graph of the task cannot be built. It does not need a device.
func (o Options) Check() error {
	g, err := o.graph(graphOf{training: true, samples: o.MicroBatch()})
	if err != nil {
		return err
	}
	return o.Freeze.Check(g)
}

// BatchStatistics returns the name of a value that the model computes over a micro-batch and keeps, such as a running
// mean of batch normalisation. It returns "" if there is none; the result of a step then does not depend on
// Accumulation. It does not need a device.
func (o Options) BatchStatistics() (string, error) {
	g, err := o.graph(graphOf{training: true, samples: o.MicroBatch()})
	if err != nil {
		return "", err
	}
	for _, s := range g.States {
		if !s.Frozen {
			return s.Name, nil
		}
	}
	return "", nil
}

// movesStatistics reports whether a pass computes statistics over samples, such as those of batch normalisation.
func movesStatistics(g *graph.Graph) bool {
	for _, s := range g.States {
		if !s.Frozen {
			return true
		}
	}
	return false
}
