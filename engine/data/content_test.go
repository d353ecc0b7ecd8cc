package data

import (
	"errors"
	"fmt"
	"testing"
)

// named is a fake whose Readers provide stored bytes, and whose samples have names.
type named struct{ *fake }

func (n named) Describe(i int) (string, int64) { return fmt.Sprintf("%d.jpg", i), 7 }

func (n named) NewReader() (Reader, error) {
	r, err := n.fake.NewReader()
	return namedReader{r}, err
}

type namedReader struct{ Reader }

func (r namedReader) Read(i int, s Sizer, img *Image) error {
	err := r.Reader.Read(i, s, img)
	img.Contents = fmt.Appendf(nil, "contents of %d", i)
	return err
}

func TestContentListsBothParts(t *testing.T) {
	train, eval := named{&fake{samples: 10, size: 4, classes: 3}}, &fake{samples: 5, size: 4}
	c := ContentOf(Limited(train, 4), nil, eval)
	if c.Len() != 9 {
		t.Fatalf("got %d units, want 9", c.Len())
	}
	subset := Limited(train, 4).(*subset)
	for i, index := range subset.index {
		if got, want := c.Name(i), fmt.Sprintf("%d.jpg", index); got != want {
			t.Errorf("unit %d: got %q, want %q", i, got, want)
		}
	}
	if got := c.Name(5); got != "evaluation sample 1" {
		t.Errorf("got %q, want evaluation sample 1", got)
	}
	sums := map[uint64]int{}
	for i := range 4 {
		sums[c.Listed(i)]++
	}
	if len(sums) != 4 {
		t.Errorf("got %d hashes for 4 samples", len(sums))
	}
	relabelled := ContentOf(Limited(named{&fake{samples: 10, size: 4, classes: 2}}, 4))
	if c.Listed(1) == relabelled.Listed(1) && c.Listed(2) == relabelled.Listed(2) &&
		c.Listed(3) == relabelled.Listed(3) {
		t.Error("another label has the same hash")
	}
}

func TestContentReadsStoredBytes(t *testing.T) {
	train := named{&fake{samples: 10, size: 4, broken: map[int]bool{3: true}}}
	s, err := ContentOf(train, &fake{samples: 5, size: 4}).NewSummer()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if sum, n, err := s.Sum(2); err != nil || sum != SumOf([]byte("contents of 2")) || n != 13 {
		t.Errorf("got %x, %d bytes, %v", sum, n, err)
	}
	if _, _, err := s.Sum(3); !errors.Is(err, errBroken) {
		t.Errorf("got %v, want that the sample cannot be read", err)
	}
	if _, _, err := s.Sum(12); !errors.Is(err, ErrNotEncoded) {
		t.Errorf("got %v, want that the data set has no stored bytes", err)
	}
}

// For each sample that a Reader reads from the files, it must send the hash and the unit. This must hold even for
// samples that cannot be decoded.
func TestWatchedReadersSendHashes(t *testing.T) {
	var w Watch
	own := Splits{Train: named{&fake{samples: 10, size: 4, broken: map[int]bool{3: true}}},
		Eval: named{&fake{samples: 5, size: 4}}}
	s := own.Watched(&w).Cached(0)
	got := map[int]uint64{}
	read := func(d Dataset, i int) {
		r, err := d.NewReader()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		_ = r.Read(i, nil, &Image{})
	}
	read(s.Train, 1)
	if len(got) > 0 {
		t.Error("hashes without a receiver")
	}
	w.Send(func(unit int, sum uint64) { got[unit] = sum })
	read(s.Train, 1) // reads from the cache
	read(s.Train, 2)
	read(s.Train, 3)
	read(s.Eval, 4)
	want := map[int]uint64{2: SumOf([]byte("contents of 2")), 3: SumOf([]byte("contents of 3")),
		14: SumOf([]byte("contents of 4"))}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestHashesDiffer(t *testing.T) {
	contents := make([]byte, 100)
	seen := map[uint64]string{SumOf(nil): "nothing", SumOf(contents): "zeros", SumOf(contents[:99]): "fewer zeros"}
	for i := range contents {
		for bit := range 8 {
			contents[i] ^= 1 << bit
			sum := SumOf(contents)
			if other, ok := seen[sum]; ok || sum == 0 {
				t.Fatalf("bit %d of byte %d: the hash %x is that of %s", bit, i, sum, other)
			}
			seen[sum] = fmt.Sprintf("bit %d of byte %d", bit, i)
			contents[i] ^= 1 << bit
		}
	}
}
