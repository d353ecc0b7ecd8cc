package replica

import (
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn/random"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// initialize sets parameters and statistics. Each value is a function of the seed, the tensor's name and the
// position.
func (r *Replica) initialize() error {
	if r.opts.Planning {
		return nil
	}
	scratch := make([]byte, r.largestValues())
	set := func(flat device.Buffer, infos []plan.ParamInfo) error {
		for _, p := range infos {
			if err := r.state.Write(flat, p, initialValues(p, r.opts.Seed, scratch)); err != nil {
				return err
			}
		}
		return nil
	}
	return errors.Join(set(r.state.Values, r.state.Params.Params), set(r.state.States, r.state.Params.States),
		r.resetAverages())
}

// largestValues returns the bytes of the largest parameter or statistic in plain layout.
func (r *Replica) largestValues() (most int64) {
	for _, list := range [][]plan.ParamInfo{r.state.Params.Params, r.state.Params.States} {
		for _, p := range list {
			most = max(most, p.Spec.Shape.Elements()*int64(p.Spec.DType.Size()))
		}
	}
	return most
}

// initialValues writes the initial values of a tensor to scratch and returns them: plain layout, little endian. They
// are computed in double precision and rounded to the tensor's type. All CPUs compute pieces of a large tensor; a value
// depends only on its index.
func initialValues(p plan.ParamInfo, seed uint64, scratch []byte) []byte {
	const piece = 1 << 16 // elements: about 2 ms
	n := int(p.Spec.Shape.Elements())
	size := int(p.Spec.DType.Size())
	s, out := random.New(seed, p.Name), scratch[:n*size]
	var next atomic.Int64
	fill := func() {
		for {
			from := int(next.Add(piece)) - piece
			if from >= n {
				return
			}
			initialPiece(p, s, from, out[from*size:min(from+piece, n)*size])
		}
	}
	var others sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), (n+piece-1)/piece) - 1 {
		others.Go(fill)
	}
	fill()
	others.Wait()
	return out
}

// initialPiece writes initial values to out, beginning with the value at index `from`.
func initialPiece(p plan.ParamInfo, s random.Stream, from int, out []byte) {
	size := int(p.Spec.DType.Size())
	for at := 0; at < len(out); at += size {
		i, v := uint64(from+at/size), p.Init.A
		switch p.Init.Kind {
		case graph.Gaussian:
			v = s.Gaussian(i, p.Init.A, p.Init.B)
		case graph.Given:
			v = (*p.Init.Values)[i]
		case graph.Interval:
			v = s.Between(i, p.Init.A, p.Init.B)
		}
		if p.Spec.DType == tensor.F64 {
			binary.LittleEndian.PutUint64(out[at:], math.Float64bits(v))
		} else {
			binary.LittleEndian.PutUint32(out[at:], math.Float32bits(float32(v)))
		}
	}
}
