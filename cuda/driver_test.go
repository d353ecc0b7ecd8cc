package cuda

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/nativelib"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

func TestWithoutLibraryThereIsNoDevice(t *testing.T) {
	if err := nativelib.Loadable(); err != nil {
		needtest.Missing(t, "cpu", err)
	}
	t.Setenv(nativelib.DirVariable, t.TempDir())
	os.Unsetenv(VisibleVariable)
	if _, err := (Driver{}).Open(0, device.Options{}); !errors.Is(err, device.ErrUnavailable) ||
		!strings.Contains(err.Error(), "CUDA device") || !strings.Contains(err.Error(), "(no "+LibraryName+" in /") {
		t.Errorf("open: got %v, want that the build has none, and where it was looked for", err)
	}
	if _, err := (Driver{}).Count(); !errors.Is(err, device.ErrUnavailable) {
		t.Errorf("count: got %v, want %v", err, device.ErrUnavailable)
	}
}

// If the machine has a driver, the error must state how to build the library.
func TestDriverWithoutLibraryIsSomethingToMend(t *testing.T) {
	file := filepath.Join(t.TempDir(), "version")
	if err := notBuilt(fs.ErrNotExist, []string{file}); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("without driver: got %v, want %v", err, ErrNotBuilt)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := notBuilt(fs.ErrNotExist, []string{file}); errors.As(err, new(device.AbsentError)) ||
		!strings.Contains(err.Error(), nativelib.Remedy("make cuda-toolchain && make CUDA=on", "docs/gpu.md")) {
		t.Errorf("with a driver: got %v, want how to build", err)
	}
}
