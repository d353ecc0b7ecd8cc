package data

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// read returns the pixels of sample i.
func read(t testing.TB, ds Dataset, i int) []byte {
	t.Helper()
	r, err := ds.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var img Image
	if err := r.Read(i, nil, &img); err != nil {
		t.Fatal(err)
	}
	if len(img.Pix) != 3*img.Width*img.Height {
		t.Fatalf("%d bytes for %d x %d pixels", len(img.Pix), img.Width, img.Height)
	}
	return slices.Clone(img.Pix)
}

func TestLimitedIsBalancedNestedAndOrdered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels := rapid.SliceOfN(rapid.IntRange(0, 4), 1, 200).Draw(t, "labels")
		ds := &labelled{fake: fake{samples: len(labels), size: 1, classes: 5}, labels: labels}
		available := make([]int, 5)
		for _, c := range labels {
			available[c]++
		}
		var smaller []int32
		for n := 1; n < len(labels); n += rapid.IntRange(1, 20).Draw(t, "step") {
			part := Limited(ds, n).(*subset)
			if part.Len() != n || !slices.IsSorted(part.index) {
				t.Fatalf("part of %d samples: %v", n, part.index)
			}
			taken := make([]int, 5)
			for i := range n {
				taken[part.Label(i)]++
			}
			// A class may have two samples more than another class only if all samples of the other class are taken.
			for a := range taken {
				for b := range taken {
					if taken[a] > taken[b]+1 && taken[b] < available[b] {
						t.Fatalf("part of %d takes %v of %v", n, taken, available)
					}
				}
			}
			for _, i := range smaller {
				if _, ok := slices.BinarySearch(part.index, i); !ok {
					t.Fatalf("sample %d of a smaller part is missing in the part of %d", i, n)
				}
			}
			smaller = part.index
		}
		if Limited(ds, 0) != Dataset(ds) || Limited(ds, len(labels)) != Dataset(ds) {
			t.Fatal("the whole data set is not itself")
		}
	})
}

type labelled struct {
	fake
	labels []int
}

func (l *labelled) Label(i int) int { return l.labels[i] }

func TestLimitedReadsTheSamplesItStandsFor(t *testing.T) {
	ds := &fake{samples: 60, size: 2, classes: 4}
	part := Limited(ds, 10)
	for i := range part.Len() {
		k := int(part.(*subset).index[i])
		if !bytes.Equal(read(t, part, i), read(t, ds, k)) || part.Label(i) != ds.Label(k) {
			t.Errorf("sample %d is not sample %d", i, k)
		}
	}
}

func TestCachedReadsEachSampleOnce(t *testing.T) {
	f := &fake{samples: 20, size: 5}
	ds := Cached(f, 0)
	for range 3 {
		for i := range 20 {
			if !bytes.Equal(read(t, ds, i), read(t, &fake{samples: 20, size: 5}, i)) {
				t.Fatalf("sample %d differs", i)
			}
		}
	}
	if n := f.reads.Load(); n != 20 {
		t.Errorf("%d reads for 20 samples", n)
	}
}

func TestCachedKeepsToItsLimitAndToSmallImages(t *testing.T) {
	const entry = 8 + 3*100*100
	for _, c := range []struct {
		name  string
		size  int
		limit int64
		kept  int64
	}{
		{"room for three and a half", 100, 3*entry + entry/2, 3},
		{"nothing fits", 100, entry - 1, 0},
		{"two slabs", 100, 2 * slabBytes, 2 * (slabBytes / entry)},
		{"largest image that is kept", 256, 1 << 30, 300},
		{"too large to be kept", 257, 1 << 30, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fake{samples: 300, size: c.size}
			ds := Cached(f, c.limit)
			for range 2 {
				r, err := ds.NewReader()
				if err != nil {
					t.Fatal(err)
				}
				for i := range 300 {
					var img Image
					if err := r.Read(i, nil, &img); err != nil || img.Pix[0] != byte(i) {
						t.Fatalf("sample %d: %v, first byte %d", i, err, img.Pix[0])
					}
				}
			}
			if kept := 600 - f.reads.Load(); kept != c.kept {
				t.Errorf("%d samples were kept, want %d", kept, c.kept)
			}
		})
	}
	if f := new(fake); Cached(f, -1) != Dataset(f) {
		t.Error("a negative limit does not switch the cache off")
	}
}

func TestCachedServesConcurrentReaders(t *testing.T) {
	ds := Cached(&fake{samples: 200, size: 40}, 150*(8+3*40*40))
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			r, err := ds.NewReader()
			if err != nil {
				t.Error(err)
				return
			}
			for k := range 1000 {
				var img Image
				i := k * 7 % 200
				if err := r.Read(i, nil, &img); err != nil || img.Pix[3] != byte(i+1) {
					t.Errorf("sample %d: %v", i, err)
				}
			}
		})
	}
	wait.Wait()
}

func TestSplitsLimitAndCacheBothParts(t *testing.T) {
	train, eval := &fake{samples: 90, size: 10, classes: 3}, &fake{samples: 10, size: 10, classes: 3}
	s := Splits{Train: train, Eval: eval}.Cached(50 * (8 + 300)).Limited(30)
	if s.Train.Len() != 30 || s.Eval.Len() != 10 {
		t.Errorf("%d and %d samples, want 30 and 10", s.Train.Len(), s.Eval.Len())
	}
	for range 2 {
		for i := range 10 {
			read(t, s.Eval, i)
		}
	}
	if n := eval.reads.Load(); n != 15 {
		t.Errorf("%d reads of the evaluation part, want 10 and 5 that found no room", n)
	}
	alone := Splits{Train: train}.Cached(0).Limited(5)
	if alone.Eval != nil || alone.Train.Len() != 5 || alone.Close() != nil {
		t.Error("a data set without an evaluation part is not left without")
	}
}

func TestSyntheticSamplesAreFunctionsOfSeedPartAndIndex(t *testing.T) {
	make := func(o SyntheticOptions) Splits {
		o.Eval = 50
		s, err := Synthetic(o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := make(SyntheticOptions{Seed: 1, Train: 100})
	base := read(t, s.Train, 42)
	if !bytes.Equal(base, read(t, make(SyntheticOptions{Seed: 1, Train: 5000}).Train, 42)) {
		t.Error("the number of samples changes a sample")
	}
	if !bytes.Equal(base, read(t, s.Train, 42)) {
		t.Error("two reads differ")
	}
	for name, other := range map[string][]byte{
		"seed":  read(t, make(SyntheticOptions{Seed: 2, Train: 100}).Train, 42),
		"part":  read(t, s.Eval, 42),
		"index": read(t, s.Train, 52),
	} {
		if bytes.Equal(base, other) {
			t.Errorf("another %s gives the same sample", name)
		}
	}
	if s.Train.Label(42) != 2 || s.Eval.Label(13) != 3 || len(s.Train.Classes()) != 10 {
		t.Error("labels do not go round the classes")
	}
}

// TestSyntheticClassesCanBeLearned classifies held-out samples by a few features of colour and texture. It chooses the
// class with the nearest mean. The accuracy must be far better than chance, but below 100 %.
func TestSyntheticClassesCanBeLearned(t *testing.T) {
	s, err := Synthetic(SyntheticOptions{Seed: 1, Train: 2000, Eval: 500})
	if err != nil {
		t.Fatal(err)
	}
	features := func(pix []byte) (f [9]float64) {
		for i, v := range pix {
			ch := i % 3
			f[ch] += float64(v) / 1024
			if i >= 3 {
				f[3+ch] += float64(int(v)-int(pix[i-3])) * float64(int(v)-int(pix[i-3])) / 1024 / 64
			}
			if i >= 96*4 { // the pixel four rows above
				f[6+ch] += float64(int(v)-128) * float64(int(pix[i-96*4])-128) / 1024 / 64
			}
		}
		return f
	}
	var mean [10][9]float64
	for i := range s.Train.Len() {
		for k, v := range features(read(t, s.Train, i)) {
			mean[s.Train.Label(i)][k] += v / 200
		}
	}
	right := 0
	for i := range s.Eval.Len() {
		f := features(read(t, s.Eval, i))
		best, least := 0, 1e30
		for c := range mean {
			var distance float64
			for k, v := range f {
				distance += (v - mean[c][k]) * (v - mean[c][k])
			}
			if distance < least {
				best, least = c, distance
			}
		}
		if best == s.Eval.Label(i) {
			right++
		}
	}
	t.Logf("%d of %d right", right, s.Eval.Len())
	if right < 250 {
		t.Errorf("%d of 500 right, want 250 (chance: 50)", right)
	}
}

// Synthetic pixels must never change. If they did, new measurements could not be compared with earlier ones.
func TestSyntheticPixelsAreFrozen(t *testing.T) {
	s, err := Synthetic(SyntheticOptions{Seed: 1, Train: 10, Eval: 1, Size: 2})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := read(t, s.Train, 3), []byte{102, 209, 61, 98, 54, 115, 186, 133, 173, 57, 154, 37}; !bytes.Equal(
		got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWrongSyntheticOptionsAreAllReported(t *testing.T) {
	_, err := Synthetic(SyntheticOptions{Train: -1, Eval: -1, Classes: 1, Size: 5000})
	for _, want := range []string{
		"number of training samples is -1", "number of evaluation samples is -1",
		"number of classes is 1, want 2", "image size in pixels is 5000, want 1 to 4096",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestFaultNamesWhatIsKnown(t *testing.T) {
	cause := errors.New("cause")
	for _, c := range []struct {
		f    Fault
		want string
	}{
		{Fault{Op: "read sample", Index: 3, Path: "a/b\x1b.jpg", Err: cause}, `read sample 3 "a/b\x1b.jpg": cause`},
		{Fault{Op: "get cifar10", Index: -1, Err: cause, Advice: "wait"}, `get cifar10: cause; wait`},
	} {
		if got := c.f.Error(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
		if !errors.Is(&c.f, cause) {
			t.Error("the cause is not wrapped")
		}
	}
}
