package program

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// foreignCNN returns the tensors of a simple_cnn with channels [3]. Their names are those of PyTorch, each with the
// given prefix.
func foreignCNN(t *testing.T, prefix string, classes int) []checkpoint.Tensor {
	t.Helper()
	cfg, err := config.Load("", parts.BuiltinCatalog, config.Override{Key: "model.channels", Value: "[3]"})
	if err != nil {
		t.Fatal(err)
	}
	net, err := parts.DescribeNetwork(&cfg.Model, classes, 8)
	if err != nil {
		t.Fatal(err)
	}
	var list []checkpoint.Tensor
	for i, m := range net.Tensors {
		list = append(list, values(prefix+m.Name, m.Shape, float32(i)+0.5, -1, 0.3))
		if layer, ok := strings.CutSuffix(m.Name, ".running_mean"); ok {
			list = append(list, checkpoint.Tensor{Name: prefix + layer + ".num_batches_tracked", DType: tensor.I64,
				Data: make([]byte, 8)})
		}
	}
	return list
}

// contents returns the tensors of a safetensors file by name.
func contents(t *testing.T, path string) map[string]checkpoint.Tensor {
	t.Helper()
	f, err := checkpoint.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string]checkpoint.Tensor{}
	for _, i := range f.Tensors() {
		if all[i.Name], err = f.Read(i.Name); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

var smallCNN = []string{"--set", "model.channels=[3]", "--set", "data.image_size=8"}

func TestWeightsComeInAndGoOutUnchanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	theirs := foreignCNN(t, "module.", 4)
	in := writeWeights(t, theirs...)
	folder, file, out := filepath.Join(dir, "imported"), filepath.Join(dir, "in.safetensors"),
		filepath.Join(dir, "out.safetensors")
	for _, to := range []string{folder, file} {
		o := execute(append([]string{"checkpoint", "import", in, "--output", to}, smallCNN...))
		want := "imported tensors: 12\nprefix \"module.\" removed from all names\n2 batch counters (num_batches_tracked) ignored\nwritten: " +
			to + "\n"
		if o.code != exit.Done || o.stdout != want || o.stderr != "" {
			t.Fatalf("got exit code %d, %s and %s", o.code, o.stdout, o.stderr)
		}
	}
	o := execute([]string{"checkpoint", "export", folder, "--output", out})
	if o.code != exit.Done || o.stdout != out+": 14 tensors in f32 of "+filepath.Join(folder, "step-00000000")+
		", step 0\n" {
		t.Fatalf("got exit code %d, %s and %s", o.code, o.stdout, o.stderr)
	}
	exported, imported := contents(t, out), contents(t, file)
	for _, want := range theirs {
		name := strings.TrimPrefix(want.Name, "module.")
		if got := exported[name]; string(got.Data) != string(want.Data) || !got.Shape.Equal(want.Shape) ||
			got.DType != want.DType {
			t.Errorf("exported %s: got %v %v, want %v %v, or other values", name, got.DType, got.Shape, want.DType,
				want.Shape)
		}
		if want.DType == tensor.F32 && string(imported[name].Data) != string(want.Data) {
			t.Errorf("imported %s: other values", name)
		}
	}
	if len(exported) != len(theirs) || len(imported) != len(theirs)-2 {
		t.Errorf("got %d exported and %d imported tensors, want %d and %d", len(exported), len(imported), len(theirs),
			len(theirs)-2)
	}
	// Training must be able to start from the imported checkpoint, with the number of classes in the file.
	run := []string{"train.resume=" + folder, "model.channels=[3]", "model.num_classes=4", "data.num_classes=4",
		"optimizer.name=sgd"}
	if o := trainIn(t, filepath.Join(dir, "resumed"), run...); o.code != exit.Done ||
		!strings.Contains(o.stdout, "eval after step 0") {
		t.Errorf("resumed: got exit code %d, %s and %s", o.code, o.stdout, o.stderr)
	}
}

func TestExportConvertsAndRefusesWhatDoesNotFit(t *testing.T) {
	run := saveCheckpoint(t, values("fc.weight", []int{2}, 1.00390625, 3e38), values("bn.running_mean", []int{1}, 0.1))
	out := filepath.Join(t.TempDir(), "out.safetensors")
	export := func(args ...string) outcome {
		return execute(append([]string{"checkpoint", "export", run, "--output", out}, args...))
	}
	if o := export("--dtype", "bf16"); o.code != exit.Done {
		t.Fatal(o.stderr)
	}
	all := contents(t, out)
	w := all["fc.weight"]
	// Rounding is to nearest, ties to even.
	if got := binary.LittleEndian.Uint16(w.Data); w.DType != tensor.BF16 || got != 0x3f80 {
		t.Errorf("got %v %#04x, want bf16 0x3f80", w.DType, got)
	}
	if n := all["bn.num_batches_tracked"]; n.DType != tensor.I64 || len(n.Shape) != 0 ||
		binary.LittleEndian.Uint64(n.Data) != 11 {
		t.Errorf("counter of batches: got %v %v %v, want the scalar 11", n.DType, n.Shape, n.Data)
	}
	before := clitest.ReadFile(t, out)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, exit.Usage, "replace it with --force"},
		{[]string{"--force", "--dtype", "fp16"}, exit.Data, `tensor "fc.weight": element 1, 3`},
		{[]string{"--force", "--dtype", "f64"}, exit.Usage, `got "f64", want f32, bf16 or fp16`},
		{[]string{"--output", "weights.bin"}, exit.Usage, "want a name that ends in .safetensors"},
		{[]string{"--output", ""}, exit.Usage, "want a name that ends in .safetensors"},
		{[]string{"--output", filepath.Join(run, "none", "w.safetensors")}, exit.Usage, "there is no folder"},
	} {
		if o := export(c.args...); o.code != c.code || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%v: got exit code %d and %s, want %d and %q", c.args, o.code, o.stderr, c.code, c.says)
		}
	}
	if string(clitest.ReadFile(t, out)) != string(before) {
		t.Error("an export that failed changed the file")
	}
	if o := export("--force"); o.code != exit.Done || contents(t, out)["fc.weight"].DType != tensor.F32 {
		t.Errorf("got exit code %d and %s", o.code, o.stderr)
	}
	if entries, err := os.ReadDir(filepath.Dir(out)); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestImportRefusesWhatItCannotUse(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out.safetensors")
	sound := writeWeights(t, foreignCNN(t, "", 4)...)
	nan := foreignCNN(t, "", 4)
	nan[0].Data = append(binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(math.Inf(1)))),
		nan[0].Data[4:]...)
	raw := func(name, header string, data int) string {
		path := filepath.Join(dir, name)
		text := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
		if err := os.WriteFile(path, append(text, make([]byte, data)...), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	short := writeWeights(t, foreignCNN(t, "", 4)...)
	if err := os.Truncate(short, 1000); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"no model", []string{sound, "-o", out}, exit.Usage, "got no model"},
		{"no file", append([]string{filepath.Join(dir, "none"), "-o", out}, smallCNN...), exit.Usage,
			"there is no file"},
		{"a folder", append([]string{dir, "-o", out}, smallCNN...), exit.Usage,
			"is not a regular file, want a .safetensors file"},
		{"folder in none", append([]string{sound, "-o", filepath.Join(dir, "a", "b")}, smallCNN...), exit.Usage,
			"there is no folder " + filepath.Join(dir, "a")},
		{"no output", append([]string{sound}, smallCNN...), exit.Usage, "--output: want"},
		{"folder in use", append([]string{sound, "-o", filepath.Dir(sound)}, smallCNN...), exit.Usage, "is not empty"},
		{"bad rule", append([]string{sound, "-o", out, "--rename", "("}, smallCNN...), exit.Usage,
			"want PATTERN=REPLACEMENT"},
		{"idle rule", append([]string{sound, "-o", out, "--rename", "xyz=a"}, smallCNN...), exit.Usage,
			"the pattern matches no name in the file"},
		{"bad head", append([]string{sound, "-o", out, "--head", "bald"}, smallCNN...), exit.Usage,
			"want auto, keep or new"},
		{"another model", []string{sound, "-o", out, "--model", "resnet18"}, exit.Usage,
			"block0.bn1.bias: only in the file"},
		{"other channels", []string{sound, "-o", out, "--set", "model.channels=[5]"}, exit.Usage,
			"block0.conv1.weight: file F32 (3, 3, 3, 3), model F32 (5, 3, 3, 3)"},
		{"other classes, kept", append([]string{sound, "-o", out, "--num-classes", "7", "--head", "keep"}, smallCNN...),
			exit.Usage, "fc.bias: file F32 (4), model F32 (7)"},
		{"not finite", append([]string{writeWeights(t, nan...), "-o", out}, smallCNN...), exit.Data,
			"element 0 is +Inf"},
		{"truncated", append([]string{short, "-o", out}, smallCNN...), exit.Data, "is corrupt"},
		{"a header of 2^63 bytes", append([]string{raw("long", "", 0), "-o", out}, smallCNN...), exit.Data,
			"header does not begin"},
		{
			"a shape of 2^70",
			append(
				[]string{
					raw("shape",
						`{"fc.weight":{"dtype":"F32","shape":[1099511627776,1099511627776],"data_offsets":[0,4]}}`, 4),
					"-o", out}, smallCNN...), exit.Data, "more than 2^63 bytes"},
		{
			"an overlap", append([]string{raw("overlap", `{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`,
				3), "-o", out}, smallCNN...), exit.Data, "an overlap"},
		{
			"beyond the end", append([]string{raw("beyond", `{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}`, 3),
				"-o", out}, smallCNN...), exit.Data, "tensors end at byte 9"},
		{
			"a name twice", append([]string{raw("twice", `{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`,
				0), "-o", out}, smallCNN...), exit.Data, "appears twice"},
	} {
		o := execute(append([]string{"checkpoint", "import"}, c.args...))
		if o.code != c.code || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%s: got exit code %d and %s, want %d and %q", c.name, o.code, o.stderr, c.code, c.says)
		}
		if parts.Exists(out) {
			t.Fatalf("%s: a file was written", c.name)
		}
	}
	// Standard output must contain all differences.
	if o := execute([]string{"checkpoint", "import", sound, "-o", out, "--model", "resnet18", "--num-classes",
		"4"}); o.code != exit.Usage || strings.Count(o.stdout, "\n") < 102 {
		t.Errorf("got exit code %d and %s", o.code, o.stdout)
	}
}

func TestImportLeavesOutAHeadOfOtherClasses(t *testing.T) {
	in, dir := writeWeights(t, foreignCNN(t, "", 4)...), t.TempDir()
	out := filepath.Join(dir, "out.safetensors")
	o := execute(append([]string{"checkpoint", "import", in, "-o", out, "--num-classes", "7"}, smallCNN...))
	if o.code != exit.Done || !strings.Contains(o.stderr, "the file has 4 classes, the model 7") {
		t.Fatalf("got exit code %d and %s", o.code, o.stderr)
	}
	if all := contents(t, out); len(all) != 10 || all["fc.weight"].Data != nil {
		t.Errorf("got %d tensors, want the 10 that are no head", len(all))
	}
	folder := filepath.Join(dir, "folder")
	if o := execute(append([]string{"checkpoint", "import", in, "-o", folder, "--num-classes", "7"},
		smallCNN...)); o.code != exit.Done {
		t.Fatal(o.stderr)
	}
	if head := contents(t, filepath.Join(folder, "step-00000000",
		"model.safetensors"))["fc.weight"]; head.Shape[0] != 7 || head.Data[0] == 0 && head.Data[1] == 0 {
		t.Errorf("got a head %v of %v, want random values for 7 classes", head.Shape, head.Data[:4])
	}
}

func TestExportOfAverages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := filepath.Join(dir, "in.safetensors")
	if o := execute(append([]string{"checkpoint", "import", writeWeights(t, foreignCNN(t, "", 10)...), "-o", in},
		smallCNN...)); o.code != exit.Done {
		t.Fatal(o.stderr)
	}
	// The averages start as the weights of the first step, and change little afterwards.
	start := []string{"model.init_from=" + in, "model.channels=[3]", "schedule.name=constant"}
	for name, more := range map[string][]string{
		"one": {"train.steps=1"}, "three": {"train.steps=3", "ema.decay=0.999999"}} {
		if o := trainIn(t, filepath.Join(dir, name), append(more, start...)...); o.code != exit.Done {
			t.Fatal(o.stderr)
		}
	}
	exported := func(name string, args ...string) []byte {
		out := filepath.Join(t.TempDir(), "out.safetensors")
		if o := execute(append([]string{"checkpoint", "export", filepath.Join(dir, name, "run"), "-o", out},
			args...)); o.code != exit.Done {
			t.Fatal(o.stderr)
		}
		return contents(t, out)["fc.weight"].Data
	}
	after1, after3, averaged := exported("one"), exported("three"), exported("three", "--ema")
	distance := func(a, b []byte) (d float64) {
		for i := 0; i < len(a); i += 4 {
			at := func(d []byte) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(d[i:]))) }
			d = max(d, math.Abs(at(a)-at(b)))
		}
		return d
	}
	if near, far := distance(averaged, after1), distance(after3, after1); near > 1e-6 || far < 1e-4 {
		t.Errorf("from the weights after one step the averages are off by up to %g, the weights after three by %g",
			near, far)
	}
	if o := execute([]string{"checkpoint", "inspect", filepath.Join(dir, "three", "run")}); !strings.Contains(o.stdout,
		"adamw: exp_avg, exp_avg_sq\naverages ") {
		t.Errorf("got %s", o.stdout)
	}
	without := saveCheckpoint(t, values("fc.weight", []int{2}, 1))
	if o := execute([]string{"checkpoint", "export", without, "-o", filepath.Join(dir, "x.safetensors"),
		"--ema"}); o.code != exit.Usage || !strings.Contains(o.stderr, "has no averaged weights") {
		t.Errorf("got exit code %d and %s", o.code, o.stderr)
	}
}
