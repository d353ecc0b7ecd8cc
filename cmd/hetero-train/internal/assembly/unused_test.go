package assembly

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
)

// picturesIn writes tiny images of two classes into each folder. side is their width and height in pixels.
func picturesIn(t *testing.T, side int, folders ...string) {
	t.Helper()
	for _, folder := range folders {
		for _, class := range []string{"cat", "dog"} {
			dir := filepath.Join(folder, class)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				var b bytes.Buffer
				if err := png.Encode(&b, image.NewRGBA(image.Rect(0, 0, side, side))); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.png", i)), b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func TestSettingsOfTheDataThatDoNotDoWhatTheySayAreWarnedOf(t *testing.T) {
	splits, flat := t.TempDir(), t.TempDir()
	picturesIn(t, 16, filepath.Join(splits, "train"), filepath.Join(splits, "test"))
	picturesIn(t, 16, flat)
	list := "file_name,label\n"
	pictures, err := filepath.Glob(filepath.Join(flat, "*", "*.png"))
	if err != nil || len(pictures) == 0 {
		t.Fatalf("got %d pictures, %v", len(pictures), err)
	}
	for _, file := range pictures {
		class := filepath.Base(filepath.Dir(file))
		list += class + "/" + filepath.Base(file) + "," + class + "\n"
	}
	listed := filepath.Join(flat, "metadata.csv")
	if err := os.WriteFile(listed, []byte(list), 0o644); err != nil {
		t.Fatal(err)
	}
	const unused, scaled = "data.val_fraction = 0.2 (--set data.val_fraction) has no effect",
		"images of at most 16 pixels are enlarged to 224"
	for _, c := range []struct {
		name, path string
		set, want  []string
	}{
		{"own part", splits, []string{"data.val_fraction=0.2", "data.image_size=16"}, []string{unused}},
		{"no part", flat, []string{"data.val_fraction=0.2", "data.image_size=16"}, nil},
		{"small images", flat, nil, []string{scaled}},
		{"small images on purpose", flat, []string{"data.image_size=224"}, nil},
		{"small images in a list", listed, []string{"data.dataset=huggingface"}, []string{scaled}},
		{"both", splits, []string{"data.val_fraction=0.2"}, []string{unused, scaled}},
	} {
		var set []config.Override
		for _, text := range append([]string{"data.dataset=images", "data.path=" + c.path,
			"data.cache_dir=" + t.TempDir()}, c.set...) {
			o, err := config.ParseSet(text)
			if err != nil {
				t.Fatal(err)
			}
			set = append(set, o)
		}
		cfg, err := config.Load("", parts.BuiltinCatalog, set...)
		if err != nil {
			t.Fatal(err)
		}
		opened, err := parts.OpenData(t.Context(), cfg, 0, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer opened.Close()
		var got []string
		for _, u := range unusedSettings(cfg, nil, opened, false) {
			got = append(got, u.String())
		}
		got = append(got, dataWarnings(cfg, opened)...)
		if len(got) != len(c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(got[i], want) {
				t.Errorf("%s: got %q, want %q", c.name, got[i], want)
			}
		}
	}
}

func TestClassesOfTheEvaluationWithoutTrainingSamples(t *testing.T) {
	train, eval := labels{list: []int{0, 0, 1}}, labels{list: []int{1, 2, 2}}
	if got := untrained(&parts.Opened{Splits: data.Splits{Train: train, Eval: eval}}); !slices.Equal(got,
		[]string{"none"}) {
		t.Errorf("got %q, want the class of label 2", got)
	}
	sets := &data.LabelSets{Names: []string{"x", "y", "z"}, Sets: [][]int32{{0, 2}, nil, {1}}}
	if got := untrained(&parts.Opened{Splits: data.Splits{Train: train, Eval: eval, Sets: sets}}); !slices.Equal(got,
		[]string{"y"}) {
		t.Errorf("got %q, want label y", got)
	}
	if got := untrained(&parts.Opened{Splits: data.Splits{Train: train}}); got != nil {
		t.Errorf("without an evaluation: got %q", got)
	}
}
