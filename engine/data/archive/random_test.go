package archive

import (
	"bytes"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// holes is a file with a gap of zeros after each part.
type holes struct {
	parts [][]byte
	gap   int64
}

func (h holes) size() (n int64) {
	for _, p := range h.parts {
		n += int64(len(p))
	}
	return n + h.gap*int64(len(h.parts)-1)
}

func (h holes) ReadAt(p []byte, offset int64) (int, error) {
	n := int(max(min(int64(len(p)), h.size()-offset), 0))
	clear(p[:n])
	at := int64(0)
	for _, part := range h.parts {
		if from, to := max(at, offset), min(at+int64(len(part)), offset+int64(n)); from < to {
			copy(p[from-offset:to-offset], part[from-at:])
		}
		at += int64(len(part)) + h.gap
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// A zstd file may contain skippable frames of any size. In a sparse file, such frames need no disk space.
func TestSkippedBytesOfAShardAreNotRead(t *testing.T) {
	plain := photos(t, 20)
	const few = 10_000                                    // without the gap; in the same chunk as the data after it
	skip := []byte{0x50, 0x2A, 0x4D, 0x18, 0, 0, 0, 0x40} // 1 GiB
	h := holes{gap: 1 << 30, parts: [][]byte{append(zstds(t, plain[:few], few), skip...),
		append(zstds(t, plain[few:], 100_000), skip...), zstds(t, nil, 1)}}
	var l Layout
	var err error
	got := make([]byte, len(plain))
	if n := allocated(func() {
		if l, err = Scan(t.Context(), h, h.size(), Limits{}, nil, func(Member, io.Reader) error {
			return nil
		}); err == nil {
			err = NewRandom(0).ReadAt(0, h, &l, got, 0)
		}
	}); err != nil || n > 200<<20 || !bytes.Equal(got, plain) || l.Check() != nil {
		t.Errorf("%v, %v, %d MiB allocated for %d KiB", err, l.Check(), n>>20, len(plain)>>10)
	}
}

func TestAFrameOfNothingIsRefused(t *testing.T) {
	frame := zstds(t, photos(t, 5), 1<<20)
	frame = append(frame, 0x28, 0xB5, 0x2F, 0xFD, 0, 0x58)         // a frame with a window, then empty blocks
	frame = append(append(frame, make([]byte, 3<<20)...), 1, 0, 0) // last block
	if _, _, err := scan(t, frame, Limits{}); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v, want a refusal", err)
	}
}

func TestLayoutsThatCannotBeAreFound(t *testing.T) {
	for name, l := range map[string]Layout{
		"places that go back":    {Zstd, 100, 30, []Chunk{{Out: 0, In: 50, End: 60}, {Out: 10, In: 20, End: 30}}, false},
		"behind the end":         {Zstd, 100, 30, []Chunk{{Out: 0, In: 101, End: 102}}, false},
		"ends behind the end":    {Zstd, 100, 30, []Chunk{{Out: 0, In: 5, End: 101}}, false},
		"ends before it begins":  {Zstd, 100, 30, []Chunk{{Out: 0, In: 5, End: 5}}, false},
		"one within another":     {Zstd, 100, 30, []Chunk{{Out: 0, In: 5, End: 50}, {Out: 10, In: 20, End: 60}}, false},
		"negative":               {Zstd, 100, 30, []Chunk{{Out: 0, In: -1, End: 5}}, false},
		"output that goes back":  {Zstd, 100, 30, []Chunk{{Out: 0, In: 8, End: 16}, {Out: 31, In: 16, End: 20}}, false},
		"nothing of what is not": {Zstd, 100, 30, nil, false},
	} {
		if l.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	sound := Layout{Zstd, 100, 30, []Chunk{{Out: 0, In: 8, End: 50}, {Out: 10, In: 60, End: 100}}, false}
	if err := sound.Check(); err != nil {
		t.Error(err)
	}
}

// crowded counts its concurrent readers. If fail is set, its reads fail.
type crowded struct {
	io.ReaderAt
	fail         bool
	within, most atomic.Int64
}

func (c *crowded) ReadAt(p []byte, offset int64) (int, error) {
	n := c.within.Add(1)
	defer c.within.Add(-1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	for range 50 {
		runtime.Gosched() // lets other readers run
	}
	if c.fail {
		return 0, io.ErrUnexpectedEOF
	}
	return c.ReaderAt.ReadAt(p, offset)
}

func TestChunksWaitForRoom(t *testing.T) {
	plain := photos(t, 60)
	b := zstds(t, plain, 300_000)
	l, _, err := scan(t, b, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, fail := range []bool{false, true} {
		random, file := NewRandom(l.Largest()), &crowded{ReaderAt: bytes.NewReader(b), fail: fail}
		var all sync.WaitGroup
		for k := range l.Chunks {
			for range 3 {
				all.Go(func() {
					got := make([]byte, 10)
					if err := random.ReadAt(0, file, &l, got, l.Chunks[k].Out); (err != nil) != fail {
						t.Errorf("chunk %d: %v", k, err)
					}
				})
			}
		}
		all.Wait()
		sum := int64(0)
		for _, e := range random.chunks {
			sum += e.size
		}
		// Two chunks may be in memory at a time, because the last chunk can be small enough to fit in addition to
		// another one.
		if file.most.Load() > 2 || random.held != sum || random.held > random.limit || random.inFlight != 0 ||
			fail && sum != 0 {
			t.Errorf("failing %v: %d chunks at a time, %d bytes held of %d", fail, file.most.Load(), random.held, sum)
		}
	}
}
