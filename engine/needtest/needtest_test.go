package needtest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// recorder is a test that stores how it ended.
type recorder struct {
	testing.TB
	end, text string
}

func (r *recorder) Helper() {}

func (r *recorder) stop(end, text string) {
	r.end, r.text = end, text
	runtime.Goexit()
}

func (r *recorder) Skip(args ...any)                 { r.stop("skip", fmt.Sprint(args...)) }
func (r *recorder) Skipf(format string, args ...any) { r.stop("skip", fmt.Sprintf(format, args...)) }
func (r *recorder) Fatal(args ...any)                { r.stop("fail", fmt.Sprint(args...)) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.stop("fail", fmt.Sprintf(format, args...))
}

// end runs a test on a recorder, and returns the recorder.
func end(test func(testing.TB)) *recorder {
	r, done := &recorder{end: "pass"}, make(chan struct{})
	go func() {
		defer close(done)
		test(r)
	}()
	<-done
	return r
}

func TestAMissingPartSkipsOrFails(t *testing.T) {
	program := func(t testing.TB) { Program(t, "chromium", "no-such-browser", "nor-this-one") }
	for _, c := range []struct {
		name, required string
		test           func(testing.TB)
		end, says      string
	}{
		{"not required", "cpu,shm", program, "skip",
			"needs chromium: there is no no-such-browser or nor-this-one in PATH (apt-get install chromium-headless-shell)"},
		{"required", "cpu,chromium", program, "fail", "HETERO_REQUIRE requires this part: needs chromium: "},
		{"a part of another name", "mpich", func(t testing.TB) { Missing(t, "openmpi", "no mpirun") }, "skip",
			"needs openmpi: no mpirun"},
		{"a misspelt requirement", "cpu,chromum", program, "fail",
			`HETERO_REQUIRE: unknown part "chromum", want some of amx, arm64, axe, `},
		{"a misspelt part", "", func(t testing.TB) { Missing(t, "chromum", "") }, "fail", `unknown part "chromum"`},
		{"a program that exists", "bash", func(t testing.TB) { Program(t, "bash", "no-such-shell", "sh") }, "pass", ""},
		{"one program of several", "", func(t testing.TB) { Programs(t, "tools", "sh", "no-such-tool") }, "skip",
			"no-such-tool"},
		{"data", "data", func(t testing.TB) { Data(t, "no", "such file") }, "fail", filepath.Join("no", "such file")},
		{"a tier", "", func(t testing.TB) { Large.Need(t, "takes an hour") }, "skip",
			"long: takes an hour; HETERO_LARGE=1 runs it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(Variable, c.required)
			t.Setenv(string(Large), "")
			t.Setenv("HETERO_DATA", t.TempDir())
			if r := end(c.test); r.end != c.end || !strings.Contains(r.text, c.says) {
				t.Errorf("got %s with %q, want %s with %q", r.end, r.text, c.end, c.says)
			}
		})
	}
	t.Setenv("HETERO_LIB_DIR", "build/lib")
	if r := end(program); r.end != "fail" ||
		!strings.Contains(r.text, `HETERO_LIB_DIR: got "build/lib", want an absolute path`) {
		t.Errorf("a relative folder: got %s with %q", r.end, r.text)
	}
	t.Setenv(string(Large), "1")
	if r := end(func(t testing.TB) { Large.Need(t, "takes an hour") }); r.end != "pass" {
		t.Errorf("a tier that is on: got %s with %q", r.end, r.text)
	}
}

func TestDataIsFound(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HETERO_DATA", dir)
	want := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(want, 0o755); err != nil {
		t.Fatal(err)
	}
	if r := end(func(t testing.TB) {
		if got := Data(t, "a", "b"); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}); r.end != "pass" {
		t.Error(r.text)
	}
}
