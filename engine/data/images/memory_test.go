package images

import (
	"math/rand/v2"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
)

// A decoder that is closed is not part of the memory of decoders.
func TestDecodersCountTheirMemory(t *testing.T) {
	before, _ := DecoderBytes()
	d, err := NewDecoder(DecodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	contents := filteredPNG(rand.New(rand.NewPCG(5, 6)), 300, 200, pngRGB, 2)
	var img data.Image
	if err := d.Decode(contents, nil, &img); err != nil {
		t.Fatal(err)
	}
	now, most := DecoderBytes()
	file, pixels := int64(len(contents)), int64(3*300*200)
	if got := now - before; got < pixels+file || got > 3*(pixels+file) || most < now {
		t.Errorf("got %d bytes, at most %d", got, most)
	}
	d.Close()
	if after, _ := DecoderBytes(); after != before {
		t.Errorf("got %d bytes more than before", after-before)
	}
}
