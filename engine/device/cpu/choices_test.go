package cpu

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// TestMain prevents tests from using the user's cache folder.
func TestMain(m *testing.M) {
	if dir := os.Getenv("HETERO_TEST_CACHE"); dir != "" { // a process that a test started
		os.Setenv("XDG_CACHE_HOME", dir)
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "cpu")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("XDG_CACHE_HOME", dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// choosing opens a device that chooses between kernels as on a CPU without AMX. On a CPU with AMX, the best guess is
// another one. The test is skipped if the CPU lacks AVX-512 BF16, because each op then has only one kernel.
func choosing(t *testing.T) device.Device {
	t.Helper()
	dev := open(t, device.Options{Threads: 2})
	t.Setenv(kernelNames, "") // package nativetest sets this variable to select kernels without timing
	t.Setenv(isaLimit, "avx512_bf16")
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	if dev.Info().ISA != "avx512_bf16" {
		needtest.Missing(t, "bf16", dev.Info().ISA+": each op has one kernel")
	}
	return dev
}

// choice is an op that has two kinds of kernels.
type choice struct {
	op    device.Op
	in    []device.TensorSpec
	names [2]string // kinds of kernels, best guess first
	amx   [2]string // the same on a CPU with AMX
}

func (c choice) String() string { return c.op.Kind() }

var (
	tilesFirst = [2]string{"tiles", "onednn"}
	dnnFirst   = [2]string{"onednn", "tiles"}
	rowsLast   = [2]string{"tiles", "rows"}
)

const classes = 1000

// choices returns every op that has two kinds of kernels. The operands have n rows.
func choices(n int) []choice {
	b, f, i := tensor.BF16, tensor.F32, tensor.I32
	logits := func(t tensor.DType) []device.TensorSpec {
		return []device.TensorSpec{device.Spec(t, n, 256), device.Spec(t, classes, 256), device.Spec(i, n)}
	}
	attention := device.Attention{Heads: 4, Packed: true, Causal: true}
	x, q, lse := device.Spec(b, n/256, 256, 256), device.Spec(b, n/256, 256, 768), device.Spec(f, n/256, 4, 256)
	return []choice{
		{device.Linear{}, []device.TensorSpec{device.Spec(b, n, 256), device.Spec(b, 512, 256)}, tilesFirst, dnnFirst},
		{device.LinearDiffSrc{}, []device.TensorSpec{device.Spec(b, n, 512), device.Spec(b, 512, 256)}, tilesFirst,
			dnnFirst},
		{device.LinearDiffWeights{}, []device.TensorSpec{device.Spec(b, n, 256), device.Spec(b, n, 512)}, tilesFirst,
			dnnFirst},
		{device.LinearCrossEntropy{}, logits(b), tilesFirst, dnnFirst},
		{device.LinearCrossEntropyDiff{}, append(logits(b), device.Spec(f, n), device.Spec(f, 1)), tilesFirst,
			dnnFirst},
		{attention, []device.TensorSpec{q}, rowsLast, rowsLast},
		{device.AttentionDiff{Attention: attention}, []device.TensorSpec{x, x, lse, q}, rowsLast, rowsLast},
		// AMX cannot multiply f32 numbers, so the best guess is the same on all CPUs.
		{device.Linear{}, []device.TensorSpec{device.Spec(f, n, 256), device.Spec(f, 512, 256)}, tilesFirst,
			tilesFirst},
		{device.LinearDiffSrc{}, []device.TensorSpec{device.Spec(f, n, 512), device.Spec(f, 512, 256)}, tilesFirst,
			tilesFirst},
		{device.LinearDiffWeights{}, []device.TensorSpec{device.Spec(f, n, 256), device.Spec(f, n, 512)}, tilesFirst,
			tilesFirst},
		{device.LinearCrossEntropy{}, logits(f), tilesFirst, tilesFirst},
		{device.LinearCrossEntropyDiff{}, append(logits(f), device.Spec(f, n), device.Spec(f, 1)), tilesFirst,
			tilesFirst},
	}
}

// compile compiles the op, lets the device choose the layouts, and closes the kernel. It returns the operands of the
// kernel.
func (c choice) compile(t *testing.T, dev device.Device) []device.TensorSpec {
	t.Helper()
	out, err := c.op.Infer(c.in)
	if err != nil {
		t.Fatal(err)
	}
	in := append([]device.TensorSpec(nil), c.in...)
	for _, side := range [][]device.TensorSpec{in, out} {
		for i := range side {
			side[i] = side[i].With(device.Any)
		}
	}
	k, err := dev.Compile(c.op, in, out)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(k.In())
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	return want
}

// stored returns the path of the file of choices, and its lines without the header. A line has a key, a name and times.
func stored(t *testing.T) (path string, lines [][]string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "hetero-train", "choices", "*.tsv"))
	if err != nil || len(files) > 1 {
		t.Fatalf("got %v, %v, want at most one file of choices", files, err)
	}
	if len(files) == 0 {
		return "", nil
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if all[0] != "hetero-train choices 1" {
		t.Fatalf("%s: got the header %q", files[0], all[0])
	}
	for _, line := range all[1:] {
		fields := strings.Split(line, "\t")
		if len(fields) != 3 {
			t.Fatalf("%s: got the line %q, want three fields", files[0], line)
		}
		lines = append(lines, fields)
	}
	return files[0], lines
}

// storeElsewhere switches to another cache folder, and writes a file with the name of path there. The process has not
// read this file yet.
func storeElsewhere(t *testing.T, path, text string) {
	t.Helper()
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	other := filepath.Join(cache, "hetero-train", "choices", filepath.Base(path))
	if err := os.MkdirAll(filepath.Dir(other), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTheFasterKernelIsChosenAndStored(t *testing.T) {
	dev := choosing(t)
	for _, c := range []struct {
		times string
		want  int // index of the chosen kernel in choice.names
	}{
		{"tiles=10,onednn=20,rows=20", 0},
		{"tiles=20,onednn=10,rows=10", 1},
		{"tiles=100,onednn=91,rows=91", 0}, // the difference of the times is too small
	} {
		for _, op := range choices(256) {
			t.Run(op.String()+" "+c.times, func(t *testing.T) {
				t.Setenv("XDG_CACHE_HOME", t.TempDir())
				t.Setenv(kernelTimes, c.times)
				op.compile(t, dev)
				path, lines := stored(t)
				if len(lines) != 1 || lines[0][1] != op.names[c.want] {
					t.Fatalf("%s: got %q, want one choice of %s", path, lines, op.names[c.want])
				}
				for _, name := range op.names {
					if !strings.Contains(lines[0][2], name+" ") {
						t.Errorf("got the times %q, want that of %s", lines[0][2], name)
					}
				}
			})
		}
	}
}

// The file of choices must determine the kernel. The layout of the weight shows the kernel: a private layout for
// oneDNN, the plain layout for tiles.
func TestTheStoredChoiceDecidesTheKernel(t *testing.T) {
	dev := choosing(t)
	op := choices(256)[0]
	for _, name := range op.names {
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		t.Setenv(kernelTimes, "tiles=10,onednn=20")
		op.compile(t, dev)
		path, lines := stored(t)
		storeElsewhere(t, path, "hetero-train choices 1\n"+lines[0][0]+"\t"+name+"\twritten by a test\n")
		for range 2 {
			if layout := layoutOfWeight(t, dev, op); (layout == "plain") != (name == "tiles") {
				t.Errorf("the choice is %s: got the weight in layout %s", name, layout)
			}
		}
		if _, after := stored(t); len(after) != 1 || after[0][2] != "written by a test" {
			t.Errorf("got %q, want the file as the test wrote it", after)
		}
	}
}

// If one kernel fails, the op must use the other one. A fault in one process must not determine the kernels of later
// processes.
func TestAKernelThatFailsIsNotUsed(t *testing.T) {
	const test = "TestAKernelThatFailsIsNotUsed"
	dev := choosing(t)
	cache := t.TempDir()
	if !withFault(t, test, "onednn", cache) {
		withFault(t, test, "none", cache) // a second process
		return
	}
	for _, isa := range []string{"avx512_bf16", "amx"} { // oneDNN is the second candidate, then the first
		t.Setenv(isaLimit, isa)
		t.Setenv("XDG_CACHE_HOME", filepath.Join(os.Getenv("HETERO_TEST_CACHE"), isa))
		op := choices(256)[0]
		got := layoutOfWeight(t, dev, op)
		_, lines := stored(t)
		if os.Getenv(faultVariable) == "none" {
			if len(lines) != 1 || !strings.Contains(lines[0][2], "tiles ") ||
				!strings.Contains(lines[0][2], "onednn ") {
				t.Errorf("%s: got %q, want one choice with both times", isa, lines)
			}
			continue
		}
		if again := layoutOfWeight(t, dev, op); got != "plain" || again != "plain" {
			t.Errorf("%s: got the weight in layouts %s and %s, want that of the tiles, plain", isa, got, again)
		}
		if len(lines) != 0 {
			t.Errorf("%s: got %q, want no choices", isa, lines)
		}
		if notes := dev.(device.Noting).Notes(); !strings.Contains(notes, "a choice after a failure is not stored") {
			t.Errorf("%s: got the notes %q, want one that the choice is not stored", isa, notes)
		}
		want := "the kernel onednn of linear is not used, because it fails: a oneDNN primitive failed with status 5"
		if notes := dev.(device.Noting).Notes(); strings.Count(notes, want) != 1 {
			t.Errorf("%s: got the notes %q, want %q once", isa, notes, want)
		}
	}
}

// faultVariable is the environment variable that faults.c reads.
const faultVariable = "HETERO_TEST_FAULT"

// withFault runs a test again in a child process, whose libraries have a fault of faults.c. In the child process, it
// returns true.
func withFault(t *testing.T, test, fault, cache string) bool {
	t.Helper()
	if os.Getenv(faultVariable) != "" {
		return true
	}
	child := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.v")
	child.Env = append(os.Environ(), faultVariable+"="+fault, "HETERO_TEST_CACHE="+cache,
		"LD_PRELOAD="+nativetest.Preload(t, filepath.Join("testdata", "faults.c")))
	if out, err := child.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: "+test)) {
		t.Errorf("%s: %v\n%s", fault, err, out)
	}
	return false
}

// All numbers of rows in a class must have the same best guess. Otherwise the choice would depend on the number that is
// timed.
func TestFewRowsAreClassesOfTheirOwn(t *testing.T) {
	dev := choosing(t)
	for _, c := range []struct {
		rows  []int
		guess string
	}{
		{[]int{33, 40, 64}, "onednn"},
		{[]int{65, 100, 128}, "tiles"},
	} {
		for _, n := range c.rows {
			t.Setenv("XDG_CACHE_HOME", t.TempDir())
			t.Setenv(kernelTimes, "tiles=10,onednn=10")
			op := choice{op: device.Linear{},
				in: []device.TensorSpec{device.Spec(tensor.BF16, n, 512), device.Spec(tensor.BF16, 512, 512)}}
			op.compile(t, dev)
			_, lines := stored(t)
			if class := fmt.Sprintf(": linear bf16(%d, 512) ", c.rows[len(c.rows)-1]); len(lines) != 1 ||
				lines[0][1] != c.guess || !strings.Contains(lines[0][0], class) {
				t.Errorf("%d rows: got %q, want the guess %s of the class%s", n, lines, c.guess, class)
			}
		}
	}
}

func layoutOfWeight(t *testing.T, dev device.Device, op choice) string {
	t.Helper()
	return dev.(device.LayoutNamer).LayoutName(op.compile(t, dev)[1].Layout)
}

// If an op takes only microseconds, the device must not time its kernels.
func TestSmallOpsAreNotTimed(t *testing.T) {
	dev := choosing(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	small := choice{op: device.Linear{},
		in: []device.TensorSpec{device.Spec(tensor.BF16, 128, 32), device.Spec(tensor.BF16, 32, 32)}}
	small.compile(t, dev)
	if path, lines := stored(t); len(lines) != 0 {
		t.Errorf("%s: got %q, want no choices", path, lines)
	}
}

// The environment variable replaces the query of the CPU, because these tests have not run on a CPU with AMX.
func TestOnACPUWithAMXBothKernelsCompete(t *testing.T) {
	dev := choosing(t)
	t.Setenv(isaLimit, "amx")
	for i, op := range choices(256) {
		t.Run(op.String(), func(t *testing.T) {
			for want, times := range []string{"", "tiles=10,onednn=20,rows=20", "tiles=20,onednn=10,rows=10"} {
				t.Setenv("XDG_CACHE_HOME", t.TempDir())
				t.Setenv(kernelTimes, times)
				op.compile(t, dev)
				path, lines := stored(t)
				if len(lines) != 1 || !strings.Contains(path, "_avx512_bf16_amx") {
					t.Fatalf("%s: got %q, want one choice in a file for AMX", path, lines)
				}
				if !strings.HasPrefix(lines[0][2], op.amx[0]+" ") ||
					!strings.Contains(lines[0][2], ", "+op.amx[1]+" ") {
					t.Errorf("got the times %q, want those of %s and %s", lines[0][2], op.amx[0], op.amx[1])
				}
				if want > 0 && lines[0][1] != op.names[want-1] {
					t.Errorf("times %s: got %s, want %s", times, lines[0][1], op.names[want-1])
				}
			}
			if i > 0 {
				return
			}
			t.Setenv("XDG_CACHE_HOME", "/proc/no/such/place") // no timing without a cache folder: the guess
			if got := layoutOfWeight(t, dev, op); got == "plain" {
				t.Errorf("got the weight in layout %s, want that of oneDNN, the best guess with AMX", got)
			}
		})
	}
}

func TestAnUnknownKernelNameIsUnavailable(t *testing.T) {
	t.Setenv(kernelNames, "onednm,rows")
	_, err := Driver{}.Open(0, device.Options{})
	const want = `environment variable HETERO_CPU_KERNELS: got "onednm", want a list of tiles, onednn, rows and guess`
	if !errors.Is(err, device.ErrUnavailable) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want ErrUnavailable with %q", err, want)
	}
}

// For each op, the first name that has a kernel applies. If a later name has kernels only for the same ops, this must
// be an error.
func TestKernelNamesWithoutEffectAreUnavailable(t *testing.T) {
	for list, part := range map[string]string{
		"tiles,onednn":       `got "tiles,onednn", but onednn has no effect: tiles already selects the kernels of linear layers`,
		"tiles,guess,rows":   "rows has no effect: tiles already selects the kernels of attention",
		"rows,onednn,tiles":  "tiles has no effect: onednn already selects the kernels of linear layers, and rows already selects the kernels of attention",
		"onednn,onednn":      "onednn has no effect: onednn already selects",
		"rows,tiles,guess":   "",
		"onednn,tiles":       "",
		"onednn,rows":        "",
		"guess,tiles":        "",
		"rows,,onednn,guess": "",
	} {
		err := checkKernels(list)
		if part == "" && err != nil || part != "" && (err == nil || !strings.Contains(err.Error(), part)) {
			t.Errorf("%s: got %v, want %q", list, err, part)
		}
	}
}

func TestWrongTimesAreUnavailable(t *testing.T) {
	for _, c := range []struct{ times, part string }{
		{"tiles", "tiles"}, {"tiles=", "tiles="}, {"tiles=fast", "tiles=fast"}, {"tiles=0", "tiles=0"},
		{"tiles=-1", "tiles=-1"},
		{"tiles=5,rows=inf", "rows=inf"}, {"tiles=NaN", "tiles=NaN"}, {"tiles=5,tile=3", "tile=3"}, {"tiles=5,", ""},
	} {
		t.Setenv(kernelTimes, c.times)
		_, err := Driver{}.Open(0, device.Options{})
		if want := fmt.Sprintf("environment variable HETERO_CPU_TIMES: got %q, want a list such as tiles=5,onednn=3",
			c.part); !errors.Is(err, device.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want ErrUnavailable with %q", c.times, err, want)
		}
	}
}

// Each kind of kernel must pass two parts of the conformance suite: the values of its ops, and those of networks with
// these ops.
func TestConformanceOfEachKindOfKernel(t *testing.T) {
	choosing(t)
	cases, err := conformance.ParseMatch("/^(values|threads)$/^(linear|transformer|nan|chain|attention_diff)$")
	if err != nil {
		t.Fatal(err)
	}
	for _, names := range []string{"tiles", "onednn,rows"} {
		t.Run(names, func(t *testing.T) {
			t.Setenv(kernelNames, names)
			result := conformance.Run("cpu", func(t conformance.T) {
				devicetest.Run(t, opened, devicetest.Caps{Types: []tensor.DType{tensor.BF16}, Threads: true,
					Lacks: Lacks})
			}, conformance.Options{Match: cases, Done: func(path []string, r *conformance.Result) {
				if r.Status != conformance.Passed && len(r.Output) > 0 {
					t.Errorf("%s: %s", strings.Join(path, "/"), strings.Join(r.Output, "\n"))
				}
			}})
			if passed, failed, skipped := result.Count(); passed < 200 || failed+skipped > 0 {
				t.Errorf("got %d cases that passed, %d that failed, %d skipped, want at least 200, 0, 0", passed,
					failed, skipped)
			}
		})
	}
}
