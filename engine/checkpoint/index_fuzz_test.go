package checkpoint

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzIndex opens an index of sharded weights. The only other file in its folder is not a safetensors file.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":4},"weight_map":{"a":"other.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../../etc/passwd","b":"/dev/zero","c":""}}`))
	f.Add([]byte(`{"weight_map":null}`))
	dir := f.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "other.safetensors"), []byte("none"), 0o600); err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(dir, "model.safetensors.index.json")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if file, err := openIndex(path); err == nil {
			t.Errorf("accepted %q with %d files", text, len(file.files()))
		}
	})
}
