package runtime

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hetero-train/hetero-train/engine/platform"
)

// openFile opens the file of the Writer, or creates it. If necessary, it first repairs the file.
func (w *Writer) openFile(fresh bool) (Repair, error) {
	name := filepath.Base(w.path)
	repair, size, err := w.inspect(name)
	if err != nil {
		return repair, err
	}
	if fresh && repair.Records+int64(repair.Damaged) > 0 {
		repair, size = Repair{}, 0
		if repair.Earlier, err = w.freeName(name); err != nil {
			return repair, err
		}
	}
	if aside := repair.SetAside + repair.Earlier; aside != "" { // at most one of them is not empty
		if err := w.dir.Rename(name, aside); err != nil {
			return repair, err
		}
	}
	switch {
	case repair.Repaired:
		size, _, err = w.rewrite(name, func(int64) bool { return true })
	case size == 0:
		size, err = w.create(name)
	}
	if err != nil {
		return repair, err
	}
	return repair, w.attach(name, size, repair.Records == 0)
}

// inspect reads the file without changing it. size is 0 if there is no file in this format.
func (w *Writer) inspect(name string) (repair Repair, size int64, err error) {
	file, err := w.dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return repair, 0, nil
	}
	if err != nil {
		return repair, 0, err
	}
	defer file.Close()
	stat, err := file.Stat()
	if err != nil || stat.Size() == 0 {
		return repair, 0, err
	}
	closed, err := eachLine(file, func(line []byte) {
		if _, ok := lineIteration(line); ok {
			repair.Records++
		} else {
			repair.Damaged++
		}
	})
	foreign := errors.Is(err, errLayout)
	if err == nil && repair.Damaged > 0 {
		_, foreign, err = readArray(file) // foreign: a valid array, but in another layout
	}
	if foreign {
		repair = Repair{}
		repair.SetAside, err = w.freeName(name)
		return repair, 0, err
	}
	repair.Repaired = !closed || repair.Damaged > 0
	return repair, stat.Size(), err
}

func (w *Writer) freeName(name string) (string, error) {
	for n := 1; ; n++ {
		aside := fmt.Sprintf("%s.%d", name, n)
		if _, err := w.dir.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			return aside, nil
		} else if err != nil {
			return "", err
		}
	}
}

func (w *Writer) create(name string) (size int64, err error) {
	return w.replace(name, func(io.Writer) error { return nil })
}

// attach opens a valid file of the given size for appending.
func (w *Writer) attach(name string, size int64, empty bool) error {
	file, err := w.dir.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if w.file != nil {
		w.file.Close()
	}
	w.file, w.end, w.empty = file, size-int64(len(closing)), empty
	w.size.Store(size)
	return nil
}

// Truncate removes all records with a larger iteration. A run that resumes from a checkpoint calls it with the step
// of the checkpoint. The file is replaced atomically, so readers see either the old or the new file.
func (w *Writer) Truncate(iteration int64) error {
	return w.spool.Hold(func(flush func() error) error {
		if err := flush(); err != nil {
			return err
		}
		return w.truncate(iteration)
	})
}

func (w *Writer) truncate(iteration int64) error {
	name := filepath.Base(w.path)
	size, records, err := w.rewrite(name, func(i int64) bool { return i <= iteration })
	if size > 0 { // also if the folder could not be synced: the open file no longer has this name
		err = errors.Join(err, w.attach(name, size, records == 0))
	}
	if err != nil {
		return fmt.Errorf("truncate metrics %s: %w", w.path, err)
	}
	return nil
}

// rewrite replaces the file by one that contains only the records whose iteration keep accepts.
func (w *Writer) rewrite(name string, keep func(iteration int64) bool) (size, records int64, err error) {
	old, err := w.dir.Open(name)
	if err != nil {
		return 0, 0, err
	}
	defer old.Close()
	size, err = w.replace(name, func(out io.Writer) error {
		separator := "\n"
		var failed error
		_, err := eachLine(old, func(line []byte) {
			if iteration, ok := lineIteration(line); ok && failed == nil && keep(iteration) {
				_, failed = fmt.Fprintf(out, "%s%s", separator, line)
				separator = ",\n"
				records++
			}
		})
		return errors.Join(err, failed)
	})
	return size, records, err
}

// replace atomically and durably replaces the file with the given name. The new file is an array of the records that
// the function content writes. If size is not 0, the file was replaced, even if there is an error.
func (w *Writer) replace(name string, content func(io.Writer) error) (size int64, err error) {
	temporary := "." + name + ".tmp"
	file, err := w.dir.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return 0, err
	}
	defer func() {
		file.Close()
		if removeErr := w.dir.Remove(temporary); err != nil && !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
	}()
	out := bufio.NewWriterSize(&portions{file: file, progress: w.progress}, 1<<16)
	out.WriteString(opening) // Flush returns the error
	if err := content(out); err != nil {
		return 0, err
	}
	out.WriteString(closing)
	if err := errors.Join(out.Flush(), file.Sync()); err != nil {
		return 0, err
	}
	stat, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if err := w.dir.Rename(temporary, name); err != nil {
		return 0, err
	}
	folder, err := w.dir.Open(".")
	if err != nil {
		return stat.Size(), err
	}
	defer folder.Close()
	return stat.Size(), platform.SyncDir(folder)
}
