package parts

import (
	"fmt"
	"io/fs"
	"testing"

	"github.com/hetero-train/hetero-train/engine/config"
)

func TestTheKeyOfAMissingFileIsNamed(t *testing.T) {
	for _, c := range []struct{ path, val, missing, want string }{
		{"/data", "", "/data", "data.path"},
		{"/data", "/held", "/data", "data.path"},
		{"/data", "/held", "/held", "data.val_path"},
		{"/data", "/held/", "/held/a", "data.val_path"},
		{"/data", "/data/held", "/data/held", "data.val_path"},
		{"/held/train", "/held", "/held/train", "data.path"},
	} {
		err := fmt.Errorf("open images: %w", &fs.PathError{Op: "stat", Path: c.missing, Err: fs.ErrNotExist})
		var d config.Data
		d.Path, d.ValPath = c.path, c.val
		if got := keyOfMissing(d, err); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
}

func TestDecimalLabelsAreNoticed(t *testing.T) {
	for _, c := range []struct {
		classes []string
		want    int
	}{
		{[]string{"0", "1"}, 0},
		{[]string{"0.0", "1.0", "2.0"}, 0}, // integers in the format of pandas
		{[]string{"0.2", "1.0", "3.75"}, 2},
		{[]string{"0.2", "neutral"}, 0},
		{[]string{"v1.5", "v2.0"}, 0},
	} {
		if got := decimals(c.classes); got != c.want {
			t.Errorf("%q: got %d, want %d", c.classes, got, c.want)
		}
	}
}
