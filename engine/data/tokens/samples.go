package tokens

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Names of the fields of a sample with T positions.
const (
	Tokens   = "tokens"        // (T), i32: tokens, with padding at the end
	Labels   = data.Labels     // (T), i32: token to predict, or NoLabel; in Classification (), i32: class
	Segments = "segments"      // (T), i32: 0 for the first text of a pair, 1 for the second
	Lengths  = "lengths"       // (), i32: number of positions without padding
	Next     = "next_sentence" // (), i32: 0 if the second text follows the first one, 1 if the second text is random
)

// NoLabel is the label of a position at which the model predicts no token.
const NoLabel int32 = -1

// MostLength is the largest permitted number of positions of a sample. It limits the memory of a batch.
const MostLength = 1 << 20

func checkLength(what string, length, least int) error {
	if length < least || length > MostLength {
		return fmt.Errorf("%s: samples of %d positions, want %d to %d", what, length, least, MostLength)
	}
	return nil
}

func perPosition(name string, length int) data.Field {
	f := data.Field{Name: name, DType: tensor.I32, Shape: []int{length}, PerPosition: true}
	if name == Labels {
		f.Pad = 0xff
	}
	return f
}

func perSample(name string) data.Field {
	return data.Field{Name: name, DType: tensor.I32, Pad: padOf(name)}
}

func padOf(name string) byte {
	if name == Labels || name == Next {
		return 0xff
	}
	return 0
}

// put writes values to the memory of a field, and sets the remaining positions to pad.
func put(memory []byte, values []int32, pad int32) {
	for _, v := range values {
		binary.NativeEndian.PutUint32(memory, uint32(v))
		memory = memory[4:]
	}
	for ; len(memory) > 0; memory = memory[4:] {
		binary.NativeEndian.PutUint32(memory, uint32(pad))
	}
}

func putOne(memory []byte, v int32) { binary.NativeEndian.PutUint32(memory, uint32(v)) }

// Windows provides samples for a language model. A sample consists of Length successive tokens. The label of a token is
// the next token. A window may start within a document and may contain several documents.
//
// In training, each epoch starts at a different offset, so the windows of different epochs start at different tokens.
// In each epoch, fewer than 2·Length tokens are outside all windows. An evaluation starts at the first token.
//
//	field   shape
//	tokens  (Length)
//	labels  (Length)
type Windows struct {
	Corpus *Corpus
	Length int
	// Rest adds a shorter last window, so that an evaluation predicts every token except the first. The remaining
	// labels of this window are NoLabel.
	Rest bool
}

// Len implements [data.Samples].
func (w Windows) Len() int {
	if w.Corpus == nil || w.Length < 1 {
		return 0 // Layout returns the error
	}
	labels, length := w.Corpus.Len()-1, int64(w.Length)
	if w.Rest {
		return int((labels + length - 1) / length)
	}
	// Leave out one window so that epochs can start at different offsets.
	return int(max(labels/length-1, min(labels/length, 1)))
}

// Layout implements [data.Samples].
func (w Windows) Layout(o *data.Options) (data.Layout, error) {
	if w.Corpus == nil {
		return data.Layout{}, errors.New("windows of tokens: no corpus")
	}
	if err := checkLength("windows of tokens", w.Length, 1); err != nil {
		return data.Layout{}, err
	}
	if w.Rest && !o.Evaluate {
		return data.Layout{}, errors.New("windows of tokens: a shorter last window is for evaluation only")
	}
	if w.Len() == 0 {
		return data.Layout{},
			fault("read tokens", w.Corpus.Shards[0].Path, "choose shorter samples, or tokenise more text",
				fmt.Errorf("got %d tokens, want at least one more than the %d tokens of a sample", w.Corpus.Len(),
					w.Length))
	}
	return data.Layout{Fields: []data.Field{perPosition(Tokens, w.Length), perPosition(Labels, w.Length)}}, nil
}

// NewSource implements [data.Samples].
func (w Windows) NewSource(o *data.Options) (data.Source, error) {
	return &windowSource{w: w, seed: o.Seed, evaluate: o.Evaluate, buf: make([]int32, w.Length+1)}, nil
}

// offset returns the position of the first token of an epoch's first window.
func (w Windows) offset(seed uint64, epoch int) int64 {
	room := w.Corpus.Len() - 1 - int64(w.Len())*int64(w.Length)
	r := data.NewRandom(seed, epoch, 0, data.ForWindows)
	return int64(r.Below(int(room + 1)))
}

type windowSource struct {
	w        Windows
	seed     uint64
	evaluate bool
	buf      []int32
}

// Close implements [data.Source].
func (s *windowSource) Close() error { return nil }

// Read implements [data.Source].
func (s *windowSource) Read(span *data.Span, errs []error) {
	var offset int64
	if !s.evaluate {
		offset = s.w.offset(s.seed, span.Epoch)
	}
	for j := span.Lo; j < span.Hi; j++ {
		at := offset + int64(span.Index[j])*int64(s.w.Length)
		buf := s.buf[:min(int64(len(s.buf)), s.w.Corpus.Len()-at)]
		err := s.w.Corpus.Read(at, buf)
		errs[j-span.Lo] = err
		if err == nil {
			put(span.Field(0, j), buf[:len(buf)-1], 0)
			put(span.Field(1, j), buf[1:], NoLabel)
		}
	}
}
