package data

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// fake is a data set. Each image contains its sample index. Reads can be slow or fail.
type fake struct {
	samples, size int
	classes       int
	broken        map[int]bool  // unreadable samples
	panics        map[int]bool  // samples whose decoder panics
	delay         time.Duration // duration of each read
	gate          chan struct{} // if not nil, reads wait until it is closed
	slow          int           // sample whose read takes 20 ms more; 0: none
	reads         atomic.Int64
	open          atomic.Int64 // number of open readers
}

func (f *fake) Len() int { return f.samples }

func (f *fake) Classes() []string {
	names := make([]string, max(f.classes, 1))
	for c := range names {
		names[c] = fmt.Sprint(c)
	}
	return names
}

func (f *fake) Label(i int) int { return i * 7 % max(f.classes, 1) }

func (f *fake) NewReader() (Reader, error) {
	f.open.Add(1)
	return &fakeReader{f: f, pix: make([]byte, 3*f.size*f.size)}, nil
}

type fakeReader struct {
	f   *fake
	pix []byte
}

var errBroken = errors.New("broken")

func (r *fakeReader) Read(i int, _ Sizer, img *Image) error {
	r.f.reads.Add(1)
	if r.f.gate != nil {
		<-r.f.gate
	}
	if r.f.delay > 0 {
		time.Sleep(r.f.delay)
	}
	if r.f.slow != 0 && r.f.slow == i {
		time.Sleep(20 * time.Millisecond)
	}
	if r.f.broken[i] {
		return &Fault{Op: "read sample", Index: i, Path: fmt.Sprintf("%d.jpg", i), Err: errBroken}
	}
	if r.f.panics[i] {
		panic("crafted")
	}
	for k := range r.pix {
		r.pix[k] = byte(i>>(8*(k%3)) + k/3)
	}
	*img = Image{Pix: r.pix, Width: r.f.size, Height: r.f.size, FullWidth: r.f.size, FullHeight: r.f.size}
	return nil
}

func (r *fakeReader) Close() error {
	r.f.open.Add(-1)
	return nil
}

// newLoader starts a loader of images. The end of the test closes it.
func newLoader(t testing.TB, o imageOptions) *Loader {
	t.Helper()
	return load(t, o.options())
}

// load starts a loader. The end of the test closes it.
func load(t testing.TB, o Options) *Loader {
	t.Helper()
	l, err := NewLoader(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// next returns the next batch of a loader. The caller must release it.
func next(t testing.TB, l *Loader) *Batch {
	t.Helper()
	b, err := l.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// augmented is a transform that makes every kind of random choice.
var augmented = Transform{Crop: PadCrop, Size: 4, Pad: 1, Flip: true, Augment: Augment{
	Rand: RandAugment{Ops: 2, Magnitude: 15, Std: 3}, Jitter: ColorJitter{0.4, 0.4, 0.4, 0.1},
	Erase: RandomErase{Probability: 0.5, Mode: ErasePixel, Count: 2, Normalization: NormalizeCIFAR10},
}}

// mixings are the ways to mix samples that tests use.
var mixings = []Mix{
	{},
	{MixupAlpha: 0.4, Probability: 0.8},
	{CutmixAlpha: 1, Probability: 1, Mode: MixPair},
	{MixupAlpha: 0.8, CutmixAlpha: 1, Probability: 0.9, Switch: 0.5, Mode: MixElement, OffEpoch: 2},
}
