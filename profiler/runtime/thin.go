package runtime

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
)

// Thinning states which records a file keeps after it has reached its largest size. It keeps all records of the newest
// Window steps. For each doubling of the age beyond Window, it keeps half as many: one of 2 steps, then one of 4, and
// so on. The file still covers the whole run, and its size grows with the logarithm of the number of steps.
type Thinning struct {
	Last   int64 // newest step
	Window int64 // at least 1
}

// ThinningOf returns the thinning with the largest window, among Last divided by powers of two, that keeps at most half
// of the steps. If none does, it returns a window of 1. The steps ascend.
func ThinningOf(steps []int64) Thinning {
	if len(steps) == 0 {
		return Thinning{Window: 1}
	}
	t := Thinning{Last: steps[len(steps)-1], Window: max(steps[len(steps)-1], 1)}
	for ; t.Window > 1; t.Window /= 2 {
		kept, keep := 0, t.Keep()
		for _, s := range steps {
			if keep(s) {
				kept++
			}
		}
		if kept <= len(steps)/2 {
			break
		}
	}
	return t
}

// Keep returns a function that reports whether the record of a step is kept. The caller must call it with each step, in
// ascending order. The files of all ranks keep the same steps.
func (t Thinning) Keep() func(step int64) bool {
	octave, slot := -1, int64(-1)
	return func(step int64) bool {
		age := max(t.Last-step, 0)
		o := bits.Len64(uint64(age / max(t.Window, 1))) // a slot has 2^o steps
		s := step >> o
		if o == octave && s == slot {
			return false
		}
		octave, slot = o, s
		return true
	}
}

// Size returns the size of the file in bytes, without the records that wait in memory. It never waits for the disk.
func (w *Writer) Size() int64 { return w.size.Load() }

// Steps returns the iterations of the records in the file.
func (w *Writer) Steps() (steps []int64, err error) {
	err = w.spool.Hold(func(func() error) error {
		file, err := w.dir.Open(filepath.Base(w.path))
		if err != nil {
			return err
		}
		defer file.Close() // read only
		_, err = eachLine(file, func(line []byte) {
			if iteration, ok := lineIteration(line); ok {
				steps = append(steps, iteration)
			}
		})
		return err
	})
	return steps, err
}

// Thin removes the records that t does not keep. Readers see either the old or the new file. Thin calls progress after
// each portion of the new file, which may be large.
func (w *Writer) Thin(t Thinning, progress func()) error {
	return w.spool.Hold(func(flush func() error) error {
		w.progress = progress
		defer func() { w.progress = nil }()
		if err := flush(); err != nil {
			return err
		}
		name := filepath.Base(w.path)
		size, records, err := w.rewrite(name, t.Keep())
		if size > 0 { // even if the folder could not be synced
			err = errors.Join(err, w.attach(name, size, records == 0))
		}
		if err != nil {
			return fmt.Errorf("thin out metrics %s: %w", w.path, err)
		}
		return nil
	})
}

// portionBytes is the size of the parts in which a file is written. A slow disk of 5 MB/s needs 1.6 s for a part.
const portionBytes = 8 << 20

// portions writes to a file, and flushes it to the disk after each portion.
type portions struct {
	file     *os.File
	progress func() // may be nil
	bytes    int    // since the last flush
}

// Write implements io.Writer.
func (p *portions) Write(b []byte) (int, error) {
	n, err := p.file.Write(b)
	if p.bytes += n; err != nil || p.bytes < portionBytes {
		return n, err
	}
	p.bytes, err = 0, p.file.Sync()
	if p.progress != nil {
		p.progress()
	}
	return n, err
}
