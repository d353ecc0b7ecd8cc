package data

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// batches returns the ids, labels and first pixels of the first n batches. replaced is the number of replaced samples.
func batches(t *testing.T, o imageOptions, n int) (text string, replaced int) {
	t.Helper()
	l := newLoader(t, o)
	for range n {
		b, err := l.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		images, labels := Values[uint8](b, Pixels), Values[int32](b, Labels)
		for i := range b.N {
			size := len(images) / b.N
			text += fmt.Sprint(b.IDs[i], labels[i], images[i*size:][:12], "\n")
		}
		replaced += b.Replaced
		b.Release()
	}
	return text, replaced
}

func TestReplacementsAreFunctionsOfTheSampleAlone(t *testing.T) {
	broken := map[int]bool{3: true, 4: true, 5: true, 17: true, 39: true}
	options := func(workers int, share Share) imageOptions {
		ds := Cached(&fake{samples: 40, size: 4, classes: 3, broken: broken, panics: map[int]bool{11: true}}, 1<<20)
		return imageOptions{Dataset: Skip(ds, 6, nil), Transform: augmented, Seed: 9, BatchSize: 8, Workers: workers,
			Share: &share, MaxCount: 8}
	}
	want, replaced := batches(t, options(1, Share{0, 8}), 10)
	if replaced != 12 {
		t.Errorf("two epochs of 40 samples, 6 of them broken: %d replaced, want 12", replaced)
	}
	if got, n := batches(t, options(4, Share{0, 8}), 10); got != want || n != replaced {
		t.Error("4 workers read other samples than one")
	}
	// The shares of two ranks must together be equal to the batches of one rank.
	first, n1 := batches(t, options(2, Share{0, 3}), 10)
	second, n2 := batches(t, options(2, Share{3, 5}), 10)
	var together strings.Builder
	a, b := strings.SplitAfter(first, "\n"), strings.SplitAfter(second, "\n")
	for step := range 10 {
		together.WriteString(strings.Join(a[3*step:3*step+3], "") + strings.Join(b[5*step:5*step+5], ""))
	}
	if together.String() != want || n1+n2 != replaced {
		t.Error("two ranks read other samples than one")
	}
	for i := range broken {
		if strings.Contains(want, fmt.Sprintf("\n%d [%d %d", i, i, i)) {
			t.Errorf("sample %d, which is broken, was read", i)
		}
	}
}

func TestLabelsFollowTheReplacement(t *testing.T) {
	ds := Skip(&fake{samples: 30, size: 1, classes: 7, broken: map[int]bool{2: true}}, 1, nil)
	r, err := ds.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var img Image
	if err := r.Read(2, nil, &img); err != nil {
		t.Fatal(err)
	}
	if instead := int(img.Pix[0]); instead == 2 || ds.Label(2) != ds.Dataset.Label(instead) {
		t.Errorf("sample 2 is replaced by %d with label %d, want %d", instead, ds.Label(2), ds.Dataset.Label(instead))
	}
	if !ds.Replaced(2) || ds.Replaced(3) || ds.Skipped() != 1 {
		t.Errorf("replaced: 2 %v, 3 %v, %d in all", ds.Replaced(2), ds.Replaced(3), ds.Skipped())
	}
}

func TestTooManyUnreadableSamplesAreAnError(t *testing.T) {
	broken := map[int]bool{}
	for i := range 10 {
		broken[i] = true
	}
	var told []int
	ds := Skip(&fake{samples: 40, size: 1, broken: broken}, 9, func(f *Fault) { told = append(told, f.Index) })
	r, err := ds.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var img Image
	var fault *Fault
	failed := 0
	for i := range 40 {
		if err := r.Read(i, nil, &img); errors.As(err, &fault) {
			failed++
			if !strings.Contains(fault.Advice, "corrupt_limit = 9") || !errors.Is(err, errBroken) {
				t.Errorf("got %v, want the sample's own fault and the limit", err)
			}
		}
	}
	if failed == 0 || len(told) != 9 {
		t.Errorf("%d reads failed, %v told, want some, and 9 told once each", failed, told)
	}
}

// exhaustedReader fails as if the process had no file descriptors left.
type exhaustedReader struct{ Reader }

func (exhaustedReader) Close() error { return nil }

func (exhaustedReader) Read(i int, _ Sizer, _ *Image) error {
	return &Fault{Op: "read sample", Index: i, Err: syscall.EMFILE}
}

type exhaustedSet struct{ *fake }

func (s exhaustedSet) NewReader() (Reader, error) { return exhaustedReader{}, nil }

func TestWantOfFilesIsNotTheSamplesFault(t *testing.T) {
	ds := Skip(exhaustedSet{&fake{samples: 4, size: 1}}, 100, nil)
	r, _ := ds.NewReader()
	var img Image
	if err := r.Read(1, nil, &img); !errors.Is(err, syscall.EMFILE) || ds.Skipped() != 0 {
		t.Errorf("got %v and %d skipped, want the error: another rank would read the sample", err, ds.Skipped())
	}
}

func TestASubsetHasTheFirstClassesAndSomeOfEach(t *testing.T) {
	all := &fake{samples: 100, size: 1, classes: 10}
	few := Subset(all, 3, 4)
	if few.Len() != 12 || len(few.Classes()) != 3 {
		t.Fatalf("%d samples in classes %q, want 12 in 3", few.Len(), few.Classes())
	}
	count := map[int]int{}
	for i := range few.Len() {
		count[few.Label(i)]++
	}
	if count[0] != 4 || count[1] != 4 || count[2] != 4 {
		t.Errorf("samples of each class: %v, want 4 each", count)
	}
	more := map[int32]bool{}
	for _, i := range Subset(all, 3, 5).(*fewerClasses).index {
		more[i] = true
	}
	for _, i := range few.(*fewerClasses).index {
		if !more[i] {
			t.Errorf("sample %d is among 4 of a class, but not among 5", i)
		}
	}
	if Subset(all, 0, 0) != Dataset(all) || Subset(all, 10, 0) != Dataset(all) {
		t.Error("a subset that leaves nothing out is the data set itself")
	}
	if got := Subset(all, 0, 1); got.Len() != 10 {
		t.Errorf("one sample of each class: got %d, want 10", got.Len())
	}
}

// hooked is a data set that calls functions before and after each read.
type hooked struct {
	*fake
	before, after func(i int)
}

func (h hooked) NewReader() (Reader, error) {
	r, err := h.fake.NewReader()
	return &hookedReader{r, h}, err
}

type hookedReader struct {
	Reader
	h hooked
}

func (r *hookedReader) Read(i int, sizer Sizer, img *Image) error {
	r.h.before(i)
	defer r.h.after(i)
	return r.Reader.Read(i, sizer, img)
}

// Eight Readers find the same unreadable sample at the same time. If one Reader has set a replacement, no other Reader
// may change it.
func TestASettledReplacementStays(t *testing.T) {
	const readers, bad = 8, 2
	var meet sync.WaitGroup
	meet.Add(readers)
	turn := make(chan struct{}, 1) // allows one Reader to continue after the unreadable sample
	settled := atomic.Bool{}
	var ds *Skipping
	set := hooked{fake: &fake{samples: 30, size: 1, classes: 7, broken: map[int]bool{bad: true}}}
	set.before = func(i int) {
		if i == bad { // all Readers must reach this read before the first one continues
			meet.Done()
			meet.Wait()
			<-turn
		}
	}
	set.after = func(i int) {
		if k, ok := ds.replacement(bad); i != bad && settled.Load() &&
			(!ok || k != i || ds.Label(bad) != ds.Dataset.Label(i)) {
			t.Errorf(
				"while sample %d is read in its place, sample %d has replacement %d and label %d, want those settled",
				i, bad, k, ds.Label(bad))
		}
	}
	ds = Skip(set, 0, nil)
	turn <- struct{}{}
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			r, err := ds.NewReader()
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			var img Image
			err = r.Read(bad, nil, &img)
			if err != nil || ds.Label(bad) != ds.Dataset.Label(int(img.Pix[0])) {
				t.Errorf("image %d has label %d, %v", img.Pix[0], ds.Label(bad), err)
			}
			settled.Store(true)
			turn <- struct{}{}
		})
	}
	all.Wait()
	if ds.Skipped() != 1 {
		t.Errorf("%d samples are unreadable, want 1", ds.Skipped())
	}
}

func TestASubsetsFaultNamesItsOwnSample(t *testing.T) {
	few := Limited(&fake{samples: 40, size: 1, classes: 4, broken: map[int]bool{39: true, 38: true, 37: true, 36: true,
		35: true, 34: true}}, 20)
	index := few.(*subset).index
	want := map[int]bool{}
	for i, k := range index {
		if k >= 34 {
			want[i] = true
		}
	}
	found := map[int]bool{}
	if err := Verify(t.Context(), few, 2, nil, func(f *Fault) { found[f.Index] = true }); err != nil {
		t.Fatal(err)
	}
	if len(want) == 0 || !maps.Equal(found, want) {
		t.Errorf("unreadable samples %v, want %v", found, want)
	}
}

func TestWantOfFilesEndsVerification(t *testing.T) {
	err := Verify(t.Context(), exhaustedSet{&fake{samples: 4, size: 1}}, 2, nil, func(f *Fault) {
		t.Errorf("%v is reported as damage", f)
	})
	if !errors.Is(err, syscall.EMFILE) {
		t.Errorf("got %v, want the error", err)
	}
}
