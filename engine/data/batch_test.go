package data

import (
	"bytes"
	"slices"
)

// imageOptions are the options of a loader of images, as one flat struct.
type imageOptions struct {
	Dataset   Dataset
	Transform Transform
	Mix       Mix
	Stages    *Stages

	Seed         uint64
	BatchSize    int
	Accumulation int
	Evaluate     bool
	KeepLast     bool
	Share        *Share
	MaxCount     int
	Start        int64
	Workers      int
	Depth        int
	Alloc        func(bytes int) (memory []byte, free func(), err error)
}

func (o imageOptions) options() Options {
	return Options{Samples: Images{o.Dataset, nil, o.Transform, o.Mix, o.Stages}, Seed: o.Seed, BatchSize: o.BatchSize,
		Accumulation: o.Accumulation,
		KeepLast:     o.KeepLast,
		Evaluate:     o.Evaluate, Share: o.Share, MaxCount: o.MaxCount, Start: o.Start, Workers: o.Workers,
		Depth: o.Depth,
		Alloc: o.Alloc}
}

// imageBatch is a copy of a batch of images.
type imageBatch struct {
	Images       []byte
	Labels       []int32
	SecondLabels []int32
	Lambda       []float32
	IDs          []int64
	N            int
	Offset       int
	Total        int
	Step         int64
	Epoch        int
	Replaced     int
}

func clone(b *Batch) imageBatch {
	return imageBatch{Images: slices.Clone(Values[uint8](b, Pixels)), Labels: slices.Clone(Values[int32](b, Labels)),
		SecondLabels: slices.Clone(Values[int32](b, SecondLabels)), Lambda: slices.Clone(Values[float32](b, Lambda)),
		IDs: slices.Clone(b.IDs),
		N:   b.N, Offset: b.Offset, Total: b.Total, Step: b.Step, Epoch: b.Epoch, Replaced: b.Replaced}
}

func (b imageBatch) equal(o imageBatch) bool {
	return b.Step == o.Step && b.Epoch == o.Epoch && b.N == o.N && b.Offset == o.Offset && b.Total == o.Total &&
		slices.Equal(b.IDs, o.IDs) && slices.Equal(b.Labels, o.Labels) &&
		slices.Equal(b.SecondLabels, o.SecondLabels) && slices.Equal(b.Lambda, o.Lambda) &&
		bytes.Equal(b.Images, o.Images)
}

func open(o imageOptions) (*Loader, error) { return NewLoader(o.options()) }
