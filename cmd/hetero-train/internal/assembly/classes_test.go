package assembly

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// labels is a data set of three classes whose samples are only labels.
type labels struct {
	data.Dataset
	list []int
}

func (l labels) Len() int          { return len(l.list) }
func (l labels) Classes() []string { return []string{"a", "b=c", "none"} }
func (l labels) Label(i int) int   { return l.list[i] }

func TestWeightsOfClasses(t *testing.T) {
	for _, c := range []struct {
		texts   []string
		set     string // another setting of the run
		want    []float64
		refused string
	}{
		{texts: nil},
		{texts: []string{"balanced"}, want: []float64{4.0 / 2, 4.0 / 6, 1}}, // 4 samples; 2 classes have samples
		{texts: []string{"b=c=3"}, want: []float64{1, 3, 1}},
		{texts: []string{"a=0.5", "b=c=0"}, want: []float64{0.5, 0, 1}},
		{texts: []string{"balanced", "a=2"}, refused: `got "balanced", want ["balanced"] or NAME=WEIGHT`},
		{texts: []string{"A=2"}, refused: `no class "A"; nearest: a`},
		{texts: []string{"a=-1"}, refused: "want a number from 0"},
		{texts: []string{"a=NaN"}, refused: "want a number from 0"},
		{texts: []string{"a=1", "a=2"}, refused: `"a" appears twice`},
		{texts: []string{"a=0", "b=c=0", "none=0"}, refused: "all weights are 0"},
		{texts: []string{"balanced"}, set: "augment.mixup=0.2", refused: "mixed image"},
	} {
		var set []config.Override
		if key, value, ok := strings.Cut(c.set, "="); ok {
			set = append(set, config.Override{Key: key, Value: value})
		}
		cfg, err := config.Load("", parts.BuiltinCatalog, set...)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Train.ClassWeights = c.texts
		r := New(cfg, session.Options{Log: slog.New(slog.DiscardHandler)})
		r.Data = &parts.Opened{Splits: data.Splits{Train: labels{list: []int{1, 0, 1, 1}}}}
		err = r.weighClasses()
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%q: got %v, want %q", c.texts, err, c.refused)
			}
			continue
		}
		if err != nil || !slices.Equal(r.weights, c.want) {
			t.Errorf("%q: got %v, error %v; want %v", c.texts, r.weights, err, c.want)
		}
	}
}

func TestWeightsThatAreInfiniteInF16AreRefused(t *testing.T) {
	for _, c := range []struct {
		types   []tensor.DType // precisions of the ranks
		weight  float64
		refused bool
	}{
		{[]tensor.DType{tensor.F16}, 65504, false},
		{[]tensor.DType{tensor.F16}, 65520, true}, // rounds to infinity in f16
		{[]tensor.DType{tensor.F32, tensor.F16}, 1e6, true},
		{[]tensor.DType{tensor.BF16, tensor.F32}, 1e6, false},
	} {
		cfg, err := config.Load("", parts.BuiltinCatalog)
		if err != nil {
			t.Fatal(err)
		}
		r := New(cfg, session.Options{Log: slog.New(slog.DiscardHandler)})
		r.weights = []float64{1, c.weight}
		for _, d := range c.types {
			r.Rank.Types = append(r.Rank.Types, devices.RankType{Type: d.String()})
		}
		if err := r.weightsFit(); (err != nil) != c.refused {
			t.Errorf("types %v, weight %g: got %v, want refused %v", c.types, c.weight, err, c.refused)
		}
	}
}
