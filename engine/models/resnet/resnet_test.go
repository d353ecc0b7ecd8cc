package resnet_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/models/resnet"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// build returns the graph of a model for one image. If training is set, the graph contains the loss and the gradients.
func build(t *testing.T, model models.Classifier, size, classes int, training bool) *graph.Graph {
	t.Helper()
	g, err := graph.Build(func(g *graph.Graph) {
		net := &nn.Net{Graph: g, Training: training, Compute: tensor.F32}
		if training {
			net.IDs, net.Key = g.Input("ids", tensor.I64, 1), g.Input("key", tensor.U32, 2)
		}
		logits := model(net, g.Input("images", tensor.F32, 1, 3, size, size), classes)
		g.Output("logits", logits)
		if training {
			loss, _ := g.SoftmaxCrossEntropy("loss", logits, g.Input("labels", tensor.I32, 1), 0)
			g.Differentiate(loss, g.Input("scale", tensor.F32, 1))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// inventory lists parameters and states in the form of testdata, as sorted lines such as "param conv1.weight (64, 3, 7,
// 7)".
func inventory(g *graph.Graph) []string {
	var lines []string
	for _, v := range g.Params {
		lines = append(lines, fmt.Sprintf("param %s %v", v.Name, v.Shape))
	}
	for _, v := range g.States {
		lines = append(lines, fmt.Sprintf("state %s %v", v.Name, v.Shape))
	}
	slices.Sort(lines)
	return lines
}

func golden(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "#") })
}

// wantLines reports each line that is in only one of the two lists.
func wantLines(t *testing.T, got, want []string) {
	t.Helper()
	for _, l := range got {
		if !slices.Contains(want, l) {
			t.Errorf("got %q, which the golden file lacks", l)
		}
	}
	for _, l := range want {
		if !slices.Contains(got, l) {
			t.Errorf("lacks %q of the golden file", l)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %d parameters and states, want %d", len(got), len(want))
	}
}

func TestParametersAndStatesAreTorchvisions(t *testing.T) {
	for name, depth := range resnet.Family {
		t.Run(name, func(t *testing.T) {
			for _, training := range []bool{true, false} {
				wantLines(t, inventory(build(t, resnet.Build(depth, resnet.Options{}), 64, 1000, training)),
					golden(t, name))
			}
		})
	}
}

func TestParameterCountsArePublished(t *testing.T) {
	for _, c := range []struct {
		name    string
		classes int
		want    int64
	}{
		{"resnet18", 1000, 11_689_512},
		{"resnet34", 1000, 21_797_672},
		{"resnet50", 1000, 25_557_032},
		{"resnet101", 1000, 44_549_160},
		{"resnet152", 1000, 60_192_808},
		{"resnet50", 10, 23_528_522}, // 990 classes fewer, each with 2,048 weights and a bias
	} {
		t.Run(fmt.Sprintf("%s with %d classes", c.name, c.classes), func(t *testing.T) {
			g := build(t, resnet.Build(resnet.Family[c.name], resnet.Options{}), 32, c.classes, false)
			if got := g.ParamCount(); got != c.want {
				t.Errorf("got %d parameters, want %d", got, c.want)
			}
		})
	}
}

// The expected values are the multiply-adds of the forward pass of one 224x224 image. torchvision publishes them as
// "GFLOPS" in the metadata of the weights, and counts a multiply-add once. A training step needs three times as many,
// minus those for the gradient of the images.
func TestArithmeticOfOneImageIsPublished(t *testing.T) {
	for _, c := range []struct {
		name           string
		multiplyAdds   float64 // in 10⁹
		firstConvolved int64   // those of the first convolution: 64·112·112 outputs times 3·7·7 taps
	}{
		{"resnet18", 1.814, 118_013_952},
		{"resnet34", 3.664, 118_013_952},
		{"resnet50", 4.089, 118_013_952},
		{"resnet101", 7.801, 118_013_952},
		{"resnet152", 11.514, 118_013_952},
	} {
		t.Run(c.name, func(t *testing.T) {
			model := resnet.Build(resnet.Family[c.name], resnet.Options{})
			forward := build(t, model, 224, 1000, false).FLOPs()
			if got := float64(forward) / 2e9; math.Abs(got-c.multiplyAdds) > 0.0005 {
				t.Errorf("forward: got %.4f·10⁹ multiply-adds, want %.3f", got, c.multiplyAdds)
			}
			step := build(t, model, 224, 1000, true).FLOPs()
			if want := 3*forward - 2*c.firstConvolved; step != want {
				t.Errorf("training step: got %d FLOP, want %d", step, want)
			}
			if c.name == "resnet50" && math.Abs(float64(step)/1e9-24.3) > 0.05 {
				t.Errorf("training step: got %.2f GFLOP, want 24.3", float64(step)/1e9)
			}
		})
	}
}

// firstReader returns the position of the first node that reads each parameter, in any type.
func firstReader(g *graph.Graph) map[string]int {
	at := map[string]int{}
	for i, n := range g.Nodes {
		for _, in := range n.In {
			if _, seen := at[in.Name]; in.Role == graph.Param && !seen {
				at[in.Name] = i
			}
		}
	}
	return at
}

func TestGradientsFinishInTheReverseOrderOfForward(t *testing.T) {
	for name, depth := range resnet.Family {
		t.Run(name, func(t *testing.T) {
			g := build(t, resnet.Build(depth, resnet.Options{}), 64, 1000, true)
			if len(g.Gradients) != len(g.Params) {
				t.Fatalf("got %d gradients, want one for each of the %d parameters", len(g.Gradients), len(g.Params))
			}
			read := firstReader(g)
			for i, gr := range g.Gradients[1:] {
				if before := g.Gradients[i]; read[gr.Param.Name] > read[before.Param.Name] {
					t.Errorf("gradient of %s comes after that of %s, want it before: forward reads it later",
						gr.Param.Name, before.Param.Name)
				}
			}
			if first, last := g.Gradients[0].Param.Name,
				g.Gradients[len(g.Gradients)-1].Param.Name; first != "fc.weight" || last != "conv1.weight" {
				t.Errorf("got %s … %s, want fc.weight … conv1.weight", first, last)
			}
		})
	}
}

// node finds a node by its name.
func node(t *testing.T, g *graph.Graph, name string) *graph.Node {
	t.Helper()
	for _, n := range g.Nodes {
		if n.Name == name {
			return n
		}
	}
	t.Fatalf("no node %s", name)
	return nil
}

func TestStagesHaveTheResolutionOfThePaper(t *testing.T) {
	for _, c := range []struct {
		name    string
		options resnet.Options
		size    int
		want    map[string]tensor.Shape // shape of the last output of each stage
	}{
		{"imagenet stem, 224 pixels", resnet.Options{}, 224, map[string]tensor.Shape{
			"conv1": {1, 64, 112, 112}, "maxpool": {1, 64, 56, 56}, "layer1.2.bn3": {1, 256, 56, 56},
			"layer2.3.bn3": {1, 512, 28, 28},
			"layer3.5.bn3": {1, 1024, 14, 14}, "layer4.2.bn3": {1, 2048, 7, 7}, "avgpool": {1, 2048}, "fc": {1, 1000}}},
		{"cifar stem, 32 pixels", resnet.Options{CIFARStem: true}, 32, map[string]tensor.Shape{
			"conv1": {1, 64, 32, 32}, "layer1.2.bn3": {1, 256, 32, 32}, "layer2.3.bn3": {1, 512, 16, 16},
			"layer3.5.bn3": {1, 1024, 8, 8}, "layer4.2.bn3": {1, 2048, 4, 4}, "avgpool": {1, 2048}}},
		{"imagenet stem, a single pixel", resnet.Options{}, 1,
			map[string]tensor.Shape{"layer4.2.bn3": {1, 2048, 1, 1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := build(t, resnet.Build(resnet.Family["resnet50"], c.options), c.size, 1000, false)
			for name, want := range c.want {
				if got := node(t, g, name).Out[0].Shape; !got.Equal(want) {
					t.Errorf("%s: got %v, want %v", name, got, want)
				}
			}
		})
	}
}

// In version 1.5 of ResNet, the 3x3 convolution has the stride. In version 1, the 1x1 convolution before it has the
// stride.
func TestBottleneckStridesInItsMiddle(t *testing.T) {
	g := build(t, resnet.Build(resnet.Family["resnet50"], resnet.Options{}), 64, 10, false)
	for name, want := range map[string]int{"layer2.0.conv1": 1, "layer2.0.conv2": 2, "layer2.0.conv3": 1,
		"layer2.0.downsample.0": 2, "layer1.0.downsample.0": 1} {
		if got := node(t, g, name).Op.(device.Conv2D).Stride; got != [2]int{want, want} {
			t.Errorf("%s: got stride %v, want %d", name, got, want)
		}
	}
}

func TestInitialValuesAreTorchvisions(t *testing.T) {
	for _, c := range []struct {
		model   string
		options resnet.Options
		want    map[string]graph.Init
	}{
		{"resnet50", resnet.Options{}, map[string]graph.Init{
			"conv1.weight":          graph.Normal(math.Sqrt(2. / (64 * 7 * 7))), // Kaiming, fan out
			"layer1.0.conv3.weight": graph.Normal(math.Sqrt(2. / 256)),
			"layer4.0.conv2.weight": graph.Normal(math.Sqrt(2. / (512 * 3 * 3))),
			"layer1.0.bn3.weight":   graph.Const(1),
			"layer1.0.bn3.bias":     graph.Const(0),
			"bn1.running_mean":      graph.Const(0),
			"bn1.running_var":       graph.Const(1),
			"fc.weight":             graph.Uniform(1 / math.Sqrt(2048)),
			"fc.bias":               graph.Uniform(1 / math.Sqrt(2048)),
		}},
		{"resnet50", resnet.Options{ZeroInitResidual: true}, map[string]graph.Init{
			"layer1.0.bn3.weight": graph.Const(0), "layer1.0.bn2.weight": graph.Const(1), "bn1.weight": graph.Const(1),
			"layer1.0.downsample.1.weight": graph.Const(1)}},
		{"resnet18", resnet.Options{ZeroInitResidual: true}, map[string]graph.Init{
			"layer1.0.bn2.weight": graph.Const(0), "layer1.0.bn1.weight": graph.Const(1),
			"layer2.0.downsample.1.weight": graph.Const(1)}},
	} {
		g := build(t, resnet.Build(resnet.Family[c.model], c.options), 32, 10, false)
		for name, want := range c.want {
			i := slices.IndexFunc(slices.Concat(g.Params, g.States), func(v *graph.Value) bool {
				return v.Name == name
			})
			if i < 0 {
				t.Errorf("%s: no parameter %s", c.model, name)
			} else if got := slices.Concat(g.Params, g.States)[i].Init; got != want {
				t.Errorf("%s, %+v: %s: got %v, want %v", c.model, c.options, name, got, want)
			}
		}
	}
}

func TestImagesWithTheWrongNumberOfDimensionsAreAnErrorNamingTheNode(t *testing.T) {
	_, err := graph.Build(func(g *graph.Graph) {
		net := &nn.Net{Graph: g, Compute: tensor.F32}
		resnet.Build(resnet.Family["resnet18"], resnet.Options{})(net, g.Input("images", tensor.F32, 8, 3, 32), 10)
	})
	var fault *graph.BuildError
	if !errors.As(err, &fault) || fault.Node != "conv1" {
		t.Errorf("got %v, want a BuildError of conv1", err)
	}
}

// drops returns the drop probability of the branch of each block.
func drops(g *graph.Graph) map[string]float64 {
	out := map[string]float64{}
	for _, n := range g.Nodes {
		if op, ok := n.Op.(device.Dropout); ok {
			out[strings.TrimSuffix(n.Name, ".drop rows")] = op.P
		}
	}
	return out
}

func TestBranchesAreDroppedByALinearRule(t *testing.T) {
	o := resnet.Options{StochasticDepth: 0.7}
	got := drops(build(t, resnet.Build(resnet.Family["resnet18"], o), 32, 10, true))
	want := []string{"layer1.0", "layer1.1", "layer2.0", "layer2.1", "layer3.0", "layer3.1", "layer4.0", "layer4.1"}
	if len(got) != 7 { // the first block is never dropped
		t.Errorf("got %v, want 7 blocks", got)
	}
	for i, name := range want {
		if math.Abs(got[name]-0.1*float64(i)) > 1e-12 {
			t.Errorf("%s: got %g, want %g", name, got[name], 0.1*float64(i))
		}
	}
	if got := drops(build(t, resnet.Build(resnet.Family["resnet18"], o), 32, 10, false)); len(got) != 0 {
		t.Errorf("evaluation drops %v", got)
	}
}
