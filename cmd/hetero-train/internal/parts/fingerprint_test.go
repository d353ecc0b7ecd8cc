package parts

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
)

// countedImages is a data set of images that counts reads. Every tenth image cannot be decoded, and every twentieth
// cannot be read.
type countedImages struct {
	data.Dataset
	reads *atomic.Int64
	gives bool // Read sets Image.Contents to the stored bytes
}

func (c countedImages) Len() int          { return 600 }
func (c countedImages) Label(int) int     { return 0 }
func (c countedImages) Classes() []string { return []string{"a"} }

func (c countedImages) NewReader() (data.Reader, error) { return countedReader{c}, nil }

type countedReader struct{ countedImages }

func (r countedReader) Close() error { return nil }

func (r countedReader) Read(i int, _ data.Sizer, img *data.Image) error {
	r.reads.Add(1)
	*img = data.Image{Pix: []byte{byte(i), byte(i >> 8), 0}, Width: 1, Height: 1}
	if i%20 == 0 {
		return errors.New("unreadable")
	}
	if r.gives {
		img.Contents = []byte{1, byte(i), byte(i >> 8)}
	}
	if i%10 == 0 {
		return errors.New("damaged")
	}
	return nil
}

func (r countedReader) Contents(i int) ([]byte, error) {
	r.reads.Add(1)
	if i%20 == 0 {
		return nil, errors.New("unreadable")
	}
	return []byte{1, byte(i), byte(i >> 8)}, nil
}

func TestAPrintReadsEachSampleOnce(t *testing.T) {
	var sums []string
	for _, gives := range []bool{true, false} {
		var reads atomic.Int64
		set := countedImages{reads: &reads, gives: gives}
		o := &Opened{Content: data.ContentOf(set), stored: data.Splits{Train: set}}
		f, err := o.Print(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		bad, lost := 0, 0
		for k := range f.Train.count() {
			i := sampleAt(k, identitySamples, 600)
			if f.Train.bad(k) != (i%10 == 0) || (f.Train.sum(k) == 0) != (i%20 == 0) {
				t.Errorf("sample %d: unreadable %v, hash %x", i, f.Train.bad(k), f.Train.sum(k))
			}
			if i%10 == 0 {
				bad++
			}
			if i%20 == 0 {
				lost++
			}
		}
		// Samples whose first read returns no stored bytes are read again.
		n := int(reads.Load())
		if gives && n != identitySamples+lost || f.Train.count() != identitySamples || bad == 0 {
			t.Errorf("%d reads of %d samples, %d of them faulty", n, f.Train.count(), bad)
		}
		sums = append(sums, f.Digest)
	}
	if sums[0] != sums[1] || sums[0] == "" {
		t.Errorf("the digests %q depend on how the bytes are read", sums)
	}
}

// reusing is a data set of 600 images. Each of its Readers reuses one buffer for all images, as decoders do.
type reusing struct{ countedImages }

func (s reusing) NewReader() (data.Reader, error) { return &reusingReader{pix: make([]byte, 3)}, nil }

type reusingReader struct{ pix []byte }

func (r *reusingReader) Close() error { return nil }

func (r *reusingReader) Read(i int, _ data.Sizer, img *data.Image) error {
	r.pix[0], r.pix[1], r.pix[2] = 1, byte(i), byte(i>>8)
	*img = data.Image{Pix: r.pix, Width: 1, Height: 1, FullWidth: 1, FullHeight: 1}
	return nil
}

// A Reader must keep its sample until the sample's turn, so that samples need not be copied.
func TestSamplesAreUsedInOrderBeforeTheirReaderGoesOn(t *testing.T) {
	next := 0
	err := readSamples(t.Context(), reusing{}, 200, func(k, i int, r *seen) {
		if k != next || i != sampleAt(k, 200, 600) || !bytes.Equal(r.contents, []byte{1, byte(i), byte(i >> 8)}) {
			t.Errorf("sample %d, index %d: got %v, want sample %d", k, i, r.contents, next)
		}
		next++
	})
	if err != nil || next != 200 {
		t.Errorf("got %d samples, %v", next, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	used := 0
	err = readSamples(ctx, reusing{}, 200, func(int, int, *seen) {
		if used++; used == 5 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || used != 5 {
		t.Errorf("canceled after 5 samples: got %d, %v", used, err)
	}
}
