package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/timeline"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// fakeNoter is a device that records this number of kernels.
type fakeNoter struct{ kernels, stops int }

func (f *fakeNoter) StartActivity() error { return nil }

func (f *fakeNoter) StopActivity() (device.Activities, error) {
	f.stops++
	return device.Activities{Zero: time.Now(), List: make([]device.Activity, f.kernels)}, nil
}

// someBatches counts the batches that it returns, and fails after a given number of batches.
type someBatches struct {
	replica.Batches
	count, most int
}

var errNoMore = errors.New("there are no more")

func (s *someBatches) Next(ctx context.Context) (*data.Batch, error) {
	if s.count++; s.count > s.most {
		return nil, errNoMore
	}
	return s.Batches.Next(ctx)
}

// A recording must end exactly once, even after an error. Some steps capture the graphs of the device again. They must
// count neither as traced nor as untraced.
func TestRecordingEndsTheNoting(t *testing.T) {
	f := &modelFlags{
		deviceFlags: deviceFlags{kind: "reference", env: session.Environment{Catalog: parts.BuiltinCatalog}},
		model:       "simple_cnn", image: 8, classes: 10, batch: 4, optimizer: "auto", precision: "f32", steps: 1,
		accumulate: 1, traceSteps: 3}
	b, err := f.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.closeAll()
	batches := &someBatches{Batches: b.loader, most: 99}
	b.loader = batches
	unseen := func(time.Duration) {}
	if err := b.more(t.Context(), 1, unseen); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name          string
		kernels, most int
		steps         int
		want          error
	}{
		{"kernels", 2, 99, 5, nil},
		{"nothing noted", 0, 99, 5, observe.ErrNothingNoted},
		{"fails while it records", 2, 2, 3, errNoMore},
	} {
		noter := &fakeNoter{kernels: c.kernels}
		batches.count, batches.most = 0, c.most
		rec, _, err := b.record(t.Context(), &observe.Noting{ActivityNoter: noter})
		if !errors.Is(err, c.want) || noter.stops != 1 || batches.count != c.steps {
			t.Errorf("%s: got %v, %d stops and %d batches asked for, want %v, 1 and %d", c.name, err, noter.stops,
				batches.count, c.want, c.steps)
		}
		if c.want == nil && len(timeline.Explain(rec.Spans())) != f.traceSteps {
			t.Errorf("%s: got %d steps, want %d", c.name, len(timeline.Explain(rec.Spans())), f.traceSteps)
		}
	}
}
