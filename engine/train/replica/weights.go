package replica

import (
	"errors"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/plan"
)

// FillWeights sets parameters and statistics with the function read, and resets the averages. The function must fill
// dst with the values of tensor t: plain layout, little endian, in the tensor's element type. If read returns false,
// the tensor stays unchanged.
func (r *Replica) FillWeights(read func(t checkpoint.Info, dst []byte) (bool, error)) error {
	fill := func(flat device.Buffer, infos []plan.ParamInfo) error {
		for _, p := range infos {
			t := checkpoint.Tensor{Name: p.Name, DType: p.Spec.DType, Shape: p.Spec.Shape}.Info()
			data := make([]byte, t.Bytes())
			found, err := read(t, data)
			if err != nil {
				return err
			}
			if !found {
				continue
			}
			if err := r.state.Write(flat, p, data); err != nil {
				return err
			}
		}
		return nil
	}
	return errors.Join(fill(r.state.Values, r.state.Params.Params), fill(r.state.States, r.state.Params.States),
		r.resetAverages())
}
