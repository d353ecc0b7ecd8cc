package parts

import (
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
)

// Opened is an open data set, with the properties that explain the results of a run.
type Opened struct {
	data.Splits
	Tokens *TokenSplits // text data; nil for images: Splits contains them

	Name string // name of the data set that the run trains on: after a fallback, the fallback data set
	Note string // reason for the fallback; "" without a fallback

	Cache  data.Budget // memory for decoded images
	cached int64       // maximum memory of the caches, bytes; 0: no caches
	ahead  int64       // memory for encoded samples that are fetched or decompressed before their use, bytes

	options config.Options // keys of the data set Name; nil for text

	stored  data.Splits  // the data set without caches, and without replacement of unreadable samples
	Content data.Content // stored data, which the machines compare; nil if the settings alone determine the data
	Watch   data.Watch   // receives the hashes of the parts of Content that this process reads
}

// Unread returns a data set without opening it, for commands that read no samples. The parameter splits describes the
// data set.
func Unread(cfg *config.Config, splits data.Splits) *Opened {
	o := &Opened{Name: cfg.Data.Dataset, Splits: splits}
	o.accountFor(cfg.Data.Options, &cfg.Data)
	o.cached = data.DefaultCacheBytes
	return o
}

// accountFor computes the memory that reading the data set with the given options needs (cached, ahead).
func (o *Opened) accountFor(options config.Options, d *config.Data) {
	o.cached = data.DefaultCacheBytes
	user, ok := options.(MemoryUser)
	if !ok {
		return
	}
	m := user.ReadMemory(d)
	o.ahead = m.Ahead
	if m.Side > 0 {
		needs := data.CachedBytes(o.Train.Len(), m.Side, m.Side)
		if o.Eval != nil {
			needs += data.CachedBytes(o.Eval.Len(), m.Side, m.Side)
		}
		o.cached = min(o.cached, needs)
	}
}

// CachedBytes returns the maximum memory of the caches of decoded images.
func (o *Opened) CachedBytes() int64 { return o.cached }

// AheadBytes returns the memory of encoded samples that are fetched or decompressed before their use.
func (o *Opened) AheadBytes() int64 { return o.ahead }

// DecodesImages reports whether the data may contain encoded images. Data sets without such images ignore
// data.max_pixels.
func (o *Opened) DecodesImages() bool {
	return o.Tokens == nil && o.options != nil && !config.Ignores(o.options, "max_pixels")
}

// Close closes the files of the data set and frees its memory.
func (o *Opened) Close() error {
	if o.Tokens == nil {
		return o.Splits.Close()
	}
	if o.Tokens.Closer == nil {
		return nil
	}
	return o.Tokens.Closer.Close()
}

// Counts returns the number of training samples and of evaluation samples.
func (o *Opened) Counts() (train, eval int) {
	if t := o.Tokens; t != nil {
		if t.Eval != nil {
			eval = t.Eval.Len()
		}
		return t.Train.Len(), eval
	}
	if o.Eval != nil {
		eval = o.Eval.Len()
	}
	return o.Train.Len(), eval
}

// EvalFrom describes the origin of the evaluation samples. It also names the files of a part that the run does not use.
// Both results are "" if the data set has no parts.
func (o *Opened) EvalFrom() (origin, unused string) {
	if t := o.Tokens; t != nil {
		return t.EvalFrom, t.Unused
	}
	return o.Splits.EvalFrom, o.Splits.Unused
}

// Total returns the number of samples of both parts together.
func (o *Opened) Total() int {
	train, eval := o.Counts()
	if o.Splits.Same || o.Tokens != nil && o.Tokens.Same {
		return eval
	}
	return train + eval
}

// HasEval reports whether the data set has evaluation samples.
func (o *Opened) HasEval() bool {
	_, eval := o.Counts()
	return eval > 0
}

// Classes returns the names of the classes, or nil if there are none.
func (o *Opened) Classes() []string {
	switch {
	case o.Tokens != nil:
		return o.Tokens.Classes
	case o.Sets != nil:
		return o.Sets.Names
	case o.Train != nil:
		return o.Train.Classes()
	}
	return nil
}

// NamesSamples reports whether the machines compare the names of the samples when they compare Content.
func (o *Opened) NamesSamples() bool {
	_, named := o.stored.Train.(data.Described)
	return named
}
