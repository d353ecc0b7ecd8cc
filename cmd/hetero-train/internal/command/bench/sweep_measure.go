package bench

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// Limits of the flags.
const (
	mostSeconds  = 600
	mostRounds   = 100
	mostSweeping = 1 << 20 // largest batch size
)

// leastSteps is the minimum number of timed steps, even if they take longer than --seconds.
const leastSteps = 3

// sweepFlags are the flags of bench sweep.
type sweepFlags struct {
	modelFlags
	batches    []int
	mostBatch  int
	precisions []string
	threadList []int
	seconds    float64
	rounds     int
	dir        string
}

// check returns an error for values of flags with which no measurement is possible.
func (f *sweepFlags) check() error {
	switch {
	case !(f.seconds > 0 && f.seconds <= mostSeconds):
		return exit.Usagef("bench sweep: --seconds: got %v, want more than 0, at most %d", f.seconds, mostSeconds)
	case f.rounds < 1 || f.rounds > mostRounds:
		return exit.Usagef("bench sweep: --rounds: got %d, want 1 to %d", f.rounds, mostRounds)
	case f.mostBatch < 1 || f.mostBatch > mostSweeping:
		return exit.Usagef("bench sweep: --most-batch: got %d, want 1 to %d", f.mostBatch, mostSweeping)
	case len(f.batches) > 0 && f.changed("most-batch"):
		return exit.Usagef("bench sweep: --most-batch limits the sizes that double; with --batch-sizes, leave it out")
	case f.dir == "":
		return exit.Usagef("bench sweep: --output-dir: got an empty name, want a folder")
	}
	for _, n := range f.batches {
		if n < 1 || n > mostSweeping {
			return exit.Usagef("bench sweep: --batch-sizes: got %d, want 1 to %d", n, mostSweeping)
		}
	}
	slices.Sort(f.batches)
	f.batches = slices.Compact(f.batches)
	for flag, n := range map[string]int{"precision": len(f.precisions), "threads": len(f.threadList)} {
		if n == 0 {
			return exit.Usagef("bench sweep: --%s: got an empty list, want at least one value", flag)
		}
	}
	return nil
}

// sweep is the state of a sweep.
type sweep struct {
	flags  *sweepFlags
	app    *cli.App
	facts  map[string]any // description of the device
	curves []*curve
}

// run measures all curves. The first round measures the batch sizes of each curve in ascending order. The next rounds
// measure all points again, alternately in descending and ascending order. run returns the first error of a
// measurement, or the cause of ctx if ctx has ended.
func (s *sweep) run(ctx context.Context) error {
	runtime.LockOSThread() // the threads of a device belong to the calling thread
	defer runtime.UnlockOSThread()
	for _, precision := range s.flags.precisions {
		for _, threads := range s.flags.threadList {
			s.curves = append(s.curves, &curve{asked: precision, threads: threads, Skipped: []int{}})
		}
	}
	for round := range s.flags.rounds {
		for _, c := range s.curves {
			if round == 0 {
				if err := s.explore(ctx, c); err != nil {
					return err
				}
				continue
			}
			sizes := slices.Clone(c.Points)
			if round%2 == 1 {
				slices.Reverse(sizes)
			}
			for _, p := range sizes {
				if err := s.measure(ctx, c, p, round); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// explore measures the batch sizes of a curve for the first time, in ascending order.
func (s *sweep) explore(ctx context.Context, c *curve) error {
	if err := s.inspect(ctx, c); err != nil {
		return err
	}
	for n := range s.sizes() {
		if n > c.LargestBatch {
			c.Skipped = append(c.Skipped, n)
			c.End = fmt.Sprintf("more than %d samples do not fit in the memory", c.LargestBatch)
			if len(s.flags.batches) == 0 {
				break
			}
			continue
		}
		p := &point{Batch: n}
		err := s.measure(ctx, c, p, 0)
		if memory := new(replica.MemoryError); errors.As(err, &memory) || errors.Is(err, device.ErrOutOfMemory) {
			c.Skipped = append(c.Skipped, n)
			c.End = fmt.Sprintf("the device refused the memory of %d samples", n)
			s.app.WarnOf(
				fmt.Sprintf("bench sweep: a batch of %d samples should fit, but the device refused the memory: %v", n,
					err))
			break
		}
		if err != nil {
			return err
		}
		c.Points = append(c.Points, p)
		if len(s.flags.batches) > 0 {
			continue
		}
		if c.End = c.over(); c.End != "" {
			break
		}
	}
	if len(c.Points) == 0 {
		return exit.With(exit.Device, fmt.Errorf("bench sweep: model %s: none of the batch sizes fits in the memory of the device; the largest that fits is %d",
			s.flags.model, c.LargestBatch))
	}
	return nil
}

// sizes yields the batch sizes of the first round.
func (s *sweep) sizes() iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, n := range s.flags.batches {
			if !yield(n) {
				return
			}
		}
		if len(s.flags.batches) > 0 {
			return
		}
		for n := 1; n <= s.flags.mostBatch; n *= 2 {
			if !yield(n) {
				return
			}
		}
	}
}

// open builds the model for a batch size of a curve.
func (s *sweep) open(ctx context.Context, c *curve, batch int) (*benchmark, error) {
	one := s.flags.modelFlags
	one.batch, one.precision, one.threads, one.steps = batch, c.asked, c.threads, 1
	return one.open(ctx)
}

// inspect determines the element type, the number of threads and the largest batch size of a curve.
func (s *sweep) inspect(ctx context.Context, c *curve) (err error) {
	s.app.Progress(fmt.Sprintf("searching the largest batch of %s that fits, precision %s", s.flags.model, c.asked))
	smallest := 1
	if len(s.flags.batches) > 0 {
		smallest = s.flags.batches[0]
	}
	b, err := s.open(ctx, c, smallest)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.closeAll()) }()
	s.flags.length, s.flags.vocabulary = b.flags.length, b.flags.vocabulary // instead of 0
	info := b.device.Info()
	if s.facts == nil {
		s.facts = deviceFacts(info)
		delete(s.facts, "threads") // each curve has its own number of threads
	}
	c.Precision, c.Threads, c.MemoryBytes = b.precision.String(), info.Threads, b.memory
	c.LargestBatch, err = b.replica.LargestFit(b.memory, mostSweeping)
	return err
}

// measure trains with one batch size for the duration of a measurement. It adds the times of the steps to the point.
func (s *sweep) measure(ctx context.Context, c *curve, p *point, round int) (err error) {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.app.Progress(fmt.Sprintf("round %d/%d: %s, batch %d", round+1, s.flags.rounds, c.name(), p.Batch))
	b, err := s.open(ctx, c, p.Batch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.closeAll()) }()
	var took []float64
	var begun time.Time
	for step := 0; step <= leastSteps || time.Since(begun).Seconds() < s.flags.seconds; step++ {
		if step == 1 {
			begun = time.Now() // begin after the first step, which includes page faults
		}
		from := time.Now()
		if _, err := b.replica.Step(ctx, b.loader, replica.StepOptions{Rate: b.config.Optimizer.LR}); err != nil {
			return exit.With(exit.Device, fmt.Errorf("bench sweep: batch %d: %w", p.Batch, err))
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if step > 0 {
			took = append(took, time.Since(from).Seconds())
		}
	}
	_, p.PeakBytes = b.device.Memory()
	p.add(took)
	return nil
}

// empty reports whether nothing was measured.
func (s *sweep) empty() bool {
	return !slices.ContainsFunc(s.curves, func(c *curve) bool { return len(c.Points) > 0 })
}
