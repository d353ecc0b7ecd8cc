package runtime

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
)

// Thinning states which records a file keeps after it has reached its largest size. It keeps all records of the newest
// Window steps. Beyond Window, it halves the density with each doubling of the age: it keeps one of 2 steps, then one
// of 4, and so on. The file still covers the whole run, and its size grows with the logarithm of the number of steps.
type Thinning struct {
	Last   int64 // newest step
	Window int64 // at least 1
}

// ThinningOf returns a thinning that keeps at most half of the steps. Among the windows Last, Last/2, Last/4, …, it
// chooses the largest one with this property, or a window of 1 if there is none. The steps must be in ascending order.
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

// Keep returns a function that reports whether the record of a step is kept. The caller must call this function for
// each step, in ascending order. The result depends only on the steps, so the files of all ranks keep the same ones.
func (t Thinning) Keep() func(step int64) bool {
	octave, slot := -1, int64(-1)
	return func(step int64) bool {
		age := max(t.Last-step, 0)
		o := bits.Len64(uint64(age / max(t.Window, 1))) // one step is kept in each slot of 2^o steps
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

// Thin removes the records that the thinning t does not keep. Readers see either the old or the new file. Thin calls
// progress after each portion of the new file, which may be large.
func (w *Writer) Thin(t Thinning, progress func()) error {
	return w.spool.Hold(func(flush func() error) error {
		w.progress = progress
		defer func() { w.progress = nil }()
		if err := flush(); err != nil {
			return err
		}
		name := filepath.Base(w.path)
		size, records, err := w.rewrite(name, t.Keep())
		if size > 0 { // also if the folder could not be synced
			err = errors.Join(err, w.attach(name, size, records == 0))
		}
		if err != nil {
			return fmt.Errorf("thin out metrics %s: %w", w.path, err)
		}
		return nil
	})
}

// portionBytes is the size of the portions in which Thin writes a file. A slow disk with 5 MB/s needs 1.6 s for a
// portion.
const portionBytes = 8 << 20

// portions writes to a file, and flushes it to the disk after each portion.
type portions struct {
	file     *os.File
	progress func() // may be nil
	bytes    int    // number of bytes since the last flush
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
