package assembly

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
)

func TestRanksWithDifferentDecodersAreWarned(t *testing.T) {
	for _, c := range []struct {
		decoders []string
		want     string // "": no warning
	}{
		{[]string{"Go", "Go"}, ""},
		{[]string{"libwebp 1.2.4", "libwebp 1.6.0"}, ""},
		{[]string{"libwebp 1.2.4", "libwebp 1.2.4", "Go"}, `rank_0="libwebp 1.2.4" other_rank=2 other=Go`},
		{[]string{"Go", "libwebp 1.2.4"}, `rank_0=Go other_rank=1 other="libwebp 1.2.4"`},
		{[]string{"Go", ""}, ""}, {[]string{"", "libwebp 1.2.4"}, ""},
	} {
		var out bytes.Buffer
		warnOfDecoders(slog.New(slog.NewTextHandler(&out, nil)), c.decoders)
		if got := out.String(); (got == "") != (c.want == "") || !strings.Contains(got, c.want) ||
			strings.Count(got, "level=WARN") > 1 {
			t.Errorf("%q: got %q, want %q", c.decoders, got, c.want)
		}
	}
}

func TestThePlaceIsThatOfTheFiles(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	link := filepath.Join(other, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	place := func(host, path string, vocabulary string) string {
		c := parts.Defaults()
		c.Data.Path = path
		c.Data.ClassNames = vocabulary
		return placeOf(c, host)
	}
	own := place("host", dir, "")
	for name, c := range map[string]struct {
		place string
		same  bool
	}{
		"the same folder by a link": {place("host", link, ""), true},
		"another folder":            {place("host", other, ""), false},
		"another machine":           {place("other", dir, ""), false},
		"other class names":         {place("host", dir, "names.txt"), false},
		"two patterns":              {place("host", dir+"/{0..9}.tar", ""), false},
	} {
		if (c.place == own) != c.same {
			t.Errorf("%s: got the same place: %v, want %v", name, c.place == own, c.same)
		}
	}
	if place("host", "a-{0..9}.tar", "") != place("host", "a-{0..9}.tar", "") {
		t.Error("equal patterns are at different places")
	}
}
