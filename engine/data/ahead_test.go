package data

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// stored is a data set behind a Fetcher. Fetching a sample takes the time latency, and decoding it takes the time
// process.
type stored struct {
	*fake
	*Fetcher
	latency, process time.Duration
	bytes            int
	fetches          atomic.Int64
	most             atomic.Int64 // largest number of fetches in flight
	mostHeld         atomic.Int64
	unreadable       map[int]bool
}

func newStored(samples int, latency, process time.Duration, bytes int) *stored {
	s := &stored{fake: &fake{samples: samples, size: 4, classes: 3}, latency: latency, process: process, bytes: bytes}
	var flying atomic.Int64
	s.Fetcher = NewFetcher(0, func(i int, buf []byte) ([]byte, error) {
		s.fetches.Add(1)
		n := flying.Add(1)
		defer flying.Add(-1)
		raise(&s.most, n)
		time.Sleep(s.latency)
		if s.unreadable[i] {
			return buf, errBroken
		}
		if cap(buf) < s.bytes {
			buf = make([]byte, s.bytes)
		}
		buf = buf[:s.bytes]
		binary.LittleEndian.PutUint64(buf, uint64(i))
		return buf, nil
	})
	return s
}

// load starts a loader of s. The end of the test closes it.
func (s *stored) load(t *testing.T, batch, workers int) *Loader {
	t.Helper()
	return newLoader(t, imageOptions{Dataset: s, Transform: Transform{Size: 4}, Seed: 1, BatchSize: batch,
		Workers: workers})
}

// raise sets maximum to n if n is larger.
func raise(maximum *atomic.Int64, n int64) {
	for old := maximum.Load(); n > old && !maximum.CompareAndSwap(old, n); old = maximum.Load() {
	}
}

func (s *stored) NewReader() (Reader, error) {
	r, err := s.fake.NewReader()
	return &storedReader{r, s, s.Open()}, err
}

type storedReader struct {
	Reader
	s       *stored
	fetches *Fetches
}

func (r *storedReader) Read(i int, sizer Sizer, img *Image) error {
	contents, _, err := r.fetches.Read(i)
	if err != nil {
		return &Fault{Op: "read sample", Index: i, Err: err}
	}
	if got := binary.LittleEndian.Uint64(contents); int(got) != i {
		panic("the contents belong to another sample")
	}
	_, held := r.s.InFlight()
	raise(&r.s.mostHeld, held+r.s.UnusedBytes())
	time.Sleep(r.s.process)
	if int(binary.LittleEndian.Uint64(contents)) != i {
		panic("the contents changed while the reader used them")
	}
	return r.Reader.Read(i, sizer, img)
}

func (r *storedReader) Close() error {
	r.fetches.Close()
	return r.Reader.Close()
}

// The test uses the fake clock of synctest, so the load of the machine does not affect it.
func TestLatencyOfTheStorageCostsNoThroughput(t *testing.T) {
	const samples, batch, workers = 4096, 32, 2
	for _, c := range []struct {
		latency, process time.Duration
		most             float64 // limit of the time, relative to the time of decoding alone
	}{
		{1500 * time.Microsecond, 4 * time.Millisecond, 1.02},
		{15 * time.Millisecond, 4 * time.Millisecond, 1.02},
		{60 * time.Millisecond, 4 * time.Millisecond, 1.05},
		{60 * time.Millisecond, time.Millisecond, 1.25}, // at 2,000 samples/s, 120 fetches are in flight
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStored(samples, c.latency, c.process, 100)
			l := s.load(t, batch, workers)
			started := time.Now()
			for range samples / batch {
				next(t, l).Release()
			}
			took := time.Since(started)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // until the fetches in flight have ended
			ratio := took.Seconds() / (c.process.Seconds() * samples / workers)
			t.Logf("latency %v, processing %v: %.3f times the processing, at most %d fetches in flight", c.latency,
				c.process, ratio, s.most.Load())
			if ratio > c.most || s.most.Load() > mostFetches+workers {
				t.Errorf("latency %v, processing %v: took %.3f times the processing, want at most %g; %d fetches in flight",
					c.latency, c.process, ratio, c.most, s.most.Load())
			}
		})
	}
}

func TestFetchedSamplesHaveLimitedMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bytes = 3 << 20
		s := newStored(256, 60*time.Millisecond, time.Millisecond, bytes)
		l := s.load(t, 64, 2)
		for range 8 {
			next(t, l).Release()
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		// the first fetches start before the size of a sample is known, so they may exceed the limit
		if held := s.mostHeld.Load(); held > AheadBytes+4*bytes || held < AheadBytes/2 {
			t.Errorf("held %d bytes, want about %d", held, AheadBytes)
		}
		synctest.Wait()
		time.Sleep(time.Second)
		if flying, held := s.InFlight(); flying != 0 || held != 0 {
			t.Errorf("after the end: %d fetches in flight, %d bytes held", flying, held)
		}
	})
}

func TestFastStorageIsNotReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStored(64, 20*time.Microsecond, time.Millisecond, 100)
		l := s.load(t, 8, 2)
		for range 64 {
			next(t, l).Release()
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if most := s.most.Load(); most > 2 || len(s.queue) > 200 {
			t.Errorf("got %d fetches in flight, want at most one for each worker; the queue has %d", most, len(s.queue))
		}
	})
}

func TestAFewLargeSamplesDoNotEnlargeTheUnusedBuffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const small, large = 10_000, 1 << 20
		f := NewFetcher(0, func(i int, buf []byte) ([]byte, error) {
			time.Sleep(20 * time.Millisecond)
			n := small
			if i%50 == 0 {
				n = large
			}
			if cap(buf) < n {
				buf = make([]byte, n)
			}
			return buf[:n], nil
		})
		r := f.Open()
		defer r.Close()
		for i := range 2000 {
			for k := range f.Horizon() {
				f.Expect(i + k)
			}
			if _, _, err := r.Read(i); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		f.Forget()
		time.Sleep(time.Second) // until the fetches in flight have ended
		n := len(f.free)
		if unused := f.UnusedBytes(); n == 0 || unused > int64(n)*3*(small+large/50) {
			t.Errorf("%d buffers have %d bytes, want at most about twice the mean sample each", n, unused)
		}
		total := int64(0)
		for _, buf := range f.free {
			total += int64(cap(buf))
		}
		if total != f.unused {
			t.Errorf("unused buffers have %d bytes, counted %d", total, f.unused)
		}
	})
}

func TestNothingIsAnnouncedDuringAShuffle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStored(1024, 10*time.Millisecond, time.Millisecond, 16)
		l := s.load(t, 8, 1)
		b := next(t, l)
		synctest.Wait() // all slots are full
		l.mu.Lock()
		l.shuffling = true // simulates a worker that is rewriting the order without the lock
		l.announceAgain()
		announced := l.announced
		l.shuffling = false
		l.announceAgain()
		again := l.announced
		l.mu.Unlock()
		b.Release()
		if announced != l.fill || again <= announced {
			t.Errorf("announced steps before %d during the shuffle and before %d after it", announced, again)
		}
	})
}

// Announcing samples must not change any sample.
func TestReadingAheadChangesNoSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(8) {
			s := newStored(200, 5*time.Millisecond, time.Millisecond, 16)
			s.unreadable = map[int]bool{3: true, 77: true, 199: true}
			plain := &fake{samples: 200, size: 4, classes: 3, broken: s.unreadable}
			o := imageOptions{Transform: augmented, Mix: mixings[seed%4]}
			o.Seed, o.BatchSize, o.MaxCount, o.Workers = seed, 24, 24, 3
			wanted := o
			o.Dataset, wanted.Dataset = Skip(Limited(s, 150), 0, nil), Skip(Limited(plain, 150), 0, nil)
			l, err := open(o)
			if err != nil {
				t.Fatal(err)
			}
			other, err := open(wanted)
			if err != nil {
				t.Fatal(err)
			}
			d := newDraws(seed, 0, 0, streamReplacement)
			for step := range 30 {
				var errs [2]error
				switch d.below(5) {
				case 0:
					from, offset := int64(d.below(3)), d.below(20)
					count := d.below(24 - offset)
					at := int64(0)
					for k, x := range []*Loader{l, other} {
						x.mu.Lock()
						at = x.head + from
						x.mu.Unlock()
						errs[k] = x.SetShare(at, offset, count)
					}
				case 1:
					to := int64(d.below(12))
					errs = [2]error{l.JumpTo(to), other.JumpTo(to)}
				}
				if errs[0] != nil || errs[1] != nil {
					t.Fatal(errs)
				}
				got, want := take(t, l, 1)[0], take(t, other, 1)[0]
				if !slices.Equal(got.Images, want.Images) || !slices.Equal(got.Labels, want.Labels) ||
					!slices.Equal(got.IDs, want.IDs) {
					t.Errorf("seed %d, take %d, step %d: the batches differ", seed, step, got.Step)
				}
			}
			if l.Close() != nil || other.Close() != nil {
				t.Fatal("close")
			}
			time.Sleep(time.Second)
		}
	})
}

// requested is the error of a network request that has failed after all retries.
type requested struct{ error }

func (requested) Requested() {}

func TestAFailedRequestIsNotRepeated(t *testing.T) {
	failure := requested{errors.New("503")}
	tries := 0
	f := NewFetcher(1, func(i int, buf []byte) ([]byte, error) {
		if i == 0 {
			time.Sleep(time.Millisecond)
			return []byte("x"), nil
		}
		tries++
		return nil, failure
	})
	r := f.Open()
	defer r.Close()
	if _, _, err := r.Read(0); err != nil { // storage with latency reports the error at the first read
		t.Fatal(err)
	}
	f.Expect(1)
	if _, _, err := r.Read(1); !errors.Is(err, failure) || tries != 1 {
		t.Errorf("got %v after %d tries, want %v after 1", err, tries, failure)
	}
}
