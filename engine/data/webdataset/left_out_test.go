package webdataset

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/datatest"
)

func TestDamagedShardsAreLeftOutIfTheyMayBe(t *testing.T) {
	whole := tarOf(t, samples(0, 4)) // the tar has four blocks per sample: two headers, an image and a label
	const sample = 4 * 512
	for _, c := range []struct {
		name  string
		shard []byte
		file  string // name of the shard
		left  []int  // numbers of the samples that remain, from 0 to 3
		says  string
	}{
		{"empty", nil, "a.tar", nil, "the file is empty (0 bytes)"},
		{"no tar", []byte(strings.Repeat("no tar ", 200)), "a.tar", nil, "not a tar archive"},
		{"cut within the first image", whole[:700], "a.tar", nil, "the archive was cut"},
		{"cut within an image", whole[:2*sample+700], "a.tar", []int{0, 1}, "the archive was cut"},
		{"cut within a header", whole[:2*sample+100], "a.tar", []int{0}, "the archive was cut"},
		{"cut between image and label", whole[:2*sample+1024], "a.tar", []int{0, 1}, "the archive was cut"},
		{"cut within a gzip stream", datatest.Gzip(t, whole)[:100], "a.tar.gz", nil, "unexpected EOF"},
		{"a missing label", tarOf(t, slices.Concat(samples(0, 1), []file{{"s/000001.png", picture(1)}}, samples(2, 2))),
			"a.tar", []int{0, 2, 3}, `"s/000001" has no label`},
		{"a bad label", tarOf(t, slices.Concat([]file{{"s/000000.png", picture(0)}, {"s/000000.cls", "a\x00b"}},
			samples(1, 3))), "a.tar", []int{1, 2, 3}, "want a number, or a name of one line"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, cache := t.TempDir(), t.TempDir()
			path := write(t, dir, c.file, c.shard)
			write(t, dir, "b.tar", tarOf(t, samples(10, 3)))
			o := Options{Path: dir, CacheDir: cache}
			_, err := quiet(t, o)
			var fault *data.Fault
			if !errors.As(err, &fault) || !fault.Damaged || !strings.Contains(err.Error(), c.says) ||
				!strings.HasPrefix(fault.Path, filepath.Join(dir, "a.tar")) {
				t.Fatalf("got %v, want the fault of %s with %q", err, path, c.says)
			}
			o.SkipDamaged = true
			for range 2 { // the second pass uses the stored indexes
				s, err := quiet(t, o)
				if err != nil {
					t.Fatal(err)
				}
				var got []int
				for i := range s.Train.Len() {
					n, err := number(t, s.Train, i)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, n)
				}
				if want := append(slices.Clone(c.left), 10, 11, 12); !slices.Equal(got, want) {
					t.Errorf("samples %v, want %v", got, want)
				}
				if len(s.LeftOut) != 1 || !strings.HasPrefix(s.LeftOut[0].Path, path) ||
					s.LeftOut[0].Whole != (c.left == nil) ||
					!strings.Contains(s.LeftOut[0].String(), c.says) {
					t.Errorf("left out %v, want a part of %s because of %q", s.LeftOut, path, c.says)
				}
			}
		})
	}
}

func TestMissingShardsAndRefusedOnesAreNeverLeftOut(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.tar", tarOf(t, samples(0, 3)))
	write(t, dir, "b.tar", tarOf(t, []file{{"../x.png", picture(1)}, {"../x.cls", "1"}}))
	for pattern, says := range map[string]string{"{a,c}.tar": "no such file", "{a,b}.tar": "refused"} {
		o := Options{Path: filepath.Join(dir, pattern), SkipDamaged: true}
		if _, err := quiet(t, o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want an error with %q", pattern, err, says)
		}
	}
	write(t, dir, "val-0.tar", nil)
	write(t, dir, "train-0.tar", tarOf(t, samples(0, 3)))
	o := Options{Path: filepath.Join(dir, "{train,val}-0.tar"), SkipDamaged: true, ValFraction: 0.5}
	if _, err := quiet(t, o); err == nil || !strings.Contains(err.Error(), "all shards of a part are damaged") {
		t.Errorf("no evaluation shard is sound: got %v", err)
	}
}

func TestAShardWithoutItsEndMarkIsReported(t *testing.T) {
	for cut, want := range map[int]bool{0: false, 1024: true} { // the end mark of a tar has two blocks
		dir := t.TempDir()
		b := tarOf(t, samples(0, 4))
		write(t, dir, "a.tar", b[:len(b)-cut])
		var log bytes.Buffer
		s, err := Open(t.Context(), Options{Path: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if got := strings.Contains(log.String(), "has no end mark"); got != want || s.Train.Len() != 4 {
			t.Errorf("%d bytes cut: %d samples, log %s", cut, s.Train.Len(), log.String())
		}
	}
}
