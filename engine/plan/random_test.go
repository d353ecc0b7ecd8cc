package plan

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// composer builds a network from a script, which is a list of numbers. Each node reads any of the existing values. Both
// passes can therefore read a value any number of times, in any order. The same script gives the same parameters for
// any number of samples, in training and in evaluation.
type composer struct {
	*graph.Graph
	script  []int
	compute tensor.DType
	n       int // samples
	ids     *graph.Value
	key     *graph.Value
	images  []*graph.Value // (N, C, H, W) of type compute
	used    map[int]bool   // indices of the images that a node reads
	weights []*graph.Value // weights of convolutions
}

// scripts generates scripts that are long enough for the largest networks. rapid shrinks their numbers towards zero.
func scripts() *rapid.Generator[[]int] { return rapid.SliceOfN(rapid.IntRange(0, 59), 100, 100) }

// choose returns a number from low to high, which the next number of the script determines. After the end of the
// script, it returns low.
func (c *composer) choose(low, high int) int {
	if len(c.script) == 0 {
		return low
	}
	next := c.script[0]
	c.script = c.script[1:]
	return low + next%(high-low+1)
}

func (c *composer) flip() bool { return c.choose(0, 1) == 1 }

func chosen[T any](c *composer, from []T) T { return from[c.choose(0, len(from)-1)] }

// image chooses one of the last four images.
func (c *composer) image() *graph.Value {
	return c.take(c.choose(max(0, len(c.images)-4), len(c.images)-1))
}

func (c *composer) take(i int) *graph.Value {
	c.used[i] = true
	return c.images[i]
}

// like chooses an image that has the shape of x. It may choose x itself.
func (c *composer) like(x *graph.Value) *graph.Value {
	var same []int
	for i, v := range c.images {
		if v.Shape.Equal(x.Shape) {
			same = append(same, i)
		}
	}
	return c.take(chosen(c, same))
}

func (c *composer) param(shape ...int) *graph.Value {
	return c.Param(fmt.Sprint("p", len(c.Params)), graph.Init{Kind: graph.Interval, A: -0.8, B: 1}, shape...)
}

// classifier builds a network and its loss.
func (c *composer) classifier(training bool) {
	c.ids, c.key = c.Input("ids", tensor.I64, c.n), c.Input("key", tensor.U32, 2)
	h, w := c.choose(1, 5), c.choose(1, 5)
	bytes := c.Input("bytes", tensor.U8, c.n, h, w, 2)
	c.images = append(c.images, c.ImageNormalize("normalize", bytes, []float32{0.4, 0.6}, []float32{0.5, 0.25},
		c.compute))
	for i := range c.choose(5, 16) {
		kind := chosen(c, kinds)
		if y := kind.add(c, fmt.Sprint(kind.name, i), c.image(), training); y != nil {
			c.images = append(c.images, y)
		}
	}
	for i, v := range c.images {
		if c.choose(0, 5) == 0 {
			c.Output(fmt.Sprint("v", i), v)
		}
	}
	x := c.GlobalAvgPool("pool", c.take(len(c.images)-1))
	for i, v := range c.images {
		if dead := c.choose(0, 9) == 9; !dead && !c.used[i] {
			x = c.Concat(fmt.Sprint("head", i), 1, x, c.GlobalAvgPool(fmt.Sprint("pool", i), v))
		}
	}
	logits := c.Linear("fc", x, c.param(3, x.Shape[1]), c.param(3), c.ParamType())
	loss, position := c.SoftmaxCrossEntropy("loss", logits, c.Input("labels", tensor.I32, c.n), 0.1)
	c.Output("loss", loss)
	c.Output("position", position)
	if training {
		c.Differentiate(loss, c.Input("scale", c.ParamType(), 1))
	}
}

// kinds lists the layers of a network. If x does not suit a layer, add returns nil.
var kinds = []struct {
	name string
	add  func(c *composer, name string, x *graph.Value, training bool) *graph.Value
}{
	{"conv", (*composer).conv},
	{"conv", (*composer).conv}, // listed twice, so that it is chosen twice as often
	{"norm", (*composer).norm},
	{"norm", (*composer).norm},
	{"unary", func(c *composer, name string, x *graph.Value, _ bool) *graph.Value {
		f := chosen(c, []device.UnaryFunc{device.ReLU, device.Tanh, device.GELU, device.Square, device.Neg})
		return c.Unary(name, f, x)
	}},
	{"binary", func(c *composer, name string, x *graph.Value, _ bool) *graph.Value {
		b := c.like(x)
		if c.flip() {
			b = c.as(c.param(x.Shape[1], 1, 1))
		}
		return c.Binary(name, chosen(c, []device.BinaryFunc{device.Add, device.Sub, device.Mul}), x, b)
	}},
	{"max", func(c *composer, name string, x *graph.Value, training bool) *graph.Value {
		if x.Shape[2] < 2 || x.Shape[3] < 2 {
			return nil
		}
		return c.MaxPool2D(name, x, [2]int{2, 2}, window(c.choose(1, 2), 1, 1, 0, 1, 1), training)
	}},
	{"average", func(c *composer, name string, x *graph.Value, _ bool) *graph.Value {
		return c.AvgPool2D(name, x, [2]int{2, 1}, window(1, c.choose(1, 2), 1, 0, 1, 1), c.flip())
	}},
	{"concat", func(c *composer, name string, x *graph.Value, _ bool) *graph.Value {
		if x.Shape[1] > 4 {
			return nil
		}
		return c.Concat(name, 1, x, c.like(x))
	}},
	{"slice", func(c *composer, name string, x *graph.Value, _ bool) *graph.Value {
		return c.Slice(name, x, 1, c.choose(0, x.Shape[1]-1), 1)
	}},
	{"pad", func(c *composer, name string, x *graph.Value, _ bool) *graph.Value {
		return c.Apply(name, device.Pad{Axis: 3, Start: 1, Size: x.Shape[3] + 1}, x)[0]
	}},
	{"transpose", func(c *composer, name string, x *graph.Value, _ bool) *graph.Value {
		return c.Transpose(name, x, 0, 1, 3, 2)
	}},
	{"reshape", func(c *composer, name string, x *graph.Value, _ bool) *graph.Value {
		s := x.Shape
		return c.Reshape(name, x, s[0], s[1], s[3], s[2])
	}},
	{"dropout", func(c *composer, name string, x *graph.Value, training bool) *graph.Value {
		if !training {
			return x
		}
		return c.Dropout(name, x, c.ids, c.key, 0.3, uint32(len(c.images)))
	}},
	{"mean", func(c *composer, name string, x *graph.Value, _ bool) *graph.Value {
		mean := c.Reduce(name, device.Mean, x, 2, 3)
		return c.Apply(name+" repeated", device.Broadcast{Shape: slices.Clone(x.Shape), Axes: []int{2, 3}}, mean)[0]
	}},
}

// as returns p in the compute type.
func (c *composer) as(p *graph.Value) *graph.Value {
	if p.DType == c.compute {
		return p
	}
	return c.Cast(p.Name+" low", p, c.compute)
}

func (c *composer) conv(name string, x *graph.Value, _ bool) *graph.Value {
	win := window(c.choose(1, 2), 1, 1, c.choose(0, 1), 1, c.choose(1, 2))
	fits := func(w *graph.Value) bool {
		return w.Shape[1] == x.Shape[1] && x.Shape[2]+2 >= w.Shape[2] &&
			x.Shape[3]+2*win.Padding[1] > win.Dilation[1]*(w.Shape[3]-1)
	}
	var known []*graph.Value
	for _, w := range c.weights {
		if fits(w) {
			known = append(known, w)
		}
	}
	if len(known) > 0 && c.flip() {
		return c.Conv2D(name, x, chosen(c, known), nil, win, 1)
	}
	if x.Shape[1]%2 == 0 && c.flip() {
		return c.Conv2D(name, x, c.param(4, x.Shape[1]/2, 1, 1), c.param(4), win, 2)
	}
	w := c.param(c.choose(1, 5), x.Shape[1], c.choose(1, 3), c.choose(1, 3))
	if !fits(w) {
		return c.Conv2D(name, x, c.param(2, x.Shape[1], 1, 1), nil, win, 1) // w remains a parameter without a gradient
	}
	c.weights = append(c.weights, w)
	if c.flip() {
		return c.Conv2D(name, x, w, c.param(w.Shape[0]), win, 1)
	}
	return c.Conv2D(name, x, w, nil, win, 1)
}

func (c *composer) norm(name string, x *graph.Value, training bool) *graph.Value {
	channels := x.Shape[1]
	bn := graph.BatchNorm{Gamma: c.param(channels), Beta: c.param(channels), Eps: 1e-2, Momentum: 0.2,
		UseRunning:  !training,
		RunningMean: c.State(name+" mean", graph.Const(0), channels),
		RunningVar:  c.State(name+" var", graph.Const(1), channels),
		ReLU:        c.flip(), Group: c.choose(0, 3)}
	if c.flip() {
		bn.Residual = c.like(x)
	}
	return c.BatchNorm(name, x, bn)
}
