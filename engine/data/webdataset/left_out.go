package webdataset

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/archive"
)

// leftOut collects the damaged parts of a data set.
type leftOut struct {
	skip  bool    // leave damaged parts out; otherwise, the first one is an error
	whole []error // reason why all samples of a shard are left out; nil: they are not left out
	first error
	list  []data.LeftOut
	mu    sync.Mutex
}

// isDamage reports whether the contents of a shard caused err. It returns false if an archive was refused as unsafe.
func isDamage(err error) bool {
	return data.IsDamage(err) && !errors.Is(err, archive.ErrRefused) && !errors.As(err, new(*archive.CacheError))
}

// note leaves out shard k if err is damage that may be skipped. It returns all other errors.
func (l *leftOut) note(k int, err error) error {
	if !l.skip || !isDamage(err) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.whole[k] = err
	return nil
}

// check lists all parts that are left out, in the order of the shards. If nothing may be left out, it returns the first
// error.
func (l *leftOut) check(paths []string, indices []*index) error {
	for k, path := range paths {
		add := func(of string, whole, rest bool, reason error) {
			if l.first == nil {
				l.first = &data.Fault{Op: "index shard", Path: of, Index: -1, Err: reason, Damaged: true}
			}
			l.list = append(l.list, data.LeftOut{Path: of, Whole: whole, Rest: rest, Reason: reason})
		}
		if err := l.whole[k]; err != nil {
			add(path, true, false, err)
			continue
		}
		for _, f := range indices[k].Faults {
			add(path, false, false, errors.New(f.Reason))
		}
		if cut := indices[k].Cut; cut != "" {
			add(path, false, true, fmt.Errorf("%s; the %d samples before are used", cut, len(indices[k].Keys)))
		}
	}
	if !l.skip {
		return l.first
	}
	return nil
}
