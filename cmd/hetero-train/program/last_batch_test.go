package program

import (
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
)

func TestTheLastBatchOfAnEpoch(t *testing.T) {
	p := buildProgram(t)
	for _, c := range []struct {
		name string
		set  []string
		code int
		says []string
	}{
		{"left out", []string{"data.num_samples=50"}, exit.Done,
			[]string{"6 steps per epoch, which leave out 2 other samples", "done: 12 steps, 2.00 epochs"}},
		{"kept", []string{"data.num_samples=50", "data.drop_last=false"}, exit.Done,
			[]string{"7 steps per epoch, the last with 2 samples", "done: 14 steps, 2.00 epochs"}},
		{"kept, three ranks", []string{"data.num_samples=50", "data.drop_last=false", "parallel.ranks=3"}, exit.Done,
			[]string{"7 steps per epoch, the last with 2 samples", "done: 14 steps, 2.00 epochs"}},
		{"all batches are full", []string{"data.num_samples=48", "data.drop_last=false"}, exit.Done,
			[]string{"6 steps per epoch\n"}},
		{"fewer samples than a batch", []string{"data.num_samples=5", "data.drop_last=false"}, exit.Done,
			[]string{"1 step per epoch, the last with 5 samples", "done: 2 steps, 2.00 epochs"}},
		{"statistics of one sample", []string{"data.num_samples=49", "data.drop_last=false"}, exit.Done,
			[]string{"a micro-batch of 1 sample, from which BatchNorm computes its statistics"}},
		{"local statistics", []string{"data.num_samples=55", "data.drop_last=false", "parallel.ranks=2",
			"model.batch_norm=local", "train.grad_accumulation=2"}, exit.Usage,
			[]string{"7 samples, so micro-batches of 4 and of 3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if slices.Contains(c.set, "parallel.ranks=3") {
				nativetest.Need(t, "shm", "libhetero_shm.so")
			}
			set := append([]string{"train.steps=0", "train.epochs=2", "data.batch_size=8"}, c.set...)
			out := finish(t, p.command(t.TempDir(), set...), 0)
			for _, says := range c.says {
				if out.code != c.code || !strings.Contains(out.stdout+out.stderr, says) {
					t.Errorf("got exit code %d, want %d and %q in\n%s%s", out.code, c.code, says, out.stdout,
						out.stderr)
				}
			}
		})
	}
}
