// Command dataset adds a data set to hetero-train. Its images contain bright bars, whose direction is the class.
package main

import (
	"context"
	"log/slog"
	"math/rand/v2"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/program"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
)

// options contains the keys that only this data set has.
type options struct{ Noise int }

func (o *options) Keys() []config.Key {
	return []config.Key{
		config.Int(&o.Noise, "noise", 64).Unit("levels of 255").AtMost(255).Doc("Brightness of the noise.")}
}

// Open returns the training part and the evaluation part. Each rank calls Open and must get the same samples.
func (o *options) Open(_ context.Context, cfg *config.Config, _ *slog.Logger) (data.Splits, error) {
	n := cfg.Data.NumSamples
	if n == 0 {
		n = 10_000
	}
	train := &bars{o.Noise, cfg.Experiment.Seed, n, cfg.Data.ImageSize}
	eval := &bars{o.Noise, cfg.Experiment.Seed + 1, max(n/5, 1), cfg.Data.ImageSize}
	return data.Splits{Train: train, Eval: eval, Normalization: data.NormalizeSynthetic}, nil
}

// bars implements data.Dataset and data.Reader, because it needs no buffers. If a data set reads files, its NewReader
// allocates new buffers.
type bars struct {
	noise       int
	seed        uint64
	count, size int // number of samples; height and width in pixels
}

func (b *bars) Len() int                        { return b.count }
func (b *bars) Classes() []string               { return []string{"horizontal", "vertical"} }
func (b *bars) Label(i int) int                 { return i % 2 }
func (b *bars) NewReader() (data.Reader, error) { return b, nil }
func (b *bars) Close() error                    { return nil }
func (b *bars) Read(i int, _ data.Sizer, img *data.Image) error {
	random := rand.New(rand.NewPCG(b.seed, uint64(i))) // a sample depends only on the seed and its index
	pix, at := make([]byte, 3*b.size*b.size), random.IntN(b.size)
	for p := range pix {
		pix[p] = byte(random.IntN(b.noise + 1))
		if row, column := p/3/b.size, p/3%b.size; b.Label(i) == 0 && row == at || b.Label(i) == 1 && column == at {
			pix[p] = 255
		}
	}
	*img = data.Image{Pix: pix, Width: b.size, Height: b.size, FullWidth: b.size, FullHeight: b.size}
	return nil
}

func main() {
	program.Main(program.DataSet{Name: "bars", Doc: "bars", New: func() program.DataSetOptions { return new(options) },
		Traits: config.DataTraits{Computed: true}})
}
