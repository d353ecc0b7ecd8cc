package nativelib

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// If /proc is missing, os.Executable fails. The program must then be found by os.Args.
func TestProgramWithoutProc(t *testing.T) {
	lost := func() (string, error) { return "", fs.ErrNotExist }
	first := os.Args[0]
	defer func() { os.Args[0] = first }()
	want, err := filepath.Abs(first)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(want))
	for _, os.Args[0] = range []string{first, filepath.Base(first)} {
		if got, err := program(lost); got != want || err != nil {
			t.Errorf("first argument %q: got %q, %v, want %q", os.Args[0], got, err, want)
		}
	}
	os.Args[0] = "not a program"
	if got, err := program(lost); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("first argument %q: got %q, %v, want the error of the system", os.Args[0], got, err)
	}
}

// A user of a release has no Makefile. Messages to this user must not ask for make.
func TestOnlyAProgramWhereMakeBuildsAsksForMake(t *testing.T) {
	for _, c := range []struct {
		name  string
		files []string
		make  bool
	}{
		{"checkout", []string{"Makefile", "go.mod", "CMakeLists.txt", "build/lib/libhetero_cpu.so"}, true},
		{"build folder", []string{"CMakeCache.txt", "lib/libhetero_cpu.so", "Makefile"}, true},
		{"release", []string{"lib/hetero-train/libhetero_cpu.so"}, false},
		{"another project's folder", []string{"Makefile", "go.mod"}, false},
		{"folder of programs", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range c.files {
				path := filepath.Join(dir, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got := remedy(dir, "make CUDA=on", "docs/gpu.md")
			if c.make && got != "run: make CUDA=on" {
				t.Errorf("got %q, want the command", got)
			}
			if !c.make && (strings.Contains(got, "make ") || !strings.Contains(got, "docs/gpu.md")) {
				t.Errorf("got %q, want the page and no make", got)
			}
			if got := missing("libhetero_cpu.so", dir, []string{dir}, ""); strings.Contains(got,
				"run: make") != c.make {
				t.Errorf("got %q, want make: %v", got, c.make)
			}
		})
	}
}

func TestAWrongVariableIsNamedAsTheReason(t *testing.T) {
	got := missing("libhetero_cpu.so", t.TempDir(), []string{"/elsewhere"}, "/elsewhere")
	for _, want := range []string{"no libhetero_cpu.so in /elsewhere", "correct or unset " + DirVariable} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want it to say %q", got, want)
		}
	}
}
