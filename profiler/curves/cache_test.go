package curves_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/profiler/curves"
)

var line = divide.Curve{{Samples: 8, Seconds: 0.1}, {Samples: 64, Seconds: 0.5}}

func TestCurveComesBack(t *testing.T) {
	cache := curves.Open(filepath.Join(t.TempDir(), "not", "yet"))
	if c, err := cache.Load("key"); c != nil || err != nil {
		t.Fatalf("unknown key: got %v, %v, want nothing", c, err)
	}
	if err := cache.Store("key", line); err != nil {
		t.Fatal(err)
	}
	if c, err := cache.Load("key"); err != nil || !slices.Equal(c, line) {
		t.Errorf("got %v, %v, want %v", c, err, line)
	}
	if c, err := cache.Load("another key"); c != nil || err != nil {
		t.Errorf("another key: got %v, %v, want nothing", c, err)
	}
}

func TestDamagedFileIsNamedAndRebuilt(t *testing.T) {
	for _, damage := range []struct{ name, text, want string }{
		{"cut off", `{"version":1,"key":"ke`, "unexpected end of JSON"},
		{"empty", ``, "unexpected end of JSON"},
		{"of a later version", `{"version":2,"key":"key","points":[[1,1]]}`, "got version 2, want 1"},
		{"of another key", `{"version":1,"key":"yek","points":[[1,1]]}`, `got the curve of "yek"`},
		{"without points", `{"version":1,"key":"key","points":[]}`, "got 0 points"},
		{"with points that go back", `{"version":1,"key":"key","points":[[2,1],[1,1]]}`, "point 1"},
		{"with a negative time", `{"version":1,"key":"key","points":[[2,-1]]}`, "point 0"},
	} {
		dir := t.TempDir()
		cache := curves.Open(dir)
		if err := cache.Store("key", line); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("got the files %v, %v, want one", files, err)
		}
		if err := os.WriteFile(files[0], []byte(damage.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if c, err := cache.Load("key"); c != nil || err == nil || !strings.Contains(err.Error(), damage.want) ||
			!strings.Contains(err.Error(), files[0]) {
			t.Errorf("%s: got %v, %v, want an error with %q and the file", damage.name, c, err, damage.want)
		}
		if err := cache.Store("key", line); err != nil {
			t.Fatal(err)
		}
		if c, err := cache.Load("key"); err != nil || !slices.Equal(c, line) {
			t.Errorf("%s, stored again: got %v, %v", damage.name, c, err)
		}
	}
}

func TestCurveThatIsNoneIsNotStored(t *testing.T) {
	dir := t.TempDir()
	if err := curves.Open(dir).Store("key", nil); err == nil {
		t.Error("stored a curve without points")
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 0 {
		t.Errorf("left %v", files)
	}
}
