package runtime

import (
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func kept(t Thinning, steps []int64) (left []int64) {
	keep := t.Keep()
	for _, s := range steps {
		if keep(s) {
			left = append(left, s)
		}
	}
	return left
}

func TestOlderStepsKeepFewerRecords(t *testing.T) {
	if got, want := kept(Thinning{Last: 24, Window: 4}, upTo(24)),
		[]int64{1, 8, 9, 12, 16, 17, 18, 20, 21, 22, 23, 24}; !slices.Equal(got, want) {
		t.Errorf("got steps %v, want %v", got, want)
	}
	if got := kept(Thinning{Last: 24, Window: 24}, upTo(24)); len(got) != 24 {
		t.Errorf("a window of all steps removed some: %v", got)
	}
	if got := ThinningOf(nil); got.Window < 1 {
		t.Errorf("no steps: got %+v", got)
	}
}

// A file that is thinned repeatedly must keep its first and its newest steps, and must stay below its limit. The length
// of a gap must be at most a fraction of the age of its steps.
func TestAFileOfALongRunStaysSmall(t *testing.T) {
	var steps []int64
	const limit = 1000
	for step := int64(1); step <= 3_000_000; step++ {
		if steps = append(steps, step); len(steps) <= limit {
			continue
		}
		before := len(steps)
		steps = kept(ThinningOf(steps), steps)
		if len(steps) > before/2 {
			t.Fatalf("step %d: %d of %d records left", step, len(steps), before)
		}
	}
	last := steps[len(steps)-1]
	if steps[0] != 1 || last != 3_000_000 {
		t.Errorf("got steps %d to %d", steps[0], last)
	}
	for i := range steps[1:] {
		if gap, age := steps[i+1]-steps[i], last-steps[i]; gap > age/8+limit {
			t.Errorf("no record between steps %d and %d, %d steps before the end", steps[i], steps[i+1], age)
		}
	}
}

func TestThinnedFilesAreOneSeriesForReaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName(0))
	w, _ := mustOpen(t, path)
	appendAll(w, upTo(100)...)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	before := w.Size()
	steps, err := w.Steps()
	if err != nil || !slices.Equal(steps, upTo(100)) {
		t.Fatalf("got steps %v, %v", steps, err)
	}
	progress := 0
	appendAll(w, 101) // this record is in memory while the file is thinned
	if err := w.Thin(ThinningOf(steps), func() { progress++ }); err != nil {
		t.Fatal(err)
	}
	appendAll(w, 102)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	want := append(kept(ThinningOf(steps), append(upTo(100), 101)), 102)
	if got := iterations(t, path); !slices.Equal(got, want) {
		t.Errorf("got steps %v, want %v", got, want)
	}
	if w.Size() > before*2/3 {
		t.Errorf("the file has %d bytes, before %d", w.Size(), before)
	}
	if err := w.Truncate(50); err != nil { // simulates a resume
		t.Fatal(err)
	}
	if got := iterations(t, path); got[len(got)-1] > 50 {
		t.Errorf("after a resume at step 50: %v", got)
	}
	// The kept records must have the same total time and the same mean step time as all records.
	var times StepTimes
	elapsed := 0.0
	for _, i := range want {
		r := sample(i)
		r.StepTime, r.TrainingTime = 20*time.Millisecond, time.Duration(i)*20*time.Millisecond
		span := times.Next(&r, 1)
		elapsed = span.Elapsed
		if span.Seconds < 0.0199 || span.Seconds > 0.0201 {
			t.Errorf("step %d: %g s a step", i, span.Seconds)
		}
	}
	if elapsed < 2.039 || elapsed > 2.041 {
		t.Errorf("got %g s for 102 steps of 20 ms", elapsed)
	}
}

func TestALargeFileIsThinnedOutInPortions(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName(0))
	w, _ := mustOpen(t, path)
	for n := int64(1); n <= 30_000; n += 1000 {
		for i := range int64(1000) {
			appendAll(w, n+i)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	progress := 0
	size := w.Size()
	if err := w.Thin(Thinning{Last: 30_000, Window: 30_000}, func() { progress++ }); err != nil || w.Size() != size {
		t.Fatalf("got %d bytes of %d, %v", w.Size(), size, err)
	}
	if want := int(size / portionBytes); progress < want || want == 0 {
		t.Errorf("%d reports of progress for %d bytes, want at least %d", progress, size, want)
	}
}
