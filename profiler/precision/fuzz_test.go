package precision

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/cache"
)

// A damaged file of the cache must give an error, and never a choice that a run cannot use.
func FuzzLoad(f *testing.F) {
	f.Add(
		[]byte(`{"version":1,"key":"k","type":"bf16","Type":"bf16","micro_batches":2,"MicroBatches":2,"cap_bytes":5}`))
	f.Add([]byte(`{"version":1,"key":"k","micro_batches":-1,"cap_bytes":-1}`))
	f.Add([]byte(`{"version":2}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, cache.Name("k")), text, 0o600); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, cache.Name("k"))
		if choice, err := Open(dir).Load("k"); err == nil && choice.Type == "" {
			t.Errorf("%s: got %+v", path, choice)
		}
	})
}
