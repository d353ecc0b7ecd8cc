package reference_test

import (
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// f64 returns an f64 tensor with the given values.
func f64(shape tensor.Shape, values ...float64) devicetest.Tensor {
	return devicetest.Of(tensor.F64, shape, values...)
}

func i32(values ...float64) devicetest.Tensor {
	return devicetest.Of(tensor.I32, tensor.Shape{len(values)}, values...)
}

func window(stride, padding, dilation int) device.Window {
	return device.Window{Stride: [2]int{stride, stride}, Padding: [2]int{padding, padding},
		Dilation: [2]int{dilation, dilation}}
}

type shape = tensor.Shape

// The inputs are small enough to compute the results by hand.
func TestValuesWorkedOutByHand(t *testing.T) {
	oneToNine := f64(shape{1, 1, 3, 3}, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	digits := f64(shape{1, 1, 2, 2}, 1, 10, 100, 1000)
	two := [2]int{2, 2}
	segment := []device.Segment{{Offset: 1, Length: 1, WeightDecay: 0.1, LRScale: 1}}
	control := f64(shape{3}, 0, 1, 1)
	for _, c := range []struct {
		name string
		op   device.Op
		in   tensors
		want [][]float64 // expected outputs; nil: not compared
	}{
		{"conv2d", device.Conv2D{Window: window(1, 0, 1), Groups: 1}, tensors{oneToNine, digits},
			[][]float64{{5421, 6532, 8754, 9865}}},
		{"conv2d dilated", device.Conv2D{Window: window(1, 0, 2), Groups: 1}, tensors{oneToNine, digits},
			[][]float64{{9731}}},
		{"conv2d padded, stride 2", device.Conv2D{Window: window(2, 1, 1), Groups: 1}, tensors{oneToNine, digits},
			[][]float64{{1000, 3200, 7040, 9865}}},
		{"conv2d in groups with bias", device.Conv2D{Window: window(1, 0, 1), Groups: 2},
			tensors{f64(shape{1, 2, 1, 1}, 3, 5), f64(shape{2, 1, 1, 1}, 2, 7), f64(shape{2}, 1, -1)},
			[][]float64{{7, 34}}},
		{"linear", device.Linear{}, tensors{f64(shape{1, 2}, 2, 3), f64(shape{2, 2}, 1, 10, 100, 1000),
			f64(shape{2}, 0.5, 0)}, [][]float64{{32.5, 3200}}},
		{"batch_norm stats", device.BatchNormStats{}, tensors{f64(shape{2, 1, 1, 2}, 1, 3, 5, 9)},
			[][]float64{{4.5}, {8.75}}},
		{"batch_norm stats of groups", device.BatchNormStats{Group: 1}, tensors{f64(shape{2, 1, 1, 2}, 1, 3, 5, 9)},
			[][]float64{{2, 7}, {1, 4}}},
		{"batch_norm apply", device.BatchNormApply{Eps: 1, ReLU: true},
			tensors{f64(shape{2, 1, 1, 1}, 5, -3), f64(shape{1, 1}, 1), f64(shape{1, 1}, 3), f64(shape{1}, 3),
				f64(shape{1}, -1)}, [][]float64{{5, 0}}},
		{"batch_norm running", device.BatchNormRunning{Momentum: 0.1, Counts: []int64{4}},
			tensors{f64(shape{1}, 10), f64(shape{1}, 1), f64(shape{1, 1}, 20), f64(shape{1, 1}, 3)},
			[][]float64{{11}, {1.3}}},
		{"batch_norm running of groups with unlike counts",
			device.BatchNormRunning{Momentum: 0.5, Counts: []int64{4, 2}},
			tensors{f64(shape{1}, 0), f64(shape{1}, 0), f64(shape{2, 1}, 2, 6), f64(shape{2, 1}, 3, 1)},
			[][]float64{{2}, {1.5}}},
		{"batch_norm running keeps a channel whose batch is not finite",
			device.BatchNormRunning{Momentum: 0.5, Counts: []int64{4}},
			tensors{f64(shape{2}, 1, 1), f64(shape{2}, 2, 2), f64(shape{1, 2}, math.NaN(), 3), f64(shape{1, 2}, 3, 3)},
			[][]float64{{1, 2}, {2, 3}}},
		{"batch_norm diff_apply with a count of several ranks", device.BatchNormDiffApply{Eps: 1, Count: 8},
			tensors{f64(shape{1, 1, 1, 1}, 5), f64(shape{1, 1}, 1), f64(shape{1, 1}, 3), f64(shape{1}, 6),
				f64(shape{1}, 0), f64(shape{1, 1, 1, 1}, 10),
				f64(shape{1, 1}, 16), f64(shape{1, 1}, 8)}, [][]float64{{15}}}, // 6/2·(10 - 8/8 - 2·16/8)
		{"max_pool2d: padding never wins", device.MaxPool2D{Window: window(2, 1, 1), Kernel: two},
			tensors{f64(shape{1, 1, 2, 2}, -1, -2, -3, -4)}, [][]float64{{-1, -2, -3, -4}}},
		{"avg_pool2d without padding", device.AvgPool2D{Window: window(2, 1, 1), Kernel: two},
			tensors{f64(shape{1, 1, 2, 2}, 1, 2, 3, 4)}, [][]float64{{1, 2, 3, 4}}},
		{"avg_pool2d with padding", device.AvgPool2D{Window: window(2, 1, 1), Kernel: two, CountPadding: true},
			tensors{f64(shape{1, 1, 2, 2}, 1, 2, 3, 4)}, [][]float64{{0.25, 0.5, 0.75, 1}}},
		{"global_avg_pool", device.GlobalAvgPool{}, tensors{f64(shape{1, 2, 1, 2}, 1, 2, 3, 5)}, [][]float64{{1.5, 4}}},
		// the result is x·Φ(x), with the distribution function Φ of normal numbers
		{"gelu", device.Unary{Func: device.GELU}, tensors{f64(shape{2}, 1, -1)},
			[][]float64{{0.8413447460685429, -0.15865525393145707}}},
		{"gelu_tanh", device.Unary{Func: device.GELUTanh}, tensors{f64(shape{1}, 1)},
			[][]float64{{0.5 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*1.044715))}}},
		{"binary with repetition", device.Binary{Func: device.Sub},
			tensors{f64(shape{2, 2}, 1, 2, 3, 4), f64(shape{2, 1}, 10, 20)}, [][]float64{{-9, -8, -17, -16}}},
		// the first words of Philox are 0.40, 0.88, 0.74 and 0.61 times 2³²
		{"dropout by the first words of Philox", device.Dropout{P: 0.5},
			tensors{f64(shape{1, 4}, 1, 2, 3, 4), devicetest.Of(tensor.I64, shape{1}, 0),
				devicetest.Of(tensor.U32, shape{2}, 0, 0)}, [][]float64{{0, 4, 6, 8}}},
		{"transpose", device.Transpose{Perm: []int{1, 0}}, tensors{f64(shape{2, 3}, 1, 2, 3, 4, 5, 6)},
			[][]float64{{1, 4, 2, 5, 3, 6}}},
		{"concat", device.Concat{Axis: 1}, tensors{f64(shape{2, 1}, 1, 2), f64(shape{2, 2}, 3, 4, 5, 6)},
			[][]float64{{1, 3, 4, 2, 5, 6}}},
		{"slice", device.Slice{Axis: 1, Start: 1, Size: 2}, tensors{f64(shape{2, 3}, 1, 2, 3, 4, 5, 6)},
			[][]float64{{2, 3, 5, 6}}},
		{"pad", device.Pad{Axis: 0, Start: 1, Size: 3}, tensors{f64(shape{1, 2}, 1, 2)},
			[][]float64{{0, 0, 1, 2, 0, 0}}},
		{"reduce to a mean", device.Reduce{Func: device.Mean, Axes: []int{0}}, tensors{f64(shape{2, 2}, 1, 2, 3, 6)},
			[][]float64{{2, 4}}},
		{"reduce to a maximum", device.Reduce{Func: device.Maximum, Axes: []int{1}},
			tensors{f64(shape{2, 2}, -1, -2, 3, 6)}, [][]float64{{-1, 6}}},
		{"broadcast", device.Broadcast{Shape: shape{2, 3}, Axes: []int{0}}, tensors{f64(shape{3}, 1, 2, 3)},
			[][]float64{{1, 2, 3, 1, 2, 3}}},
		{"softmax_cross_entropy", device.SoftmaxCrossEntropy{},
			tensors{f64(shape{3, 2}, 0, math.Log(3), 0, math.Log(3), 1, 1), i32(1, 0, -7)},
			[][]float64{{math.Log(4.0 / 3), math.Log(4), 0}, {0, 1, -1}, {math.Log(4), math.Log(4), 1 + math.Log(2)}}},
		{"softmax_cross_entropy smoothed", device.SoftmaxCrossEntropy{LabelSmoothing: 0.5},
			tensors{f64(shape{1, 2}, 0, math.Log(3)), i32(1)},
			[][]float64{{0.75*math.Log(4.0/3) + 0.25*math.Log(4)}, {0}, nil}},
		// Row 0: the loss is 3/4·log(4/3) + 1/4·log 4, and position is that of the first label. Row 1: the weights are
		// exchanged, so position is that of the second label. Row 2: both labels are equal.
		{"softmax_cross_entropy of mixed samples", device.SoftmaxCrossEntropy{Mixed: true},
			tensors{f64(shape{4, 2}, 0, math.Log(3), 0, math.Log(3), 0, math.Log(3), 1, 1), i32(1, 0, 0, -1),
				i32(0, 1, 0, -5), f64(shape{4}, 0.75, 0.25, 0.25, 0.25)},
			[][]float64{{0.75*math.Log(4.0/3) + 0.25*math.Log(4), 0.75*math.Log(4.0/3) + 0.25*math.Log(4), math.Log(4),
				0}, {0, 0, 1, -1}, nil}},
		{"softmax_cross_entropy of mixed samples smoothed",
			device.SoftmaxCrossEntropy{Mixed: true, LabelSmoothing: 0.5},
			tensors{f64(shape{1, 2}, 0, math.Log(3)), i32(1), i32(0), f64(shape{1}, 0.75)},
			[][]float64{{0.625*math.Log(4.0/3) + 0.375*math.Log(4)}, {0}, nil}},
		{"softmax_cross_entropy diff of mixed samples", device.SoftmaxCrossEntropyDiff{Mixed: true},
			tensors{f64(shape{2, 2}, 0, math.Log(3), 5, 5), i32(1, -1), f64(shape{2}, math.Log(4), 0),
				f64(shape{1}, 10), i32(0, 0), f64(shape{2}, 0.5, 1)},
			[][]float64{{-2.5, 2.5, 0, 0}}},
		{"position: equal scores of lower classes count", device.SoftmaxCrossEntropy{},
			tensors{f64(shape{1, 4}, 1, 1, 1, 2), i32(2)}, [][]float64{nil, {3}, nil}},
		{"softmax_cross_entropy diff", device.SoftmaxCrossEntropyDiff{},
			tensors{f64(shape{2, 2}, 0, math.Log(3), 5, 5), i32(1, -1), f64(shape{2}, math.Log(4), 0),
				f64(shape{1}, 10)}, [][]float64{{2.5, -2.5, 0, 0}}},
		{"image_normalize", device.ImageNormalize{Mean: []float32{0.5, 0}, Std: []float32{0.25, 1}, To: tensor.F64},
			tensors{devicetest.Of(tensor.U8, shape{1, 1, 2, 2}, 255, 51, 0, 255)}, [][]float64{{2, -2, 0.2, 1}}},
		{"sum_squares", device.SumSquares{Chunk: 2}, tensors{f64(shape{3}, 1, 2, 3)}, [][]float64{{5, 9}}},
		{"grad_control", device.GradControl{MaxNorm: 1}, tensors{f64(shape{2}, 9, 16), f64(shape{1}, 0.5)},
			[][]float64{{2.5, float64(float32(0.2)), 1}}},
		{"sgd", device.SGD{Momentum: 0.9, Segments: segment}, tensors{f64(shape{4}, 0.1, 0, 0, 0), control,
			f64(shape{2}, 7, 1), f64(shape{2}, 7, 0.5), f64(shape{2}, 7, 1)},
			[][]float64{{7, 0.85}, {7, 1.5}}},
		{"sgd nesterov", device.SGD{Momentum: 0.9, Nesterov: true, Segments: segment},
			tensors{f64(shape{4}, 0.1, 0, 0, 0), control, f64(shape{2}, 7, 1), f64(shape{2}, 7, 0.5),
				f64(shape{2}, 7, 1)}, [][]float64{{7, 0.805}, {7, 1.5}}},
		// control contains lr, lr/(1-0.5) and sqrt(1-0.75)
		{"adamw, first step", device.AdamW{Beta1: 0.5, Beta2: 0.75, Segments: segment},
			tensors{f64(shape{4}, 0.1, 0.2, 0.5, 0), control, f64(shape{2}, 7, 1), f64(shape{2}, 7, -3),
				f64(shape{2}, 7, 0), f64(shape{2}, 7, 0)},
			[][]float64{{7, 1 - 0.01 + 0.1}, {7, -1.5}, {7, 2.25}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := devicetest.Exec(t, reference.New(), c.op, c.in)
			for i, want := range c.want {
				for j, w := range want {
					// The tolerance covers the factors of optimizers, which are f32 numbers.
					if g := got[i].Values[j]; len(got[i].Values) != len(want) ||
						!(math.Abs(g-w) <= 1e-7*math.Abs(w)+1e-12) {
						t.Errorf("output %d, element %d: got %.12g, want %.12g", i, j, got[i].Values, want)
						break
					}
				}
			}
		})
	}
}

func TestMaxPoolGradientGoesToTheFirstOfEquals(t *testing.T) {
	op := device.MaxPool2D{Window: window(1, 0, 1), Kernel: [2]int{2, 2}, Train: true}
	dev := reference.New()
	out := devicetest.Exec(t, dev, op, tensors{f64(shape{1, 1, 2, 3}, 1, 5, 5, 5, 0, 2)})
	got := devicetest.Exec(t, dev, device.MaxPool2DDiff{MaxPool2D: op, Height: 2, Width: 3},
		tensors{f64(shape{1, 1, 1, 2}, 10, 100), out[1]})
	if want := []float64{0, 110, 0, 0, 0, 0}; !equalValues(got[0].Values, want) {
		t.Errorf("got %v, want %v", got[0].Values, want)
	}
}

func equalValues(a, b []float64) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// TestStrictness makes mistakes that other devices may accept. The reference device must return errors.
func TestStrictness(t *testing.T) {
	dev := reference.New()
	neg := device.Unary{Func: device.Neg}
	spec := []device.TensorSpec{device.Spec(tensor.F32, 4)}
	k, err := dev.Compile(neg, spec, spec)
	if err != nil {
		t.Fatal(err)
	}
	scaleIn := []device.TensorSpec{spec[0], device.Spec(tensor.F32, 1)}
	scaled, err := dev.Compile(device.Scale{}, scaleIn, spec)
	if err != nil {
		t.Fatal(err)
	}
	sgd, err := dev.Compile(device.SGD{}, []device.TensorSpec{spec[0], device.Spec(tensor.F32, 3), spec[0], spec[0]},
		spec)
	if err != nil {
		t.Fatal(err)
	}
	buf, err := dev.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	host, err := dev.AllocHost(64)
	if err != nil {
		t.Fatal(err)
	}
	at := func(offset, n int64) device.Region { return device.Region{Buffer: buf, Offset: offset, Bytes: n} }
	for _, c := range []struct {
		name   string
		launch device.Launch
	}{
		{"an output that partly covers an input",
			device.Launch{Kernel: k, In: []device.Region{at(0, 16)}, Out: []device.Region{at(8, 16)}}},
		{"an output on an input that may not share",
			device.Launch{Kernel: scaled, In: []device.Region{at(0, 16), at(16, 4)}, Out: []device.Region{at(16, 16)}}},
		{"host memory", device.Launch{Kernel: k, In: []device.Region{{Buffer: host, Bytes: 16}},
			Out: []device.Region{at(0, 16)}}},
		{"more memory than the operand has",
			device.Launch{Kernel: k, In: []device.Region{at(0, 32)}, Out: []device.Region{at(32, 16)}}},
		{
			"an update elsewhere", device.Launch{Kernel: sgd,
				In: []device.Region{at(0, 16), at(16, 12), at(28, 16), at(44, 16)}, Out: []device.Region{at(0, 16)}}},
	} {
		if _, err := dev.NewProgram([]device.Step{{Launch: &c.launch}}); err == nil {
			t.Errorf("%s: no error", c.name)
		} else {
			t.Log(err)
		}
	}
	if err := dev.Close(); err == nil {
		t.Error("closing with memory out: no error")
	}
}

func TestLabelBeyondTheLastClassIsAnError(t *testing.T) {
	dev := reference.New()
	in := []device.TensorSpec{device.Spec(tensor.F32, 1, 3), device.Spec(tensor.I32, 1)}
	out, err := device.SoftmaxCrossEntropy{}.Infer(in)
	if err != nil {
		t.Fatal(err)
	}
	k, err := dev.Compile(device.SoftmaxCrossEntropy{}, in, out)
	if err != nil {
		t.Fatal(err)
	}
	l := device.Launch{Kernel: k}
	for i, s := range append(in, out...) {
		b, err := dev.Alloc(s.Size())
		if err != nil {
			t.Fatal(err)
		}
		if s.DType == tensor.I32 && i == 1 {
			copy(b.Host(), reference.Encode(tensor.I32, []float64{3}))
		}
		if i < len(in) {
			l.In = append(l.In, device.Whole(b))
		} else {
			l.Out = append(l.Out, device.Whole(b))
		}
	}
	p, err := dev.NewProgram([]device.Step{{Launch: &l}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(p); err == nil {
		t.Error("label 3 of 3 classes: no error")
	}
}
