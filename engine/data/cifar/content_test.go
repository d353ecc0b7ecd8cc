package cifar

import (
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
)

// Machines must compare decoded pixels. An archive and a folder with the same images then count as equal.
func TestMachinesComparePixels(t *testing.T) {
	b := block{pix: make([]byte, 3*pixelBytes), labels: []uint8{0, 1, 1}}
	sums := func() (all []uint64) {
		s, err := data.ContentOf(&dataset{blocks: []block{b}, classes: []string{"a", "b"}}).NewSummer()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for i := range b.labels {
			sum, bytes, err := s.Sum(i)
			if err != nil || bytes != pixelBytes {
				t.Fatalf("image %d: got %d bytes, %v, want %d", i, bytes, err, pixelBytes)
			}
			all = append(all, sum)
		}
		return all
	}
	before := sums()
	b.pix[2*pixelBytes-1]++
	if after := sums(); after[0] != before[0] || after[1] == before[1] || after[2] != before[2] {
		t.Errorf("got %x after a change of the second image, before %x", after, before)
	}
}
