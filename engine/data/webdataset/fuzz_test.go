package webdataset

import (
	"bytes"
	"encoding/gob"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data/archive"
)

// FuzzStoredIndex decodes an index without its checksum and its compression.
func FuzzStoredIndex(f *testing.F) {
	const size = 4096
	x := index{Layout: archive.Layout{Stored: size}, Keys: []string{"a", "b"}, Ends: []string{"jpg", "png"},
		Offsets: []int64{512, 2048}, Sizes: []int32{100, 200}, Labels: []int32{0, 1}, Texts: []string{"0", "1"}}
	var text bytes.Buffer
	if err := gob.NewEncoder(&text).Encode(&x); err != nil {
		f.Fatal(err)
	}
	f.Add(text.Bytes())
	f.Add([]byte("\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		x := decodeIndex(bytes.NewReader(text), size)
		if x == nil {
			return
		}
		for i := range x.Keys {
			_, _, _, _ = x.Ends[i], x.Offsets[i], x.Sizes[i], x.Texts[x.Labels[i]]
		}
		if x.Layout.Stored != size || x.Layout.Check() != nil {
			t.Errorf("accepted %+v", x.Layout)
		}
	})
}
