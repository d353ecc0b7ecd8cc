package replica

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/plan"
)

// EachWeight calls f with the values of each parameter, in plain order. Call it between two steps. The values are valid
// only during the call of f.
func (r *Replica) EachWeight(f func(name string, values []float32)) error {
	return r.each(r.state.Values, r.state.Params.Params, f)
}

// EachGradient calls f with the gradient of each trained parameter in the last step: values times factor is the
// gradient of the mean loss over all ranks, before clipping. Otherwise it is like EachWeight.
func (r *Replica) EachGradient(f func(name string, values []float32, factor float64)) error {
	return r.each(r.gradients(), r.trained(), func(name string, values []float32) { f(name, values, r.unscaled) })
}

// gradients returns the buffer with the sum of the gradients of all micro-batches.
func (r *Replica) gradients() device.Buffer {
	if r.opts.Accumulation > 1 {
		return r.sum
	}
	return r.state.Grads
}

func (r *Replica) each(flat device.Buffer, params []plan.ParamInfo, f func(name string, values []float32)) error {
	var values []float32
	for _, p := range params {
		err := r.state.View(flat, p, func(data []byte) error {
			values = values[:0]
			for ; len(data) >= 4; data = data[4:] {
				values = append(values, math.Float32frombits(binary.LittleEndian.Uint32(data)))
			}
			f(p.Name, values)
			return nil
		})
		if err != nil {
			return fmt.Errorf("values of %s: %w", p.Name, err)
		}
	}
	return nil
}
