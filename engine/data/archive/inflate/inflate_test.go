package inflate

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
)

// texts are contents that make an encoder use each kind of block.
func texts() map[string][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 300<<10)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	var words, mixed bytes.Buffer
	for words.Len() < 500<<10 {
		fmt.Fprintf(&words, "word%d ", rng.IntN(5000))
	}
	for mixed.Len() < 600<<10 {
		at := rng.IntN(len(noise) - 5000)
		mixed.Write(noise[at:][:rng.IntN(5000)])
		mixed.Write(bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(300)))
	}
	return map[string][]byte{"empty": {}, "short": []byte("hello hello hello"), "noise": noise, "words": words.Bytes(),
		"mixed": mixed.Bytes(), "zeros": make([]byte, 400<<10)}
}

func compress(t testing.TB, contents []byte, level int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, level)
	if err != nil {
		t.Fatal(err)
	}
	w.Name, w.Comment, w.Extra = "name", "comment", []byte("extra")
	w.Write(contents)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func reader(b []byte) *Reader { return NewReader(bytes.NewReader(b), int64(len(b))) }

func TestOutputIsThatOfTheStandardLibrary(t *testing.T) {
	for name, text := range texts() {
		for _, level := range []int{gzip.NoCompression, gzip.BestSpeed, gzip.BestCompression, gzip.HuffmanOnly} {
			got, err := io.ReadAll(reader(compress(t, text, level)))
			if err != nil || !bytes.Equal(got, text) {
				t.Errorf("%s at level %d: got %d bytes and %v, want the %d bytes that were compressed", name, level, len(got), err, len(text))
			}
		}
	}
}

func TestEachPointGivesTheRest(t *testing.T) {
	for name, text := range texts() {
		for _, level := range []int{gzip.NoCompression, gzip.BestSpeed, gzip.BestCompression} {
			first := compress(t, text, level)
			b := append(append(first, compress(t, text[:len(text)/3], level)...), 0, 0, 0) // two members and a tape's padding
			whole := append(bytes.Clone(text), text[:len(text)/3]...)
			r := reader(b)
			r.Mark(40_000)
			if _, err := io.Copy(io.Discard, r); err != nil {
				t.Fatal(err)
			}
			points := r.Points()
			if len(text) > 100_000 && len(points) < 3 && level != gzip.BestCompression && name != "zeros" {
				t.Errorf("%s at level %d: %d points in %d bytes", name, level, len(points), len(whole))
			}
			for k, p := range points {
				end := int64(len(whole))
				if k+1 < len(points) {
					end = points[k+1].Out // a window holds what is needed up to the next point
				}
				again := reader(b)
				if err := again.Restart(p); err != nil {
					t.Fatal(err)
				}
				got := make([]byte, end-p.Out)
				if _, err := io.ReadFull(again, got); err != nil || !bytes.Equal(got, whole[p.Out:end]) {
					t.Errorf("%s at level %d: point %d at %d: other bytes than decoding from the start gives, or %v", name, level, k, p.Out, err)
				}
			}
		}
	}
}

func TestWindowsOfNoiseAreEmpty(t *testing.T) {
	r := reader(compress(t, texts()["noise"], gzip.BestCompression))
	r.Mark(64 << 10)
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Fatal(err)
	}
	for k, p := range r.Points() {
		if used := len(p.Window) - bytes.Count(p.Window, []byte{0}); used > 1<<10 {
			t.Errorf("point %d: %d bytes of its window are kept, want few: nothing repeats", k, used)
		}
	}
}

func TestDamageIsFound(t *testing.T) {
	text := texts()["words"][:60_000]
	b := compress(t, text, gzip.BestCompression)
	for n := 0; n < len(b); n += 397 {
		if _, err := io.Copy(io.Discard, reader(b[:n])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut to %d of %d bytes: got %v, want an unexpected end", n, len(b), err)
		}
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		damaged := bytes.Clone(b)
		bit := 8*30 + rng.IntN(8*(len(b)-30)) // behind the header, whose name and time do not matter
		damaged[bit/8] ^= 1 << (bit % 8)
		if got, err := io.ReadAll(reader(damaged)); err == nil {
			t.Fatalf("bit %d flipped: %d bytes without an error", bit, len(got))
		}
	}
	for name, garbage := range map[string][]byte{"not gzip": []byte("PK\x03\x04 and more"), "garbage behind": append(bytes.Clone(b), "x1234567890"...),
		"garbage behind zeros": append(bytes.Clone(b), 0, 0, 7)} {
		if _, err := io.Copy(io.Discard, reader(garbage)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: got %v, want ErrCorrupt", name, err)
		}
	}
}

// FuzzReader holds the decoder to compress/gzip: the same bytes or an error on both sides.
func FuzzReader(f *testing.F) {
	for _, text := range texts() {
		f.Add(compress(f, text[:min(len(text), 3000)], gzip.BestCompression))
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		const most = 1 << 20
		r := reader(b)
		r.Mark(1000)
		got, err := io.ReadAll(io.LimitReader(r, most))
		z, wantErr := gzip.NewReader(bytes.NewReader(b))
		var want []byte
		if wantErr == nil {
			want, wantErr = io.ReadAll(io.LimitReader(z, most))
		}
		// compress/gzip minds a header's CRC, and does not know padding.
		if err == nil && wantErr == nil && !bytes.Equal(got, want) {
			t.Fatalf("got %d bytes, compress/gzip %d, or others", len(got), len(want))
		}
		if err != nil && wantErr == nil {
			t.Fatalf("got %v, but compress/gzip reads it", err)
		}
		if err != nil || len(got) == most {
			return
		}
		for _, p := range r.Points() {
			again := reader(b)
			if err := again.Restart(p); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, again); err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("restart at %d: %v", p.Out, err)
			}
		}
	})
}
