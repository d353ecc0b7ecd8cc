package train

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/models/resnet"
	"github.com/hetero-train/hetero-train/engine/models/simplecnn"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/nn/random"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/plan"
	"github.com/hetero-train/hetero-train/engine/task/images"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// golden is a run of PyTorch that scripts/goldens.py made. The script also defines the batches and the parameters.
type golden struct {
	Config struct {
		Model          string
		Seed           uint64
		Classes        int
		ImageSize      int `json:"image_size"`
		BatchSize      int `json:"batch_size"`
		Steps          int
		WarmupSteps    int     `json:"warmup_steps"`
		LabelSmoothing float64 `json:"label_smoothing"`
		MultiLabel     bool    `json:"multi_label"`     // bit k of a label: whether the image has class k
		ResidualWeight float64 `json:"residual_weight"` // initial weight of bn3, the last BatchNorm of a bottleneck
		Mean, Std      [3]float64
		Finetune       *struct {
			Freeze      []string
			LayerDecay  float64 `json:"layer_decay"`
			EMADecay    float64 `json:"ema_decay"`
			EMAInterval int     `json:"ema_interval"`
		}
		Optimizer struct {
			Name        string
			LR          float64
			Momentum    float64
			Nesterov    bool
			WeightDecay float64 `json:"weight_decay"`
			Beta1       float64
			Beta2       float64
			Eps         float64
		}
	}
	FirstLabels     []int              `json:"first_labels"`
	FirstImageBytes []int              `json:"first_image_bytes"`
	LossF32         [][]float64        `json:"loss_f32"`
	LossF64         []float64          `json:"loss_f64"`
	EvalLossF32     []float64          `json:"eval_loss_f32"`
	EvalLossF64     float64            `json:"eval_loss_f64"`
	GradNormF64     map[string]float64 `json:"grad_norm_f64"`
	GradNormF32     map[string]float64 `json:"grad_norm_f32"`
}

const (
	// lossFloor is an error that is always permitted. PyTorch's f32 runs agree with its f64 run to 3e-7 at best.
	// Smaller differences in a single step are accidental.
	lossFloor = 2e-6
	// normTolerance is a relative error of a parameter's gradient norm in the first step. This error is always
	// permitted.
	normTolerance = 1e-4
)

// goldenData provides the batches of a golden run, in their order.
type goldenData struct{ g *golden }

func (d goldenData) Len() int { return (d.g.Config.Steps + 1) * d.g.Config.BatchSize }
func (d goldenData) Classes() []string {
	return make([]string, d.g.Config.Classes)
}
func (d goldenData) Label(i int) int {
	c := d.g.Config
	different := uint64(c.Classes)
	if c.MultiLabel {
		different = 1 << c.Classes
	}
	return int(random.New(c.Seed, fmt.Sprint("golden.labels.", i/c.BatchSize)).Bits(uint64(i%c.BatchSize)) % different)
}

// sets returns the labels of the images. If each image has one class, it returns nil.
func (g *golden) sets() *data.LabelSets {
	if !g.Config.MultiLabel {
		return nil
	}
	s := &data.LabelSets{Names: make([]string, g.Config.Classes), Sets: make([][]int32, 1<<g.Config.Classes)}
	for number := range s.Sets {
		for class := range g.Config.Classes {
			if number>>class&1 == 1 {
				s.Sets[number] = append(s.Sets[number], int32(class))
			}
		}
	}
	return s
}

func (d goldenData) NewReader() (data.Reader, error) { return goldenReader{d}, nil }

type goldenReader struct{ d goldenData }

func (r goldenReader) Close() error { return nil }
func (r goldenReader) Read(i int, _ data.Sizer, img *data.Image) error {
	c := r.d.g.Config
	size, n, label := c.ImageSize, i%c.BatchSize, r.d.Label(i)
	noise := random.New(c.Seed, fmt.Sprint("golden.images.", i/c.BatchSize))
	pix := make([]byte, size*size*3)
	for at := range pix {
		ch, x, y := at%3, at/3%size, at/3/size
		wave := (label + 1) * (x + 2*y + 3*ch) % 16
		pix[at] = byte(noise.Bits(uint64(n*len(pix)+at))&127) + byte(8*wave)
	}
	*img = data.Image{Pix: pix, Width: size, Height: size, FullWidth: size, FullHeight: size}
	return nil
}

func (g *golden) model() models.Classifier {
	if g.Config.Model == "simple_cnn" {
		return simplecnn.Build(simplecnn.Options{Channels: []int{32, 64, 128}})
	}
	return resnet.Build(resnet.Family[g.Config.Model], resnet.Options{})
}

func (g *golden) options(compute tensor.DType) replica.Options {
	c := g.Config
	task := images.Classify{Model: g.model(), Classes: c.Classes, Independent: c.MultiLabel, Size: c.ImageSize,
		LabelSmoothing: c.LabelSmoothing}
	for i := range 3 {
		task.Mean[i], task.Std[i] = float32(c.Mean[i]), float32(c.Std[i])
	}
	o := replica.Options{Task: task, Compute: compute, BatchSize: c.BatchSize, Accumulation: 1,
		Seed: c.Seed, Optimizer: optim.Options{Name: c.Optimizer.Name, Momentum: c.Optimizer.Momentum,
			Nesterov:    c.Optimizer.Nesterov,
			WeightDecay: c.Optimizer.WeightDecay, Beta1: c.Optimizer.Beta1, Beta2: c.Optimizer.Beta2,
			Eps: c.Optimizer.Eps}}
	if f := c.Finetune; f != nil {
		o.Freeze = nn.Freeze{Patterns: f.Freeze}
		o.Optimizer.LayerDecay = f.LayerDecay
		o.Optimizer.Decays = func(_ string, shape tensor.Shape) bool { return len(shape) > 1 }
		o.Average = optim.AverageOptions{Decay: f.EMADecay, Interval: f.EMAInterval, Warmup: true}
	}
	return o
}

// openCPU opens the CPU device. If the library was not built, it skips the test, unless HETERO_REQUIRE names it.
func openCPU(t *testing.T) device.Device {
	t.Helper()
	// Ranks call openCPU concurrently. They must not call nativetest.Need, which sets an environment variable.
	dev, err := cpu.Driver{}.Open(0, device.Options{})
	if err != nil {
		needtest.Missing(t, "cpu", err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// openShim opens the CUDA device compiled for the host. If this library was not built, it skips the test, unless
// HETERO_REQUIRE names the CPU.
func openShim(t *testing.T) device.Device {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // the cache stores the fastest algorithms
	return nativetest.Open(t, "cpu", nativetest.CUDAShim)
}

func loadGolden(t *testing.T, path string) *golden {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	g := new(golden)
	if err := json.Unmarshal(text, g); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return g
}

func TestRunsFollowPyTorch(t *testing.T) {
	needtest.NotShort(t, "trains a large network")
	files, err := filepath.Glob("../models/testdata/*_*.json")
	if err != nil || len(files) < 4 {
		t.Fatalf("got %d golden files (%v), want at least 4", len(files), err)
	}
	for _, path := range files {
		g := loadGolden(t, path)
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		t.Run(name+"/cpu", func(t *testing.T) {
			if g.Config.ImageSize > 100 {
				needtest.Large.Need(t, "ResNet-50 with images of the published size")
			}
			steps := g.Config.Steps
			if name == "resnet50_sgd" && !needtest.Large.On() {
				steps = g.Config.WarmupSteps + 1 // resnet50_adamw and simple_cnn_sgd have all steps
			}
			followGolden(t, openCPU(t), g, tensor.F32, steps)
		})
		if kind := os.Getenv("HETERO_TEST_DEVICE"); kind != "" {
			t.Run(name+"/"+kind, func(t *testing.T) {
				followGolden(t, nativetest.Open(t, "", "libhetero_"+kind+".so"), g, tensor.F32, g.Config.Steps)
			})
		}
		if name == "simple_cnn_sgd" {
			t.Run(name+"/cuda on the host", func(t *testing.T) { followGolden(t, openShim(t), g, tensor.F32, 2) })
		}
		if (name == "simple_cnn_sgd" || name == "simple_cnn_finetune") && !testing.Short() {
			t.Run(name+"/reference in f64", func(t *testing.T) { followGolden(t, openReference(t), g, tensor.F64, 3) })
		}
	}
}

func (g *golden) loader(t *testing.T) *data.Loader {
	t.Helper()
	loader, err := data.NewLoader(
		data.Options{
			Samples: data.Images{
				Dataset: goldenData{g}, Sets: g.sets(),
				Transform: data.Transform{Crop: data.CentreCrop, Size: g.Config.ImageSize}},
			BatchSize: g.Config.BatchSize, Evaluate: true, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { loader.Close() })
	return loader
}

// batch returns one batch of the run.
func (g *golden) batch(t *testing.T, index int) *data.Batch {
	t.Helper()
	loader := g.loader(t)
	for i := 0; ; i++ {
		batch, err := loader.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if i == index {
			return batch
		}
		batch.Release()
	}
}

// followGolden repeats the first steps of a golden run.
func followGolden(t *testing.T, dev device.Device, g *golden, compute tensor.DType, steps int) {
	r, err := replica.New(dev, g.options(compute))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	checkFirstBatch(t, g)
	loader := g.loader(t)
	setResidualWeights(t, r, g.Config.ResidualWeight)
	gap := 0.0 // largest error of PyTorch's f32 runs so far; runs that have diverged need not converge
	schedule := optim.Schedule{Name: "constant", Base: g.Config.Optimizer.LR, Warmup: g.Config.WarmupSteps}
	for step := range steps {
		out, err := r.Step(context.Background(), loader, replica.StepOptions{Rate: schedule.Rate(step)})
		if err != nil {
			t.Fatal(err)
		}
		if step == 0 {
			checkGradientNorms(t, r, g)
		}
		for _, f32 := range g.LossF32 {
			gap = max(gap, math.Abs(f32[step]-g.LossF64[step]))
		}
		checkLoss(t, fmt.Sprint("step ", step), out.Score().Loss, g.LossF64[step], gap)
	}
	if steps < g.Config.Steps {
		return
	}
	batch := g.batch(t, steps) // a new batch, because the loader may have staged its own batch on the device
	defer batch.Release()
	if r.Averages() != nil {
		if err := r.ExchangeAverages(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.PrepareEvaluation(); err != nil {
		t.Fatal(err)
	}
	sums, err := r.Evaluate(batch)
	if err != nil {
		t.Fatal(err)
	}
	for _, f32 := range g.EvalLossF32 {
		gap = max(gap, math.Abs(f32-g.EvalLossF64))
	}
	checkLoss(t, "evaluation", sums.Score().Loss, g.EvalLossF64, gap)
}

// checkLoss permits three times the error of PyTorch's f32 runs, relative to its f64 run.
func checkLoss(t *testing.T, what string, got, want, gap float64) {
	t.Helper()
	diff := math.Abs(got - want)
	if allowed := max(3*gap, lossFloor); !(diff <= allowed) {
		t.Errorf("%s: loss %.8f, want %.8f within %.1e, off by %.1e", what, got, want, allowed, diff)
	}
	t.Logf("%s: off by %.1e, PyTorch in f32 by up to %.1e", what, diff, gap)
}

// setResidualWeights sets the initial weight of the last BatchNorm of each bottleneck to w.
func setResidualWeights(t *testing.T, r *replica.Replica, w float64) {
	t.Helper()
	for _, p := range r.State().Params.Params {
		if !strings.HasSuffix(p.Name, "bn3.weight") {
			continue
		}
		if err := r.State().Write(r.State().Values, p, repeated(p.Spec.DType, w, p.Spec.Shape.Elements())); err != nil {
			t.Fatal(err)
		}
	}
}

// repeated returns n elements of value v.
func repeated(dt tensor.DType, v float64, n int64) (b []byte) {
	for range n {
		if dt == tensor.F64 {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		} else {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
		}
	}
	return b
}

func checkFirstBatch(t *testing.T, g *golden) {
	t.Helper()
	var img data.Image
	d := goldenData{g}
	if err := (goldenReader{d}).Read(0, nil, &img); err != nil {
		t.Fatal(err)
	}
	for i, want := range g.FirstLabels {
		if got := d.Label(i); got != want {
			t.Fatalf("label %d: got %d, want %d", i, got, want)
		}
	}
	for i, want := range g.FirstImageBytes {
		if got := int(img.Pix[i]); got != want {
			t.Fatalf("image byte %d: got %d, want %d", i, got, want)
		}
	}
}

// checkGradientNorms compares the gradients of the last step. It permits three times the largest error of PyTorch's own
// f32 run. An activation near 0 can be on the other side of a ReLU.
func checkGradientNorms(t *testing.T, r *replica.Replica, g *golden) {
	t.Helper()
	trained := slices.DeleteFunc(slices.Clone(r.State().Params.Params), func(p plan.ParamInfo) bool { return p.Frozen })
	if len(g.GradNormF64) != len(trained) {
		t.Fatalf("got %d trained parameters, want %d", len(trained), len(g.GradNormF64))
	}
	tolerance := normTolerance
	for name, want := range g.GradNormF64 {
		tolerance = max(tolerance, 3*math.Abs(g.GradNormF32[name]-want)/want)
	}
	for _, p := range trained {
		b := make([]byte, p.Spec.Shape.Elements()*p.Spec.DType.Size())
		if err := r.State().Read(r.State().Grads, p, b); err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for len(b) > 0 {
			var v float64
			if p.Spec.DType == tensor.F64 {
				v, b = math.Float64frombits(binary.LittleEndian.Uint64(b)), b[8:]
			} else {
				v, b = float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), b[4:]
			}
			sum += v * v
		}
		want, known := g.GradNormF64[p.Name]
		if got := math.Sqrt(sum); !known || !(math.Abs(got-want) <= tolerance*want) {
			t.Errorf("gradient norm of %s: got %.8g, want %.8g within %.1e", p.Name, got, want, tolerance)
		}
	}
}

// stepsOfAnEpoch is the number of steps in an epoch of the loader of steadyReplica.
const stepsOfAnEpoch = 4

// steadyReplica returns a ResNet on the CPU that has trained some steps, and its loader.
func steadyReplica(t *testing.T, compute tensor.DType, steps int) (*replica.Replica, *data.Loader) {
	t.Helper()
	dev := openCPU(t)
	o := testOptions()
	classify(&o, func(c *images.Classify) {
		c.Model, c.Size = resnet.Build(resnet.Depth{Blocks: [4]int{1, 1, 1, 1}}, resnet.Options{}), 32
	})
	o.BatchSize, o.Accumulation, o.Compute = 4, 2, compute
	o.Optimizer.ClipNorm = 1
	r, err := replica.New(dev, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	set, err := data.Synthetic(data.SyntheticOptions{Seed: 1, Train: 16, Classes: 3, Size: 32})
	if err != nil {
		t.Fatal(err)
	}
	l, err := data.NewLoader(data.Options{Samples: data.Images{Dataset: data.Cached(set.Train, 0),
		Transform: data.Transform{Crop: data.PadCrop, Size: 32, Pad: 4, Flip: true}},
		BatchSize: 4, Accumulation: 2, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if got := l.BatchesPerEpoch() / o.Accumulation; got != stepsOfAnEpoch {
		t.Fatalf("got an epoch of %d steps, want %d", got, stepsOfAnEpoch)
	}
	for range steps {
		if _, err := r.Step(context.Background(), l, replica.StepOptions{Rate: 0.01}); err != nil {
			t.Fatal(err)
		}
	}
	return r, l
}

var addressSanitizer bool

func TestStepsAllocateNothing(t *testing.T) {
	needtest.NotShort(t, "trains a large network")
	if addressSanitizer {
		t.Skip("the address sanitizer allocates on the Go heap")
	}
	for _, compute := range []tensor.DType{tensor.F32, tensor.BF16} {
		r, l := steadyReplica(t, compute, stepsOfAnEpoch+1) // all caches are full
		before, _ := r.Device().Memory()
		allocs := testing.AllocsPerRun(stepsOfAnEpoch, func() {
			if _, err := r.Step(context.Background(), l, replica.StepOptions{Rate: 0.01}); err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 {
			t.Errorf("%v: got %.1f heap allocations a step, want none", compute, allocs)
		}
		if after, _ := r.Device().Memory(); after != before {
			t.Errorf("%v: device memory went from %d to %d bytes", compute, before, after)
		}
		if got := r.PredictedBytes(); got != before {
			t.Errorf("%v: predicted %d bytes, the device gave out %d", compute, got, before)
		}
	}
}

// The first step uses all memory for the first time. Later steps must not allocate more in Go, C++ or oneDNN.
func TestResidentMemoryStopsGrowing(t *testing.T) {
	needtest.NotShort(t, "trains a large network")
	statm, err := os.Open("/proc/self/statm")
	if err != nil {
		needtest.Missing(t, "system", err)
	}
	defer statm.Close()
	resident := func() int {
		debug.FreeOSMemory() // memory that the Go heap could return to the system is not growth
		text := make([]byte, 256)
		n, err := statm.ReadAt(text, 0)
		fields := strings.Fields(string(text[:n]))
		if err != io.EOF || len(fields) < 2 {
			t.Fatal(err, fields)
		}
		pages, err := strconv.Atoi(fields[1])
		if err != nil {
			t.Fatal(err)
		}
		return pages * os.Getpagesize()
	}
	const size = 112
	o := testOptions()
	classify(&o, func(c *images.Classify) {
		c.Model, c.Size = resnet.Build(resnet.Family["resnet50"], resnet.Options{}), size
	})
	o.BatchSize = 2
	r, err := replica.New(openCPU(t), o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	set, err := data.Synthetic(data.SyntheticOptions{Seed: 1, Train: 2, Classes: 3, Size: size})
	if err != nil {
		t.Fatal(err)
	}
	l, err := data.NewLoader(
		data.Options{
			Samples:   data.Images{Dataset: set.Train, Transform: data.Transform{Crop: data.PadCrop, Size: size}},
			BatchSize: 2, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	steps := func(n int) int {
		for range n {
			if _, err := r.Step(context.Background(), l, replica.StepOptions{Rate: 0.01}); err != nil {
				t.Fatal(err)
			}
		}
		return resident()
	}
	const slack = 1 << 20 // for stacks and late code pages; the activations of a step are 30 times as large
	// At any time, the kernel can join pages to huge pages, and the device can start threads. One such growth is
	// permitted, but a leak grows in each round.
	before, grown := steps(2), 0
	for range 3 {
		now := steps(6)
		if grown = now - before; grown <= slack {
			return
		}
		before = now
	}
	t.Errorf("resident memory grew by %d bytes in the last of 3 rounds of 6 steps, want at most %d", grown, slack)
}

func TestSameSeedGivesBitEqualLosses(t *testing.T) {
	needtest.NotShort(t, "trains a large network")
	for _, compute := range []tensor.DType{tensor.F32, tensor.BF16} {
		var first [2]float64
		for i := range 2 {
			r, l := steadyReplica(t, compute, 2) // the third step depends on the gradients and moments of two steps
			out, err := r.Step(context.Background(), l, replica.StepOptions{Rate: 0.01})
			if err != nil {
				t.Fatal(err)
			}
			if now := [2]float64{out.Loss, out.GradNorm}; i == 0 {
				first = now
			} else if now != first {
				t.Errorf("%v: loss and norm %v, in the run before %v", compute, now, first)
			}
		}
	}
}
