package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/native"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

const fakeCublasLt = "libcublasLt_fake.so.13"

// copyFile copies a library of the build into a folder.
func copyFile(t *testing.T, name, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(filepath.Dir(loadShim(t).Path()), name))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// freshShim returns the device's library in the state of a new process. It loads a copy of the library, because a copy
// has its own static data, such as cached choices. The copy is in a folder with the fake cuDNN and the given libraries.
func freshShim(t *testing.T, beside ...string) *native.Library {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "lib", "hetero-train")
	for _, name := range append(beside, fakeCudnn) {
		copyFile(t, name, dir)
	}
	lib, err := native.Load(copyFile(t, shimLibrary, dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	return lib
}

// Describe must return what Info of the opened device returns, except for the fields that need a context.
func TestAGPUIsDescribedAsItOpens(t *testing.T) {
	lib := loadShim(t)
	dev := open(t, lib)
	want := dev.Info()
	want.UUID, want.BusID, want.FreeBytes = "", "", 0
	if got, err := lib.Describe(0); err != nil || got != want {
		t.Errorf("got %+v and %v, want %+v", got, err, want)
	}
	for _, index := range []int{-1, 1} {
		if got, err := lib.Describe(index); err == nil {
			t.Errorf("GPU %d: got %+v, want an error", index, got)
		}
	}
}

func open(t *testing.T, lib *native.Library) device.Device {
	t.Helper()
	dev, err := lib.Open(0, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

func TestMissingLibraryIsToldWithWhatToDo(t *testing.T) {
	lib := freshShim(t)
	elsewhere := t.TempDir()
	t.Setenv("HETERO_CUDA_LIBS", "/nowhere:"+elsewhere)
	t.Setenv("CUDA_HOME", "/opt/[cuda]")
	_, err := lib.Open(0, device.Options{})
	if !errors.Is(err, device.ErrUnavailable) {
		t.Fatalf("without cuBLASLt: got %v, want ErrUnavailable", err)
	}
	for _, want := range []string{"no cuBLASLt (" + fakeCublasLt + ")", "pip install nvidia-cublas", "HETERO_CUDA_LIBS",
		"/nowhere, " + elsewhere,
		filepath.Dir(lib.Path()), "where the loader looks", "cuda]/lib64", "third_party/.cuda"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want %q in it", err, want)
		}
	}

	if err := os.WriteFile(filepath.Join(elsewhere, fakeCublasLt), []byte("cut off"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err = lib.Open(0, device.Options{}); err == nil || !strings.Contains(err.Error(), "file too short") {
		t.Errorf("a damaged library: got %v, want that the file is too short", err)
	}
	copyFile(t, "libcudnn_fake.so.9", elsewhere)
	if err := os.Rename(filepath.Join(elsewhere, "libcudnn_fake.so.9"),
		filepath.Join(elsewhere, fakeCublasLt)); err != nil {
		t.Fatal(err)
	}
	if _, err = lib.Open(0, device.Options{}); err == nil ||
		!strings.Contains(err.Error(), "has no function cublasLtGetVersion") {
		t.Errorf("another library of that name: got %v, want that it has no such function", err)
	}
	copyFile(t, fakeCublasLt, elsewhere+"/right")
	t.Setenv("HETERO_CUDA_LIBS", elsewhere+"/right")
	t.Setenv("HETERO_FAKE_CUBLASLT_VERSION", "120905")
	if _, err = lib.Open(0, device.Options{}); err == nil ||
		!strings.Contains(err.Error(), elsewhere+"/right/"+fakeCublasLt+": got version 12, want 13") {
		t.Errorf("an old library: got %v, want both versions", err)
	}
	t.Setenv("HETERO_FAKE_CUBLASLT_VERSION", "130000")
	open(t, lib) // Open searches for the library again, and finds it
}

func TestLibrariesAreFoundWhereToolkitsAndPythonPutThem(t *testing.T) {
	const prefix = "the environment of the wheel" // for this row, no environment variable is set
	for _, c := range []struct{ variable, root, folder string }{
		{"HETERO_CUDA_LIBS", "", ""},
		{"CUDA_HOME", "", "lib64"},
		{"CUDA_PATH", "", "lib"},
		{"VIRTUAL_ENV", "", "lib/python3.12/site-packages/nvidia/cu13/lib"},
		{"HOME", "", ".local/lib/python3.13/site-packages/nvidia/cublas/lib"},
		{"PATH", "bin", "lib/python3.11/dist-packages/nvidia/cu13/lib"},
		{prefix, "", "lib/python3.9/site-packages/nvidia/cu13/lib"},
	} {
		t.Run(c.variable, func(t *testing.T) {
			lib, root := freshShim(t), filepath.Join(t.TempDir(), "a [b]* c")
			if c.variable == prefix {
				root = filepath.Join(filepath.Dir(lib.Path()), "..", "..")
			}
			if _, err := lib.Open(0, device.Options{}); err == nil {
				t.Fatal("found a library before it was put anywhere")
			}
			copyFile(t, fakeCublasLt, filepath.Join(root, c.folder))
			if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, "bin", "python3"), nil, 0o755); err != nil {
				t.Fatal(err)
			}
			if c.variable != prefix {
				t.Setenv(c.variable, filepath.Join(root, c.root))
			}
			open(t, lib)
		})
	}
}

// products is the log of the matrix products that the fake cuBLASLt computes after the call of logProducts.
type products struct {
	t    *testing.T
	path string
}

func logProducts(t *testing.T) *products {
	p := &products{t, filepath.Join(t.TempDir(), "products")}
	t.Setenv("HETERO_FAKE_CUBLASLT_LOG", p.path)
	return p
}

// take returns the algorithms of the products that were computed since the last call.
func (p *products) take() []string {
	p.t.Helper()
	text, err := os.ReadFile(p.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.Remove(p.path); err != nil {
		p.t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// choices returns the path of the file in the user's cache folder that stores the chosen algorithms. There must be
// exactly one.
func choices(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "hetero-train", "choices", "*.tsv"))
	if err != nil || len(files) != 1 {
		t.Fatalf("got the files %v, %v, want one", files, err)
	}
	return files[0]
}

// linear compiles a layer of 3 samples, 5 inputs and 2 outputs.
func linear(dev device.Device) (device.Kernel, error) {
	return compiled(dev, device.Linear{}, device.Spec(tensor.F32, 3, 5), device.Spec(tensor.F32, 2, 5))
}

func compiled(dev device.Device, op device.Op, in ...device.TensorSpec) (device.Kernel, error) {
	out, err := op.Infer(in)
	if err != nil {
		return nil, err
	}
	return dev.Compile(op, in, out)
}

// runLinear runs a layer of f32 or bf16 on ones. offset is the number of bytes before each operand in its buffer.
func runLinear(t *testing.T, dev device.Device, k device.Kernel, offset int64) ([]float32, error) {
	t.Helper()
	place := func(bytes int64, alloc func(int64) (device.Buffer, error)) device.Region {
		b, err := alloc(bytes + offset)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Free() })
		return device.Region{Buffer: b, Offset: offset, Bytes: bytes}
	}
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	launch := device.Launch{Name: "layer", Kernel: k}
	for _, spec := range k.In() {
		host, r := place(spec.Size(), dev.AllocHost), place(spec.Size(), dev.Alloc)
		for i := range int(spec.Shape.Elements()) {
			if spec.DType == tensor.BF16 {
				copy(host.Host()[2*i:], []byte{0x80, 0x3f})
				continue
			}
			putFloat(host.Host()[4*i:], 1)
		}
		if err := s.Copy(r, host); err != nil {
			t.Fatal(err)
		}
		launch.In = append(launch.In, r)
	}
	size := k.Out()[0].Size()
	dst, host := place(size, dev.Alloc), place(size, dev.AllocHost)
	launch.Out = []device.Region{dst}
	if k.Workspace() > 0 {
		b, err := dev.Alloc(k.Workspace())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Free() })
		launch.Workspace = device.Whole(b)
	}
	p, err := dev.NewProgram([]device.Step{{Launch: &launch}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := s.RunTimed(p, make([]time.Duration, 1)); err != nil {
		return nil, err
	}
	if err := errors.Join(s.Copy(host, dst), s.Sync()); err != nil {
		t.Fatal(err)
	}
	values := make([]float32, k.Out()[0].Shape.Elements())
	for i := range values {
		if k.Out()[0].DType == tensor.BF16 {
			values[i] = getFloat(append([]byte{0, 0}, host.Host()[2*i:2*i+2]...))
			continue
		}
		values[i] = getFloat(host.Host()[4*i:])
	}
	return values, nil
}

func putFloat(p []byte, v float32) {
	bits := math.Float32bits(v)
	for i := range 4 {
		p[i] = byte(bits >> (8 * i))
	}
}

func getFloat(p []byte) float32 {
	return math.Float32frombits(uint32(p[0]) | uint32(p[1])<<8 | uint32(p[2])<<16 | uint32(p[3])<<24)
}

func wantAllFive(t *testing.T, values []float32, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range values {
		if v != 5 {
			t.Fatalf("element %d: got %v, want 5", i, v)
		}
	}
}

func TestFastestAlgorithmIsTakenAndRemembered(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	log := logProducts(t)
	first := open(t, freshShim(t, fakeCublasLt))
	k, err := linear(first)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if timed := log.take(); len(timed) < 6 {
		t.Fatalf("timed %v, want several of each algorithm", timed)
	}
	values, err := runLinear(t, first, k, 0)
	wantAllFive(t, values, err)
	if ran := log.take(); fmt.Sprint(ran) != "[3]" {
		t.Errorf("ran %v, want the algorithm that pretends to be fastest, 3", ran)
	}
	if again, err := linear(first); err != nil || again.Close() != nil || log.take() != nil {
		t.Errorf("the same op again: got %v, or it was timed again", err)
	}
	values, err = runLinear(t, first, k, 4)
	wantAllFive(t, values, err)
	if ran := log.take(); fmt.Sprint(ran) != "[4]" {
		t.Errorf("operands at odd addresses: ran %v, want the algorithm that takes them, 4", ran)
	}

	for _, c := range []struct{ name, text, want string }{
		{"as it was left", "", "[3]"},
		{"that prefers another", "hetero-train choices 1\ncuBLASLt 130100 product m2 n3 k5 f32 TN f32\ta2 tile0 stages0 split1 reduce0 swizzle0 custom0 inner0 cluster0\t1\n",
			"[2]"},
		{"of another version", "hetero-train choices 2\ncuBLASLt 130100 product m2 n3 k5 f32 TN f32\ta2\t1\n", "timed"},
		{"whose last line was cut off", "hetero-train choices 1\ncuBLASLt 130100 product m2 n3 k5 f32 TN f32\ta2",
			"timed"},
		{"with an algorithm that is not offered",
			"hetero-train choices 1\ncuBLASLt 130100 product m2 n3 k5 f32 TN f32\ta77\t1\n", "timed"},
		{"that is no text", "\x00\xff\n\t\t\t\n", "timed"},
	} {
		path := choices(t)
		if c.text != "" {
			if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		dev := open(t, freshShim(t, fakeCublasLt))
		k, err := linear(dev)
		if err != nil {
			t.Fatalf("a file %s: %v", c.name, err)
		}
		timed := log.take()
		if (c.want == "timed") != (len(timed) > 0) {
			t.Errorf("a file %s: timed %v", c.name, timed)
		}
		values, err := runLinear(t, dev, k, 0)
		wantAllFive(t, values, err)
		if ran := fmt.Sprint(log.take()); ran != c.want && c.want != "timed" || ran == "[3]" != (c.want != "[2]") {
			t.Errorf("a file %s: ran %v", c.name, ran)
		}
		k.Close()
		if text, err := os.ReadFile(path); err != nil || c.want == "timed" && !strings.Contains(string(text), "\ta3 ") {
			t.Errorf("a file %s: left %q, %v, want the choice in it", c.name, text, err)
		}
	}
}

func TestProcessesThatStartTogetherTimeOnce(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	log := logProducts(t)
	k, err := linear(open(t, freshShim(t, fakeCublasLt)))
	if err != nil {
		t.Fatal(err)
	}
	k.Close()
	alone := len(log.take())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var wait sync.WaitGroup
	for range 4 {
		dev := open(t, freshShim(t, fakeCublasLt))
		wait.Go(func() {
			k, err := linear(dev)
			if err != nil {
				t.Error(err)
				return
			}
			k.Close()
		})
	}
	wait.Wait()
	if got := len(log.take()); got != alone {
		t.Errorf("4 at once computed %d products, one alone %d", got, alone)
	}
}

// If there is no cache folder, the device must not time algorithms. Otherwise two processes could make different
// choices, and their results would not be bit-equal.
func TestWithoutACacheFolderNothingIsTimed(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/proc/no/such/place")
	log := logProducts(t)
	dev := open(t, freshShim(t, fakeCublasLt))
	k, err := linear(dev)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	log.take()
	if notes, want := dev.(device.Noting).Notes(),
		"algorithms are not chosen by timing, because the choices cannot be stored in /proc/no/such/place"; !strings.Contains(notes, want) {
		t.Errorf("got the notes %q, want %q", notes, want)
	}
	values, err := runLinear(t, dev, k, 0)
	wantAllFive(t, values, err)
	if ran := log.take(); fmt.Sprint(ran) != "[2]" {
		t.Errorf("ran %v, want the first algorithm that works, 2, not the fastest one, 3", ran)
	}
}

// The bias gradient is the sum of the rows of diff_dst. The cuBLASLt call of the product or a separate kernel computes
// it, whichever is faster. For types that cuBLASLt cannot sum, the separate kernel must do it. The fake cuBLASLt cannot
// sum f32.
func TestSumsComeFromTheFasterPass(t *testing.T) {
	for _, c := range []struct {
		told string
		dt   tensor.DType
		diff tensor.DType // type of diff_dst; if it is not dt, diff_dst is cast, but summed before the cast
		want string
	}{{"", tensor.BF16, tensor.BF16, "one pass a3"}, {"sums", tensor.BF16, tensor.BF16, "a3"},
		{"", tensor.F32, tensor.F32, "a3"},
		{"", tensor.BF16, tensor.F32, "a3"}} {
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		t.Setenv("HETERO_FAKE_CUBLASLT", c.told)
		dev := open(t, freshShim(t, fakeCublasLt))
		k, err := compiled(dev, device.LinearDiffWeights{Bias: true}, device.Spec(c.dt, 7, 4),
			device.Spec(c.diff, 7, 6))
		if err != nil {
			t.Fatal(err)
		}
		k.Close()
		text, err := os.ReadFile(choices(t))
		if err != nil || !strings.Contains(string(text), fmt.Sprintf("version 2 %v and sums\t%s ", c.diff, c.want)) {
			t.Errorf("%v, told %q: got %q, %v, want %q", c.dt, c.told, text, err, c.want)
		}
	}
}

// The cuBLASLt call of the product or a separate kernel adds the bias of a 16-bit layer, whichever is faster. Only the
// separate kernel needs an f32 workspace. Both must conform, and must support operands at odd addresses.
func TestBiasOfNarrowLayersComesFromTheFasterPass(t *testing.T) {
	for _, c := range []struct {
		told, want string
		wide       bool // the workspace has room for an f32 result
	}{{"", "one pass a3", false}, {"bias", "a3", true}, {"aligned", "one pass a3", true}} {
		t.Run(c.told+" "+c.want, func(t *testing.T) {
			t.Setenv("XDG_CACHE_HOME", t.TempDir())
			t.Setenv("HETERO_FAKE_CUBLASLT", c.told)
			t.Setenv("HETERO_SHIM_REVERSED", "1") // reveals an f32 product in the memory of the result
			lib := freshShim(t, fakeCublasLt)
			dev := open(t, lib)
			const rows, inputs, outputs = 64, 16, 128
			k, err := compiled(dev, device.Linear{}, device.Spec(tensor.BF16, rows, inputs),
				device.Spec(tensor.BF16, outputs, inputs), device.Spec(tensor.F32, outputs))
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
			if text, err := os.ReadFile(choices(t)); err != nil ||
				!strings.Contains(string(text), "and bias\t"+c.want+" ") {
				t.Errorf("got %q, %v, want %q", text, err, c.want)
			}
			if wide := k.Workspace() >= rows*outputs*4; wide != c.wide {
				t.Errorf("workspace: got %d bytes, want one with an f32 result of %d bytes: %t", k.Workspace(),
					rows*outputs*4, c.wide)
			}
			small, err := compiled(dev, device.Linear{}, device.Spec(tensor.BF16, 3, 4), device.Spec(tensor.BF16, 2, 4),
				device.Spec(tensor.F32, 2))
			if err != nil {
				t.Fatal(err)
			}
			defer small.Close()
			values, err := runLinear(t, dev, small, 4)
			wantAllFive(t, values, err) // 4 products of 1, and a bias of 1
			conform(t, lib, "/values/linear/^forward with bias ", tensor.BF16, 10)
			conform(t, lib, "/values/linear/^forward with bias ", tensor.F16, 10)
		})
	}
}

// The separate kernel sums the rows of a 16-bit gradient in pieces, and adjacent columns together.
func TestSeparateSumsOfRowsConform(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HETERO_FAKE_CUBLASLT", "sums")
	conform(t, freshShim(t, fakeCublasLt), "/values/linear/^diff_weights with bias ", tensor.BF16, 10)
}

func TestProductsThatCannotBeComputedAreTold(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dev := open(t, freshShim(t, fakeCublasLt))
	for told, want := range map[string]string{
		"none": "linear: cuBLASLt has no algorithm for product m2 n3 k5 f32 TN f32",
		"fail": "linear: none of 4 candidates works: a4 ",
	} {
		t.Setenv("HETERO_FAKE_CUBLASLT", told)
		if _, err := linear(dev); !errors.Is(err, device.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want ErrUnsupported with %q", told, err, want)
		}
	}
	t.Setenv("HETERO_FAKE_CUBLASLT", "")
	k, err := linear(dev)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	t.Setenv("HETERO_FAKE_CUBLASLT", "fail")
	if _, err := runLinear(t, dev, k, 0); !errors.Is(err, device.ErrDevice) ||
		!strings.Contains(err.Error(), "matrix product: cuBLASLt returned status 13, execution failed") {
		t.Errorf("got %v, want a failure of the device that names the product", err)
	}
}
