package profiles

import (
	"os"
	"path/filepath"
	"testing"
)

// A user can name any file in profile.gpu_profiles. Reading it must give valid values or an error.
func FuzzRanks(f *testing.F) {
	f.Add([]byte(`{"schema_version":1,"fingerprint":"f","ranks":[{"rank":0,"fingerprint":"g","compute_score":2,"memory_bytes":5,"step_times":{"model":"m","points":[{"samples":1,"seconds":0.5}]}}]}`))
	f.Add([]byte(`{"schema_version":1,"fingerprint":"f","ranks":[{"rank":1,"compute_score":-1}]}`))
	f.Add([]byte(`{"schema_version":-9,"ranks":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := new(Ranks)
		if decode(text, p, &p.Origin) != nil || p.check() != nil {
			return
		}
		if len(p.Ranks) == 0 || p.Fingerprint == "" {
			t.Fatalf("accepted %s", text)
		}
		for _, r := range p.Ranks {
			if !positive(float64(r.ComputeScore)) || r.MemoryBytes <= 0 {
				t.Errorf("accepted rank %+v", r)
			}
		}
	})
}

// A damaged file of the cache must give an error or no values.
func FuzzCache(f *testing.F) {
	key := CacheKey{Fingerprint: "f", DeviceType: "cpu", DType: "f32", Program: "p"}
	f.Add([]byte(`{"schema_version":1,"key":{"fingerprint":"f","device_type":"cpu","dtype":"f32","program":"p"},"measured":{"tflops":1}}`))
	f.Add([]byte(`{"schema_version":1,"key":{},"measured":null}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, key.file()), text, 0o600); err != nil {
			t.Fatal(err)
		}
		kept, err := OpenCache(dir).Load(key)
		if err == nil && kept != nil && (!kept.Measured.TFLOPS.Known() || !kept.Measured.Memory.Copy.Known()) {
			t.Errorf("got %+v", kept)
		}
	})
}
