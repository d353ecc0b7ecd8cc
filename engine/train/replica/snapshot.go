package replica

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/plan"
)

// Tensors returns the tensors of a checkpoint: parameters and statistics, then the optimizer state. They have plain
// layout and the names of the model. A tensor's values are read from the device when the tensor is written.
func (r *Replica) Tensors() (model, optimizer []checkpoint.Tensor) {
	params := r.state.Params
	for _, p := range params.Params {
		model = append(model, r.tensor(r.state.Values, p, p.Name))
	}
	for _, p := range params.States {
		model = append(model, r.tensor(r.state.States, p, p.Name))
	}
	for _, m := range r.optim.Moments() {
		for _, p := range r.trained() {
			optimizer = append(optimizer, r.tensor(m.Flat, p, momentName(m.Name, p.Name)))
		}
	}
	if r.mean != nil {
		for _, p := range r.trained() {
			optimizer = append(optimizer, r.tensor(r.mean.Values().Buffer, p, checkpoint.AverageName(p.Name)))
		}
		for _, p := range params.States {
			if !p.Frozen {
				optimizer = append(optimizer, r.tensor(r.mean.States().Buffer, p, checkpoint.AverageName(p.Name)))
			}
		}
	}
	return model, optimizer
}

// trained returns the parameters that are trained; only these have moments.
func (r *Replica) trained() []plan.ParamInfo {
	params := r.state.Params.Params
	for len(params) > 0 && params[len(params)-1].Frozen {
		params = params[:len(params)-1]
	}
	return params
}

// CanCopy reports whether there is enough host memory for a copy of a checkpoint's tensors. If the limit of the process
// is unknown, CanCopy also requires memory for a second copy, as a reserve. Kernels of further shares reserve addresses
// that the account lacks, so CanCopy also measures the addresses that are left.
func (r *Replica) CanCopy() bool {
	if r.copied != nil {
		return true
	}
	if host := r.opts.Host; host != nil && host.AddressesLeft != nil {
		if left, limited := host.AddressesLeft(); limited && left < r.copyBytes() {
			return false
		}
	}
	if left, known := r.reserved.Left(); known {
		return r.copyBytes() <= left
	}
	if r.state.Values.Host() == nil {
		return true // activations are in device memory, so host memory is free
	}
	used, _ := r.dev.Memory()
	return 2*r.copyBytes() < r.dev.Info().MemoryBytes-used
}

// copyBytes returns the host memory of Copies: the tensors of a checkpoint.
func (r *Replica) copyBytes() int64 {
	params := r.state.Params
	bytes := params.Bytes + int64(len(r.optim.Moments()))*params.TrainBytes + params.StateBytes
	for _, average := range r.averages() {
		bytes += average.Bytes
	}
	return bytes
}

// Copies returns the same tensors as Tensors, copied to host memory. The next call overwrites the copies.
func (r *Replica) Copies() (model, optimizer []checkpoint.Tensor, err error) {
	if r.copied == nil {
		r.copied = map[string]*bytes.Buffer{}
	}
	model, optimizer = r.Tensors()
	for _, list := range [][]checkpoint.Tensor{model, optimizer} {
		for i := range list {
			to := r.copied[list[i].Name]
			if to == nil {
				to = new(bytes.Buffer)
				to.Grow(tensorBytes(list[i]))
				r.copied[list[i].Name] = to
			}
			to.Reset()
			if err := list[i].Stream(to); err != nil {
				return nil, nil, err
			}
			list[i].Stream = func(w io.Writer) error {
				_, err := w.Write(to.Bytes())
				return err
			}
		}
	}
	return model, optimizer, nil
}

// tensorBytes returns the size of a tensor. A buffer that grows while it is written would use up to twice as much.
func tensorBytes(t checkpoint.Tensor) int {
	return int(t.DType.Size() * t.Shape.Elements())
}

// momentName returns the name of a moment in a checkpoint, such as "fc.weight.momentum".
func momentName(moment, param string) string { return param + "." + moment }

func (r *Replica) tensor(flat device.Buffer, p plan.ParamInfo, name string) checkpoint.Tensor {
	return checkpoint.Tensor{Name: name, DType: p.Spec.DType, Shape: p.Spec.Shape, Stream: func(w io.Writer) error {
		return r.state.View(flat, p, func(data []byte) error {
			_, err := w.Write(data)
			return err
		})
	}}
}

// Load sets parameters, statistics and optimizer state from a checkpoint. If the checkpoint belongs to another model,
// Load changes nothing and returns an error.
func (r *Replica) Load(c *checkpoint.Checkpoint) error {
	model, optimizer := r.Tensors()
	want, averaged := infos(optimizer), c.Averaged()
	switch { // a run may start or stop averaging between checkpoints
	case !averaged:
		want = slices.DeleteFunc(want, checkpoint.Info.IsAverage)
	case r.mean == nil:
		want = append(want,
			slices.DeleteFunc(c.Optimizer.Tensors(), func(i checkpoint.Info) bool { return !i.IsAverage() })...)
	}
	if err := errors.Join(c.Model.Check(infos(model)), c.Optimizer.Check(want)); err != nil {
		return fmt.Errorf("checkpoint %s: %w", c.Path, err)
	}
	if err := r.LoadWeights(c.Model); err != nil {
		return err
	}
	for _, m := range r.optim.Moments() {
		for _, p := range r.trained() {
			if err := r.fill(m.Flat, p, c.Optimizer, momentName(m.Name, p.Name)); err != nil {
				return err
			}
		}
	}
	if r.mean == nil || !averaged {
		return nil // LoadWeights has reset the averages
	}
	return r.loadAverages(c.Optimizer)
}

func (r *Replica) loadAverages(f *checkpoint.File) error {
	for _, p := range r.trained() {
		if err := r.fill(r.mean.Values().Buffer, p, f, checkpoint.AverageName(p.Name)); err != nil {
			return err
		}
	}
	for _, p := range r.state.Params.States {
		if p.Frozen {
			break
		}
		if err := r.fill(r.mean.States().Buffer, p, f, checkpoint.AverageName(p.Name)); err != nil {
			return err
		}
	}
	return nil
}

// averages returns the memory of the averaged weights and statistics, or nil without averages.
func (r *Replica) averages() []device.Region {
	if r.mean == nil {
		return nil
	}
	return []device.Region{r.mean.Values(), r.mean.States()}
}

// resetAverages sets the averages to the current values of the model.
func (r *Replica) resetAverages() error {
	if r.mean == nil {
		return nil
	}
	return r.mean.Reset(r.stream)
}

// ExchangeAverages swaps the model's weights and statistics with the averages. A second call swaps them back.
func (r *Replica) ExchangeAverages() error { return r.mean.Exchange(r.stream) }

// LoadWeights sets parameters and statistics from a safetensors file, and resets the averages. If the file belongs to
// another model, the error lists the differences.
func (r *Replica) LoadWeights(f *checkpoint.File) error {
	model, _ := r.Tensors()
	if err := f.Check(infos(model)); err != nil {
		return err
	}
	for _, p := range r.state.Params.Params {
		if err := r.fill(r.state.Values, p, f, p.Name); err != nil {
			return err
		}
	}
	for _, p := range r.state.Params.States {
		if err := r.fill(r.state.States, p, f, p.Name); err != nil {
			return err
		}
	}
	return r.resetAverages()
}

func (r *Replica) fill(flat device.Buffer, p plan.ParamInfo, from *checkpoint.File, name string) error {
	data := make([]byte, p.Spec.Shape.Elements()*p.Spec.DType.Size())
	if err := from.ReadInto(name, data); err != nil {
		return err
	}
	return r.state.Write(flat, p, data)
}

func infos(ts []checkpoint.Tensor) []checkpoint.Info {
	out := make([]checkpoint.Info, len(ts))
	for i, t := range ts {
		out[i] = t.Info()
	}
	return out
}
