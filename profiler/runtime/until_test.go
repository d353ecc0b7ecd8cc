package runtime_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// When the caller of a reader has gone, the reader must not continue to the end of a long run.
func TestReadingEndsWithItsContext(t *testing.T) {
	const records = 4000
	path := filepath.Join(t.TempDir(), runtime.FileName(0))
	w, _, err := runtime.Open(path, runtime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for step := range int64(records) {
		w.Append(&runtime.Record{Iteration: step + 1, Telemetry: telemetry.Unknown()})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, c := range []struct {
		stop bool
		err  error
	}{{false, nil}, {true, context.Canceled}} {
		n := 0
		_, err := runtime.EachMetric(ctx, path, func(*runtime.Record) {
			if n++; c.stop {
				cancel()
			}
		})
		if !errors.Is(err, c.err) || (n == records) == c.stop || n == 0 {
			t.Errorf("%+v: got %d of %d records and %v", c, n, records, err)
		}
	}
}
