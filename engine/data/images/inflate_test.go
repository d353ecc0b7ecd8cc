package images

import (
	"bytes"
	"compress/zlib"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// textsOf returns texts of several kinds: noise, few values, runs, repetitions at all distances, and skewed values with
// long codes.
func textsOf(r *rand.Rand) (texts [][]byte) {
	for _, n := range []int{0, 1, 2, 7, 300, 5000, 20_000} {
		noise, few, skewed := make([]byte, n), make([]byte, n), make([]byte, n)
		for i := range n {
			noise[i], few[i] = byte(r.Uint32()), byte(r.IntN(3))
			skewed[i] = byte(min(r.ExpFloat64()*12, 255))
		}
		var repeated []byte
		for len(repeated) < n {
			if from := r.IntN(len(repeated) + 1); from < len(repeated) && r.IntN(4) > 0 {
				repeated = append(repeated, repeated[from:min(from+r.IntN(400), len(repeated))]...)
			} else {
				repeated = append(repeated, byte(r.Uint32()))
			}
		}
		texts = append(texts, noise, few, skewed, repeated, bytes.Repeat([]byte{7}, n),
			[]byte(strings.Repeat("abc", n/3)))
	}
	return texts
}

func TestUnpackReadsWhatZlibWrites(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	var f inflater
	accepted := 0
	for k, text := range textsOf(r) {
		for _, level := range []int{zlib.NoCompression, zlib.BestSpeed, zlib.DefaultCompression, zlib.BestCompression,
			zlib.HuffmanOnly} {
			var packed bytes.Buffer
			w, err := zlib.NewWriterLevel(&packed, level)
			if err != nil {
				t.Fatal(err)
			}
			for at := 0; at < len(text); at += 15_000 { // one block for every 15,000 bytes
				w.Write(text[at:min(at+15_000, len(text))])
				w.Flush()
			}
			w.Close()
			got := make([]byte, len(text))
			if !f.unpack(got, packed.Bytes()) || !bytes.Equal(got, text) {
				t.Errorf("text %d of %d bytes, level %d: differs", k, len(text), level)
			}
			if len(text) > 0 && f.unpack(got[1:], packed.Bytes()) || f.unpack(append(got, 0), packed.Bytes()) ||
				f.unpack(got, append(packed.Bytes(), 0)) {
				t.Errorf("text %d of %d bytes, level %d: accepted with another size", k, len(text), level)
			}
			for range 8 {
				bad := bytes.Clone(packed.Bytes())
				bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
				bad = bad[:len(bad)-r.IntN(2)*r.IntN(len(bad))]
				if !f.unpack(got, bad) {
					continue
				}
				accepted++
				z, err := zlib.NewReader(bytes.NewReader(bad))
				if err != nil {
					t.Fatalf("text %d, level %d: accepted, but zlib says: %v", k, level, err)
				}
				if want, err := io.ReadAll(z); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("text %d, level %d: accepted, but zlib says: %v", k, level, err)
				}
			}
		}
	}
	if accepted == 0 {
		t.Error("no changed stream was valid: header bits without a meaning are not tested")
	}
}

// FuzzUnpack checks that no stream causes a panic in unpack. It also checks that unpack accepts only streams that zlib
// accepts.
func FuzzUnpack(f *testing.F) {
	for _, level := range []int{0, 1, 9} {
		var packed bytes.Buffer
		w, _ := zlib.NewWriterLevel(&packed, level)
		w.Write([]byte("a stream of a few bytes, bytes, bytes"))
		w.Close()
		f.Add(packed.Bytes(), 37)
	}
	f.Fuzz(func(t *testing.T, packed []byte, n int) {
		if n < 0 || n > 1<<16 {
			return
		}
		var i inflater
		got := make([]byte, n)
		if !i.unpack(got, packed) {
			return
		}
		z, err := zlib.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		if want, err := io.ReadAll(z); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("accepted, but zlib says: %v", err)
		}
	})
}
