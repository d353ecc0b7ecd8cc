package experiment

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// FuzzRunFiles reads the result, the start and the lock in the folder of an untrusted run.
func FuzzRunFiles(f *testing.F) {
	f.Add([]byte(`{"status":"done","steps":10,"start":"a","metrics":{"top1":0.5},"loss":null}`), []byte(`{"id":"a"}`),
		[]byte(`{"pid":7,"host":"h","since":"2026-01-02T03:04:05Z"}`))
	f.Add([]byte(`{"steps":-1}`), []byte("null"), []byte("{"))
	dir := f.TempDir()
	for _, sub := range []string{resultsFolder, "logs"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			f.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { root.Close() })
	f.Fuzz(func(t *testing.T, result, start, lock []byte) {
		for name, text := range map[string][]byte{resultsFolder + "/result.json": result, startFile: start,
			".lock": lock} {
			if err := root.WriteFile(name, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if read, err := readResult(root, dir, "result.json"); err == nil {
			if _, err := json.Marshal(read); err != nil {
				t.Errorf("a result that was read cannot be written: %v", err)
			}
		}
		if begun, err := ReadStart(root); err == nil {
			if _, err := json.Marshal(begun); err != nil {
				t.Errorf("a start that was read cannot be written: %v", err)
			}
		}
		held, err := root.Open(".lock")
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		readHolder(held)
	})
}
