package data

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Images provides the samples of a Dataset:
//
//	field          shape            type
//	labels         ()               i32
//	second_labels  ()               i32, label of the partner; only with Mix
//	lambda         ()               f32, weight of labels, 0 … 1; only with Mix
//	images         (Size, Size, 3)  u8, rows of red, green, blue
//
// If Sets is not nil, labels, second_labels and lambda have the shape (len(Sets.Names)). The field labels then contains
// 1 for each label of the sample, and 0 for all others.
type Images struct {
	Dataset   Dataset
	Sets      *LabelSets // nil: each sample has one class
	Transform Transform
	Mix       Mix // combines training samples with their partners

	// Stages, if not nil, accumulates the time and bytes that samples need.
	Stages *Stages
}

// Names of the fields of Images.
const (
	Labels       = "labels"
	SecondLabels = "second_labels"
	Lambda       = "lambda"
	Pixels       = "images"
)

// Len implements [Samples].
func (s Images) Len() int {
	if s.Dataset == nil {
		return 0 // Layout returns the error
	}
	return s.Dataset.Len()
}

// Replaced reports whether sample i was unreadable and has been replaced; see [Skip].
func (s Images) Replaced(i int) bool {
	skips, ok := s.Dataset.(interface{ Replaced(i int) bool })
	return ok && skips.Replaced(i)
}

// Layout implements [Samples].
func (s Images) Layout(o *Options) (Layout, error) {
	if s.Dataset == nil {
		return Layout{}, errors.New("data loader: no data set")
	}
	var errs []error
	view, err := s.Transform.normalized()
	errs = append(errs, err, s.Mix.check())
	var targets []int
	if s.Sets != nil {
		targets = []int{len(s.Sets.Names)}
	}
	layout := Layout{Fields: []Field{{Name: Labels, DType: tensor.I32, Shape: targets, Pad: 0xff}}, Group: 1}
	if s.Mix.Enabled() {
		layout.Group = 2 // Read decodes the two samples of a mixed pair together
		layout.Fields = append(layout.Fields, Field{Name: SecondLabels, DType: tensor.I32, Shape: targets},
			Field{Name: Lambda, DType: tensor.F32, Shape: targets})
		if o.Evaluate {
			errs = append(errs, errors.New("data loader: samples of an evaluation are not mixed"))
		}
		if o.Accumulation > 0 && o.BatchSize/o.Accumulation%2 != 0 {
			errs = append(errs,
				fmt.Errorf("data loader: batches of %d samples cannot be mixed in pairs, want an even number",
					o.BatchSize/o.Accumulation))
		}
	}
	layout.Fields = append(layout.Fields, Field{Name: Pixels, DType: tensor.U8, Shape: []int{view.Size, view.Size, 3}})
	return layout, errors.Join(errs...)
}

// NewSource implements [Samples].
func (s Images) NewSource(o *Options) (Source, error) {
	view, err := s.Transform.normalized()
	if err != nil {
		return nil, err
	}
	reader, err := s.Dataset.NewReader()
	if err != nil {
		return nil, err
	}
	source := &imageSource{set: s.Dataset, sets: s.Sets, reader: reader, mix: s.Mix, stages: s.Stages, seed: o.Seed,
		batch: o.BatchSize, size: view.Size,
		transform: view.prepared(o.Seed), pixels: 1}
	if s.Mix.Enabled() {
		source.pixels = 3
	}
	return source, nil
}

// imageSource reads the images of one worker.
type imageSource struct {
	set       Dataset
	sets      *LabelSets // nil: each sample has one class
	reader    Reader
	mix       Mix
	stages    *Stages
	seed      uint64
	batch     int // number of samples of an optimizer step
	size      int // height and width of an image in pixels
	pixels    int // index of the image field
	transform transformer
	img       Image
	partner   []byte // (size, size, 3), image of a partner that is not in the span
}

// Close implements [Source].
func (w *imageSource) Close() error { return w.reader.Close() }

// Read implements [Source].
func (w *imageSource) Read(s *Span, errs []error) {
	for j := s.Lo; j < s.Hi; j++ {
		if w.mix.Enabled() && j%2 == 0 && j+1 < s.Hi {
			errs[j-s.Lo], errs[j+1-s.Lo] = w.readPair(s, j)
			j++
		} else {
			errs[j-s.Lo] = w.read(s, j)
		}
	}
}

// read fills position j of the batch.
func (w *imageSource) read(s *Span, j int) error {
	pix := s.Field(w.pixels, j)
	if err := w.view(s, j, pix); err != nil {
		return err
	}
	m := w.mixing(s, j)
	if !m.none() { // the partner is in another span or on another rank
		w.partner = resize(w.partner, len(pix))
		if err := w.view(s, j^1, w.partner); err != nil {
			return err
		}
		m.apply(pix, w.partner, w.size)
	}
	w.label(s, j, m)
	return nil
}

// readPair fills positions j and j+1, whose samples mixup and cutmix combine with each other.
func (w *imageSource) readPair(s *Span, j int) (errA, errB error) {
	a, b := s.Field(w.pixels, j), s.Field(w.pixels, j+1)
	errA, errB = w.view(s, j, a), w.view(s, j+1, b)
	ma, mb := w.mixing(s, j), w.mixing(s, j+1)
	if err := cmp.Or(errA, errB); err != nil {
		if !ma.none() {
			errA = err
		}
		if !mb.none() {
			errB = err
		}
	} else {
		w.partner = append(w.partner[:0], a...)
		if !ma.none() {
			ma.apply(a, b, w.size)
		}
		if !mb.none() {
			mb.apply(b, w.partner, w.size)
		}
	}
	w.label(s, j, ma)
	w.label(s, j+1, mb)
	return errA, errB
}

func (w *imageSource) mixing(s *Span, j int) mixing {
	if !w.mix.Enabled() || j^1 >= len(s.Index) { // the last sample of an epoch may have no partner
		return unmixed
	}
	return w.mix.draw(w.seed, s.Epoch, s.First+j, w.batch, w.size)
}

// label writes the labels of position j.
func (w *imageSource) label(s *Span, j int, m mixing) {
	label := w.set.Label(int(s.Index[j]))
	w.write(label, s.Field(0, j))
	if !w.mix.Enabled() {
		return
	}
	if !m.none() {
		label = w.set.Label(int(s.Index[j^1]))
	}
	w.write(label, s.Field(1, j))
	lambdas := elements[float32](s.Field(2, j))
	for k := range lambdas {
		lambdas[k] = m.lambda
	}
}

// write writes a class, or the labels of a set, to a field of a sample.
func (w *imageSource) write(label int, field []byte) {
	to := elements[int32](field)
	if w.sets != nil {
		w.sets.fill(label, to)
		return
	}
	to[0] = int32(label)
}

// view writes the unmixed image of position j to pix.
func (w *imageSource) view(s *Span, j int, pix []byte) (err error) {
	index := int(s.Index[j])
	defer func() {
		// A decoder of the standard library may panic on a crafted file. The panic must not end the process.
		if r := recover(); r != nil {
			err = &Fault{Op: "decode sample", Index: index, Err: fmt.Errorf("decoder panicked: %v", r)}
		}
	}()
	w.transform.begin(s.Epoch, index)
	if w.stages != nil {
		return w.viewTimed(index, pix)
	}
	if err := w.reader.Read(index, &w.transform, &w.img); err != nil {
		return err
	}
	w.transform.apply(pix, &w.img)
	return nil
}
