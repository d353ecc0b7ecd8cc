package curves

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/cache"
)

// A damaged file of the cache must give an error, and never a curve that a balancer cannot use.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"version":1,"key":"k","points":[[1,0.1],[8,0.5]]}`))
	f.Add([]byte(`{"version":1,"key":"k","points":[[1,-1],[1e308,1e308],[0,0]]}`))
	f.Add([]byte(`{"version":2}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, cache.Name("k")), text, 0o600); err != nil {
			t.Fatal(err)
		}
		curve, err := Open(dir).Load("k")
		if err == nil && (len(curve) == 0 || curve.Check() != nil) {
			t.Errorf("got %v", curve)
		}
	})
}
