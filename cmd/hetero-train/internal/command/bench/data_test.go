package bench

import (
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
)

func TestBenchDataFlipsUnlessToldOtherwise(t *testing.T) {
	for _, c := range []struct {
		crop       string
		flip, want bool
	}{{"resized", true, true}, {"padded", true, true}, {"centre", true, false}, {"resized", false, false},
		{"padded", false, false}} {
		cfg, err := (&imageFlags{catalog: parts.BuiltinCatalog, dataset: "synthetic_image", size: 32, batch: 8,
			crop: c.crop, flip: c.flip}).config(new(closers))
		if err != nil || cfg.Data.Flip != c.want {
			t.Errorf("%+v: got %v, %v", c, cfg, err)
		}
	}
}
