package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// take copies the next n batches of a loader.
func take(t fatal, l *Loader, n int) []imageBatch {
	t.Helper()
	var out []imageBatch
	for range n {
		b, err := l.Next(t.Context())
		if err != nil {
			t.Fatalf("batch %d: %v", len(out), err)
		}
		out = append(out, clone(b))
		b.Release()
	}
	return out
}

type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
	Context() context.Context
}

// join concatenates the shares of one batch.
func join(shares ...imageBatch) imageBatch {
	whole := shares[0]
	for _, s := range shares[1:] {
		whole.N += s.N
		whole.Images = append(whole.Images, s.Images...)
		whole.Labels = append(whole.Labels, s.Labels...)
		whole.SecondLabels = append(whole.SecondLabels, s.SecondLabels...)
		whole.Lambda = append(whole.Lambda, s.Lambda...)
		whole.IDs = append(whole.IDs, s.IDs...)
	}
	return whole
}

// reference computes the same batches as a loader, without workers, buffers or shares.
func reference(t fatal, o imageOptions, n int) []imageBatch {
	t.Helper()
	checked, _, err := o.options().normalized()
	if err != nil {
		t.Fatalf("%v", err)
	}
	o.Accumulation = checked.Accumulation
	if o.Transform, err = o.Transform.normalized(); err != nil {
		t.Fatalf("%v", err)
	}
	r, _ := o.Dataset.NewReader()
	defer r.Close()
	tr := o.Transform.prepared(o.Seed)
	part := o.BatchSize / o.Accumulation
	per := o.Dataset.Len() / o.BatchSize * o.Accumulation
	if o.KeepLast && o.Dataset.Len()%o.BatchSize > 0 {
		per += o.Accumulation
	}
	order := make([]int32, o.Dataset.Len())
	var out []imageBatch
	for step := int(o.Start); len(out) < n; step++ {
		epoch := step / per
		Permutation(order, o.Seed, epoch)
		first := min(step%per*part, len(order))
		size := min(part, len(order)-first)
		b := imageBatch{N: size, Total: size, Step: int64(step), Epoch: epoch}
		for _, i := range order[first:][:size] {
			var img Image
			tr.begin(epoch, int(i))
			if err := r.Read(int(i), &tr, &img); err != nil {
				t.Fatalf("%v", err)
			}
			dst := make([]byte, 3*o.Transform.Size*o.Transform.Size)
			tr.apply(dst, &img)
			b.Images = append(b.Images, dst...)
			b.Labels = append(b.Labels, int32(o.Dataset.Label(int(i))))
			b.IDs = append(b.IDs, int64(i))
		}
		mixed(&b, o, step%per*part)
		out = append(out, b)
	}
	return out
}

// mixed mixes a whole batch with a simple algorithm. first is the position of the first sample of b in the epoch.
func mixed(b *imageBatch, o imageOptions, first int) {
	if !o.Mix.Enabled() {
		return
	}
	if b.N == 0 {
		return
	}
	sample := len(b.Images) / b.N
	before := slices.Clone(b.Images)
	image := func(j int) []byte { return before[j*sample:][:sample] }
	for j := range b.N {
		partner := j + 1 - 2*(j%2)
		m := o.Mix.draw(o.Seed, b.Epoch, first+j, o.BatchSize, o.Transform.Size)
		if partner == b.N { // the last sample of an epoch may have no partner
			m = unmixed
		}
		b.SecondLabels, b.Lambda = append(b.SecondLabels, b.Labels[j]), append(b.Lambda, m.lambda)
		if m.lambda == 1 {
			continue
		}
		b.SecondLabels[j] = b.Labels[partner]
		for k := range sample {
			own, other := float64(image(j)[k]), float64(image(partner)[k])
			x, y := k/3%o.Transform.Size, k/3/o.Transform.Size
			v := math.Floor(own*float64(m.lambda) + other*(1-float64(m.lambda)) + 0.5)
			if m.cut {
				v = own
				if x >= m.box.x && x < m.box.x+m.box.w && y >= m.box.y && y < m.box.y+m.box.h {
					v = other
				}
			}
			b.Images[j*sample+k] = byte(v)
		}
	}
}

func TestBatchesDependNeitherOnWorkersNorDepthNorSplitNorPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := imageOptions{
			Dataset:   &fake{samples: rapid.IntRange(30, 120).Draw(t, "samples"), size: 4, classes: 5},
			Transform: augmented,
			Seed:      rapid.Uint64().Draw(t, "seed"),
			BatchSize: 12 * rapid.IntRange(1, 2).Draw(t, "batch/12"),
			Mix:       rapid.SampledFrom(mixings).Draw(t, "mixing"),
		}
		o.Accumulation = rapid.SampledFrom([]int{1, 2, 3}).Draw(t, "accumulation")
		o.Start = int64(rapid.IntRange(0, 30).Draw(t, "start"))
		o.KeepLast = rapid.Bool().Draw(t, "keep the last batch")
		const n = 12
		want := reference(t, o, n)
		part := o.BatchSize / o.Accumulation
		cut := rapid.IntRange(0, part).Draw(t, "cut")
		var got [2][]imageBatch
		for rank, share := range [][2]int{{0, cut}, {cut, part - cut}} {
			o := o
			o.Workers, o.Depth = rapid.IntRange(1, 4).Draw(t, "workers"), rapid.IntRange(2, 6).Draw(t, "depth")
			l, err := open(o)
			if err != nil {
				t.Fatalf("%v", err)
			}
			if err := l.SetShare(o.Start, share[0], share[1]); err != nil {
				t.Fatalf("%v", err)
			}
			got[rank] = take(t, l, n)
			if err := l.Close(); err != nil {
				t.Fatalf("%v", err)
			}
		}
		for i := range want {
			if whole := join(got[0][i], got[1][i]); !whole.equal(want[i]) {
				t.Fatalf("batch %d: got %+v, want %+v", i, whole, want[i])
			}
		}
	})
}

func TestResumedLoaderContinuesAsIfNeverStopped(t *testing.T) {
	for _, mix := range mixings {
		o := imageOptions{Dataset: &fake{samples: 50, size: 4, classes: 3}, Transform: augmented, Mix: mix, Seed: 4,
			BatchSize: 8, Workers: 3}
		whole := take(t, newLoader(t, o), 20)
		o.Start, o.Workers = 9, 1
		rest := take(t, newLoader(t, o), 11)
		for i, b := range rest {
			if !b.equal(whole[9+i]) {
				t.Fatalf("%+v: batch %d: got %+v, want %+v", mix, 9+i, b, whole[9+i])
			}
		}
	}
}

func TestWithKeepLastTrainingUsesEachSampleOnceAnEpoch(t *testing.T) {
	for _, accumulation := range []int{1, 2, 4} {
		l := newLoader(t, imageOptions{Dataset: &fake{samples: 50, size: 4}, Transform: augmented, Seed: 1,
			BatchSize: 8, Accumulation: accumulation, KeepLast: true})
		for epoch := range 3 {
			seen := map[int64]bool{}
			for i := range 7 * accumulation {
				b, err := l.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				step, part := i/accumulation, i%accumulation
				want := 8 / accumulation
				if step == 6 {
					want = min(max(2-part*want, 0), want)
				}
				if b.N != want || b.Total != want || b.Epoch != epoch || b.StepSamples != []int{8, 2}[step/6] {
					t.Errorf("epoch %d, step %d, part %d: got %d of %d samples, %d in the step, want %d", b.Epoch, step,
						part, b.N, b.Total, b.StepSamples, want)
				}
				for _, id := range b.IDs {
					seen[id] = true
				}
				b.Release()
			}
			if len(seen) != 50 {
				t.Errorf("epoch %d has %d samples, want all 50", epoch, len(seen))
			}
		}
	}
}

func TestTrainingUsesEachSampleAtMostOnceAnEpochAndDropsTheRest(t *testing.T) {
	l := newLoader(t, imageOptions{Dataset: &fake{samples: 50, size: 4}, Transform: augmented, Seed: 1, BatchSize: 8})
	if l.BatchesPerEpoch() != 6 {
		t.Fatalf("%d batches an epoch, want 6", l.BatchesPerEpoch())
	}
	for epoch := range 3 {
		seen := map[int64]bool{}
		for _, b := range take(t, l, 6) {
			if b.Epoch != epoch {
				t.Fatalf("epoch is %d, want %d", b.Epoch, epoch)
			}
			for _, id := range b.IDs {
				if seen[id] {
					t.Fatalf("epoch %d: sample %d twice", epoch, id)
				}
				seen[id] = true
			}
		}
	}
}

func TestEvaluationReadsEverySampleInOrderAndKeepsTheRest(t *testing.T) {
	for _, c := range []struct {
		name          string
		offset, count int
		want          [][]int64
	}{
		{"whole", 0, 4, [][]int64{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}}},
		{"first of two ranks", 0, 1, [][]int64{{0}, {4}, {8}}},
		{"second of two ranks", 1, 3, [][]int64{{1, 2, 3}, {5, 6, 7}, {9}}},
		{"rank without a share of the rest", 3, 1, [][]int64{{3}, {7}, {}}},
		{"rank without samples", 0, 0, [][]int64{{}, {}, {}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLoader(t, imageOptions{Dataset: &fake{samples: 10, size: 4}, Transform: Transform{Size: 4},
				BatchSize: 4,
				Evaluate:  true, Share: &Share{c.offset, c.count}, Workers: 2})
			for pass := range 3 {
				for step, want := range c.want {
					b, err := l.Next(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if !slices.Equal(b.IDs, want) || b.N != len(want) || b.Total != min(4, 10-4*step) {
						t.Fatalf("pass %d, batch %d: samples %v of %d, want %v", pass, step, b.IDs, b.Total, want)
					}
					b.Release()
				}
				for range 2 {
					if _, err := l.Next(t.Context()); err != io.EOF {
						t.Fatalf("after the last batch: %v, want io.EOF", err)
					}
				}
				if err := l.JumpTo(0); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestNextEndsWithItsContextAndWithClose(t *testing.T) {
	f := &fake{samples: 8, size: 4, gate: make(chan struct{})}
	openGate := sync.OnceFunc(func() { close(f.gate) })
	defer openGate() // so that the loader can stop
	l := newLoader(t, imageOptions{Dataset: f, Transform: Transform{Size: 4}, BatchSize: 8, Workers: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := l.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, want the context's error", err)
	}
	openGate()
	if _, err := l.Next(t.Context()); err != nil {
		t.Fatalf("after a cancelled wait: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Next(t.Context()); err != ErrClosed {
		t.Fatalf("got %v, want ErrClosed", err)
	}
}

func TestHoldingEveryBatchIsAnErrorInsteadOfAHang(t *testing.T) {
	l := newLoader(t, imageOptions{Dataset: &fake{samples: 80, size: 4}, Transform: augmented, BatchSize: 8, Depth: 2})
	for range 2 {
		if _, err := l.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "the caller holds all 2 batches") {
		t.Fatalf("got %v", err)
	}
}

func TestCloseLeavesNoGoroutineAndNoReader(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, delay := range []time.Duration{0, time.Millisecond} {
		f := &fake{samples: 500, size: 4, delay: delay}
		l, err := open(imageOptions{Dataset: f, Transform: augmented, BatchSize: 50, Workers: 8})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.Close(), l.Close()); err != nil {
			t.Fatal(err)
		}
		if n := f.open.Load(); n != 0 {
			t.Errorf("%d readers are open", n)
		}
	}
	waitFor(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

func TestBuffersComeFromAllocAndGoBack(t *testing.T) {
	live, bytesEach := 0, 0
	alloc := func(n int) ([]byte, func(), error) {
		live++
		bytesEach = n
		m, _, err := heapMemory(n)
		return m, func() { live-- }, err
	}
	o := imageOptions{Dataset: &fake{samples: 80, size: 4}, Transform: augmented, BatchSize: 10, Depth: 3, Alloc: alloc}
	l := newLoader(t, o)
	if want := 128 + 64 + 10*48; live != 3 || bytesEach != want { // ids and labels are padded to 64 bytes
		t.Errorf("%d buffers of %d bytes, want 3 of %d", live, bytesEach, want)
	}
	take(t, l, 5)
	if err := l.Close(); err != nil || live != 0 {
		t.Errorf("after Close: %d buffers, %v", live, err)
	}
	o.Alloc = func(n int) ([]byte, func(), error) {
		if live == 1 {
			return nil, nil, io.ErrShortBuffer
		}
		return alloc(n)
	}
	if _, err := open(o); !errors.Is(err, io.ErrShortBuffer) || live != 0 {
		t.Errorf("failing allocation: %v, %d buffers left", err, live)
	}
}

func TestWrongOptionsAreAllReported(t *testing.T) {
	ds := &fake{samples: 10, size: 4}
	good := imageOptions{Dataset: ds, Transform: Transform{Size: 4}, BatchSize: 4}
	for _, c := range []struct {
		name   string
		change func(*imageOptions)
		want   string
	}{
		{"no data set", func(o *imageOptions) { o.Dataset = nil }, "no data set"},
		{"batch size", func(o *imageOptions) { o.BatchSize = -1 }, "batch size is -1, want 1"},
		{"batch larger than the data", func(o *imageOptions) { o.BatchSize = 11 },
			"got 10 samples, want at least one batch of 11: lower data.batch_size, set data.drop_last = false, or raise data.num_samples"},
		{"accumulation", func(o *imageOptions) { o.Accumulation = 3 }, "batch size 4 cannot be cut into 3"},
		{"accumulated evaluation", func(o *imageOptions) { o.Accumulation, o.Evaluate = 2, true },
			"an evaluation has no accumulation"},
		{"share", func(o *imageOptions) { o.Share = &Share{2, 3} },
			"the share of 3 samples from sample 2 is outside a batch of 4"},
		{"overflowing share", func(o *imageOptions) { o.Share = &Share{1 << 62, 1 << 62} }, "is outside"},
		{"share above the largest", func(o *imageOptions) { o.Share, o.MaxCount = &Share{0, 3}, 2 },
			"want at most 2 (MaxCount)"},
		{"largest share", func(o *imageOptions) { o.MaxCount = 5 }, "largest share is 5 samples, want 1 to 4"},
		{"start", func(o *imageOptions) { o.Start = -1 }, "first batch is -1"},
		{"start beyond the evaluation", func(o *imageOptions) { o.Start, o.Evaluate = 4, true },
			"first batch is 4, want at most 3"},
		{"workers", func(o *imageOptions) { o.Workers = -2 }, "-2 workers"},
		{"depth", func(o *imageOptions) { o.Depth = 1 }, "depth is 1"},
		{"transform", func(o *imageOptions) { o.Transform.Size = 0 }, "image size is 0"},
		{"two at once", func(o *imageOptions) { o.Workers, o.Depth = -2, 1 }, "depth is 1"},
	} {
		o := good
		c.change(&o)
		if _, err := open(o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	l := newLoader(t, good)
	take(t, l, 1)
	for name, err := range map[string]error{
		"share in the past":  l.SetShare(0, 0, 1),
		"share outside":      l.SetShare(5, 4, 1),
		"jump before zero":   l.JumpTo(-1),
		"negative share":     l.SetShare(5, 0, -1),
		"share before start": l.SetShare(5, -1, 1),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The steps include ends of epochs and changes of shares. There are several workers.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	synthetic, err := Synthetic(SyntheticOptions{Train: 2000, Eval: 1})
	if err != nil {
		t.Fatal(err)
	}
	l := newLoader(t, imageOptions{Dataset: Cached(synthetic.Train, 0),
		Transform: Transform{Crop: PadCrop, Size: 32, Pad: 4, Flip: true},
		BatchSize: 100, MaxCount: 80, Workers: 2, Share: &Share{0, 50}})
	ctx := t.Context()
	step := int64(0)
	next := func() {
		if step%7 == 0 {
			if err := l.SetShare(step+2, int(step%20), 40+int(step%40)); err != nil {
				t.Fatal(err)
			}
		}
		b, err := l.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
		step++
	}
	for range 100 {
		next() // this call also fills the caches and buffers
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const steps = 400
	for range steps {
		next()
	}
	runtime.ReadMemStats(&after)
	// The Go runtime sometimes allocates (timers, stack growth). The total is a few objects, not one per step.
	if n := after.Mallocs - before.Mallocs; n > steps/20 {
		t.Errorf("%d allocations in %d steps", n, steps)
	}
}

func BenchmarkLoader(b *testing.B) {
	synthetic, err := Synthetic(SyntheticOptions{Train: 10_000, Eval: 1})
	if err != nil {
		b.Fatal(err)
	}
	for name, ds := range map[string]Dataset{"cached": Cached(synthetic.Train, 0), "synthetic": synthetic.Train} {
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/workers=%d", name, workers), func(b *testing.B) {
				l := newLoader(b,
					imageOptions{Dataset: ds, Transform: Transform{Crop: PadCrop, Size: 32, Pad: 4, Flip: true},
						BatchSize: 256, Workers: workers})
				for range l.BatchesPerEpoch() {
					next(b, l).Release()
				}
				for b.Loop() {
					next(b, l).Release()
				}
				b.ReportMetric(256*float64(b.N)/b.Elapsed().Seconds(), "images/s")
			})
		}
	}
}

func TestStagesCountEveryImage(t *testing.T) {
	var stages Stages
	o := imageOptions{Dataset: &fake{samples: 40, size: 4}, Transform: augmented, BatchSize: 8, Workers: 2, Depth: 2,
		Stages: &stages}
	plain := o
	plain.Stages = nil
	want := take(t, newLoader(t, plain), 3)
	l := newLoader(t, o)
	for i, b := range take(t, l, 3) {
		if !b.equal(want[i]) {
			t.Errorf("batch %d differs from the one that was not timed", i)
		}
	}
	waitFor(t, "five batches to be read", func() bool { return stages.Images.Load() == 40 })
	if stages.Decode.Load() <= 0 || stages.Resample.Load() <= 0 || stages.Augment.Load() <= 0 {
		t.Errorf("got %d, %d and %d ns", stages.Decode.Load(), stages.Resample.Load(), stages.Augment.Load())
	}
}
