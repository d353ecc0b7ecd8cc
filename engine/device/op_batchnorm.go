package device

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Batch normalisation consists of several ops, because ranks may have to exchange statistics in between:
//
//	forward   BatchNormStats, exchange, BatchNormMerge, BatchNormApply
//	backward  BatchNormDiffReduce, exchange, BatchNormDiffApply
//
// Statistics are computed over groups of Group samples ("ghost" batch normalisation). Group 0 means one group, the
// whole batch. n is the number of elements of a channel in a group, and var is the biased variance. With x̂ = (x -
// mean) / sqrt(var + eps) and z = gamma·x̂ + beta [+ residual]:
//
//	y  = ReLU ? max(z, 0) : z
//	dz = (diff_y [+ diff_y2]) · (ReLU ? z > 0 : 1)
//	diff_gamma = sum(dz·x̂)   diff_beta = sum(dz)   over a group's samples and pixels
//	diff_x = gamma/sqrt(var + eps) · (dz - diff_beta/n - x̂·diff_gamma/n)
//
// x is (N, C, H, W). x, y, residual and their gradients have one type; all other operands are f32 (f64 if x is f64).

// BatchNormStats computes the statistics of a batch.
//
//	in   x (N, C, H, W)
//	out  mean (G, C); var (G, C), biased
type BatchNormStats struct{ Group int }

// BatchNormMerge merges the statistics of several ranks into the statistics of all their samples, by Chan's formula. It
// uses only f64 operations, in the order written here, and rounds each operation. The results are therefore bit-equal
// on all ranks. For each channel:
//
//	n = mean = m2 = 0;  for each rank r with k = samples[r] > 0, from 0 on:
//	    t = n + k;  d = stats[r, 0] - mean;  mean = mean + d·k/t;  m2 = (m2 + stats[r, 1]·k) + d·d·n·k/t;  n = t
//	var = m2/n
//
// Products are evaluated from left to right. The row of a rank without samples is ignored. The formula does not need
// the number of pixels, because every sample has the same number of pixels.
//
//	in   stats (R, 2, C): mean and biased variance of each rank; samples (R), i32, not all 0
//	out  mean (1, C); var (1, C), biased
type BatchNormMerge struct{}

// BatchNormApply normalises. If mean and var are running statistics, they have shape (C).
//
//	in   x (N, C, H, W); mean (G, C) or (C); var likewise; gamma (C); beta (C); [residual (N, C, H, W)] if Add
//	out  y (N, C, H, W); [mask, opaque: where z > 0] if ReLU and Add
type BatchNormApply struct {
	Group     int
	Eps       float64
	ReLU, Add bool
}

// BatchNormDiffReduce computes the gradients of gamma and beta as sums over each group.
//
//	in   x (N, C, H, W); mean (G, C); var (G, C); gamma (C); beta (C); diff_y; [diff_y2] if Two; [mask of BatchNormApply] if ReLU and Add
//	out  diff_gamma (G, C); diff_beta (G, C); [dz (N, C, H, W)] if Add or Two
//
// Without a mask, z > 0 is recomputed from x with the arithmetic of the forward op. dz is also the gradient of the
// residual.
type BatchNormDiffReduce struct {
	Group          int
	Eps            float64
	ReLU, Add, Two bool
}

// BatchNormDiffApply computes the gradient of x.
//
//	in   x (N, C, H, W); mean (G, C); var (G, C); gamma (C); beta (C); dz; diff_gamma (G, C); diff_beta (G, C)
//	out  diff_x (N, C, H, W)
//
// If ReLU is set, the caller passes diff_y as dz, because BatchNormDiffReduce returned no dz; this op then applies the
// ReLU mask. If diff_gamma and diff_beta are sums over several ranks, Count is n of a full group over these ranks. If
// Count is 0, n is computed from the shape of x.
type BatchNormDiffApply struct {
	Group int
	Eps   float64
	ReLU  bool
	Count int64
}

// BatchNormRunning updates running statistics r from the statistics of the batch: r += Momentum·(batch - r). The
// variance is unbiased (n/(n-1) if n > 1), and groups are averaged with equal weight. A channel whose batch statistics
// are not finite stays unchanged: a step with a NaN is skipped and must not change the running statistics. The results
// must be bit-equal on all kinds of devices. The op therefore uses only f64 operations, in the order written here, and
// rounds only the result to f32. Let u(n) = n/(n-1), and u(1) = 1. For each channel:
//
//	m = v = 0;  for each group g from 0 on: m = m + mean[g];  v = v + var[g]·u(Counts[g])
//	running_mean += Momentum·(m/G - running_mean);  running_var += Momentum·(v/G - running_var)
//
//	in   running_mean (C); running_var (C); mean (G, C); var (G, C)
//	out  running_mean (C); running_var (C): in place
//
// Counts[g] is the number of samples times the number of pixels of group g.
type BatchNormRunning struct {
	Momentum float64
	Counts   []int64
}

// Kind implements Op.
func (BatchNormStats) Kind() string { return "batch_norm_stats" }

// Kind implements Op.
func (BatchNormMerge) Kind() string { return "batch_norm_merge" }

// Kind implements Op.
func (BatchNormApply) Kind() string { return "batch_norm_apply" }

// Kind implements Op.
func (BatchNormDiffReduce) Kind() string { return "batch_norm_diff_reduce" }

// Kind implements Op.
func (BatchNormDiffApply) Kind() string { return "batch_norm_diff_apply" }

// Kind implements Op.
func (BatchNormRunning) Kind() string { return "batch_norm_running" }

// Groups returns the number of statistics groups of n samples, for groups of the given size (0: one group).
func Groups(n, group int) int {
	if group <= 0 || group >= n {
		return 1
	}
	return (n + group - 1) / group
}

// GroupCounts returns, for each group of an image batch (N, C, H, W), the number of samples times the number of pixels.
func GroupCounts(x tensor.Shape, group int) []int64 {
	n, pixels := x[0], int64(x[2]*x[3])
	g := Groups(n, group)
	if g == 1 {
		return []int64{int64(n) * pixels}
	}
	counts := make([]int64, g)
	for i := range counts {
		counts[i] = int64(min(group, n-i*group)) * pixels
	}
	return counts
}

// channelVectors checks mean, var, gamma and beta at in[1:5] against x at in[0].
func channelVectors(op Op, in []TensorSpec, group int, running bool) error {
	if err := wantDims(op, "x", in[0], 4); err != nil {
		return err
	}
	n, c := in[0].Shape[0], in[0].Shape[1]
	g, dt := Groups(n, group), weightType(in[0].DType)
	for i, name := range []string{"mean", "var", "gamma", "beta"} {
		s := in[1+i]
		if err := wantType(op, name, s, dt); err != nil {
			return err
		}
		if i >= 2 || (running && len(s.Shape) == 1) {
			if err := wantShape(op, name, s, c); err != nil {
				return err
			}
		} else if err := wantShape(op, name, s, g, c); err != nil {
			return err
		}
	}
	return nil
}

// sameAs checks that an operand has the shape and type of x.
func sameAs(op Op, name string, got, x TensorSpec) error {
	return firstError(wantShape(op, name, got, x.Shape...), wantType(op, name, got, x.DType))
}

// Infer implements Op.
func (op BatchNormStats) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 1); err != nil {
		return nil, err
	}
	if err := wantDims(op, "x", in[0], 4); err != nil {
		return nil, err
	}
	s := Spec(weightType(in[0].DType), Groups(in[0].Shape[0], op.Group), in[0].Shape[1])
	return []TensorSpec{s, s}, nil
}

// Infer implements Op.
func (op BatchNormMerge) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 2); err != nil {
		return nil, err
	}
	if err := firstError(wantDims(op, "stats", in[0], 3),
		wantType(op, "stats", in[0], tensor.F32, tensor.F64)); err != nil {
		return nil, err
	}
	ranks, channels := in[0].Shape[0], in[0].Shape[2]
	err := firstError(wantShape(op, "stats", in[0], ranks, 2, channels), wantShape(op, "samples", in[1], ranks),
		wantType(op, "samples", in[1], tensor.I32))
	s := Spec(in[0].DType, 1, channels)
	return []TensorSpec{s, s}, err
}

// Infer implements Op.
func (op BatchNormApply) Infer(in []TensorSpec) ([]TensorSpec, error) {
	want := 5
	if op.Add {
		want = 6
	}
	if err := operands(op, in, want); err != nil {
		return nil, err
	}
	if err := channelVectors(op, in, op.Group, true); err != nil {
		return nil, err
	}
	if op.Add {
		if err := sameAs(op, "residual", in[5], in[0]); err != nil {
			return nil, err
		}
	}
	out := []TensorSpec{Spec(in[0].DType, in[0].Shape...)}
	if op.Add && op.ReLU {
		out = append(out, TensorSpec{DType: tensor.Opaque})
	}
	return out, nil
}

// Infer implements Op.
func (op BatchNormDiffReduce) Infer(in []TensorSpec) ([]TensorSpec, error) {
	want := 6
	if op.Two {
		want++
	}
	if op.ReLU && op.Add {
		want++
	}
	if err := operands(op, in, want); err != nil {
		return nil, err
	}
	if err := firstError(channelVectors(op, in, op.Group, false), sameAs(op, "diff_y", in[5], in[0])); err != nil {
		return nil, err
	}
	if op.Two {
		if err := sameAs(op, "diff_y2", in[6], in[0]); err != nil {
			return nil, err
		}
	}
	if op.ReLU && op.Add {
		if err := wantType(op, "mask", in[want-1], tensor.Opaque); err != nil {
			return nil, err
		}
	}
	s := Spec(weightType(in[0].DType), in[1].Shape...)
	out := []TensorSpec{s, s}
	if op.Add || op.Two {
		out = append(out, Spec(in[0].DType, in[0].Shape...))
	}
	return out, nil
}

// Infer implements Op.
func (op BatchNormDiffApply) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 8); err != nil {
		return nil, err
	}
	err := firstError(channelVectors(op, in, op.Group, false), sameAs(op, "dz", in[5], in[0]),
		wantShape(op, "diff_gamma", in[6], in[1].Shape...), wantShape(op, "diff_beta", in[7], in[1].Shape...))
	if err != nil {
		return nil, err
	}
	return []TensorSpec{Spec(in[0].DType, in[0].Shape...)}, nil
}

// Parameters implements Parametric.
func (op BatchNormRunning) Parameters() any {
	return struct {
		BatchNormRunning
		Groups int
	}{op, len(op.Counts)}
}

// Infer implements Op.
func (op BatchNormRunning) Infer(in []TensorSpec) ([]TensorSpec, error) {
	if err := operands(op, in, 4); err != nil {
		return nil, err
	}
	if err := wantDims(op, "mean", in[2], 2); err != nil {
		return nil, err
	}
	g, c := in[2].Shape[0], in[2].Shape[1]
	if len(op.Counts) != g {
		return nil, fmt.Errorf("batch_norm_running: got %d counts, want one for each of the %d groups", len(op.Counts),
			g)
	}
	err := firstError(wantShape(op, "running_mean", in[0], c), wantShape(op, "running_var", in[1], c),
		wantShape(op, "var", in[3], g, c))
	return []TensorSpec{Spec(in[0].DType, c), Spec(in[1].DType, c)}, err
}

// Aliases implements Aliaser.
func (BatchNormRunning) Aliases() []Alias { return []Alias{{Out: 0, In: 0}, {Out: 1, In: 1}} }
