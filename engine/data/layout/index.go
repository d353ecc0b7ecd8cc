package layout

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/platform"
)

// ScanOptions are the options of [Folder.Scan].
type ScanOptions struct {
	// CacheDir is the folder for stored lists. "": the list is not stored, and only this process uses it.
	CacheDir string
	// Progress, if not nil, is called every second while Scan works, from one goroutine at a time.
	Progress func(ScanProgress)
	// Kept, if not nil, is called with the path of a stored list that Scan uses instead of reading all folders.
	Kept func(file string)
	// Unkept, if not nil, is called if a list of at least keepFrom files cannot be stored or read.
	Unkept func(error)
}

// ScanProgress is the progress of [Folder.Scan].
type ScanProgress struct {
	Files, Folders int
	Waiting        bool // another process lists the same folder
}

// Scan lists all files and folders below the folder, without a call per file, because the entries of folders contain
// names and types. It reads several folders at a time, and resolves links.
//
// With ScanOptions.CacheDir, Scan stores a list of at least keepFrom files as a file, one for each machine. The list
// has 8 bytes plus the path for each file. On a local file system, the processes of a machine map this file, so they
// share its memory. One process lists the folder, and the others wait for at most lockWait. A later Scan reads the
// modification times of all folders, but lists only changed folders. It does not notice if the target of a link was
// replaced by another kind of file. Scan stores no list if a folder is on a file system that is not known to maintain
// the times of folders.
//
// A link to a folder that contains the link is an error.
func (f *Folder) Scan(ctx context.Context, o ScanOptions) (*Tree, error) {
	if f.objects != nil {
		root, err := f.remoteTree()
		if err != nil {
			return nil, err
		}
		w := &writer{}
		root.write(w, nil, 0)
		return w.tree(), ctx.Err()
	}
	var watch watching
	defer watch.start(o.Progress)()
	if o.CacheDir != "" && !f.Broken {
		k, ok, err := f.keptList(o)
		if err != nil {
			return nil, err
		}
		if ok {
			return f.scanKept(ctx, k, o, &watch)
		}
	}
	return f.newScan(ctx, nil).tree(&watch)
}

// keptList returns the file for the list. The result ok is false if changes of the folder cannot be detected from its
// times.
func (f *Folder) keptList(o ScanOptions) (k keptList, ok bool, err error) {
	d, err := f.openFolder(".")
	if err != nil {
		return k, false, err
	}
	defer d.Close() // read only
	if !fileSystemOf(d).FolderTimes {
		return k, false, nil
	}
	info, err := d.Stat()
	if err != nil {
		return k, false, err
	}
	absolute, err := filepath.Abs(f.path)
	if err != nil {
		return k, false, err
	}
	if holds(absolute, o.CacheDir) {
		if o.Unkept != nil {
			o.Unkept(fmt.Errorf("%s is in the data folder %s, whose times change with each list: select another folder",
				o.CacheDir, f.path))
		}
		return k, false, nil
	}
	device, _, ok := platform.FileID(info)
	links := "links that leave the folder are followed"
	if f.root != nil {
		links = "links that leave the folder are refused"
	}
	return newKeptList(o.CacheDir, absolute, links, device), ok, nil
}

// holds reports whether a scan of folder reads a folder whose modification time changes when a file is created in
// cache.
func holds(folder, cache string) bool {
	if absolute, err := filepath.Abs(cache); err == nil {
		cache = absolute
	}
	for _, path := range []*string{&folder, &cache} {
		if target, err := filepath.EvalSymlinks(*path); err == nil { // cache may not exist
			*path = target
		}
	}
	within, err := filepath.Rel(folder, cache)
	if err != nil {
		return false
	}
	within = filepath.ToSlash(within)
	return within == "." || within != ".." && !strings.HasPrefix(within, "../") && !System(within)
}

// scanKept returns the stored list after updating it.
func (f *Folder) scanKept(ctx context.Context, k keptList, o ScanOptions, watch *watching) (*Tree, error) {
	old, seen := k.load(o)
	if t := f.current(ctx, old, watch); t != nil || ctx.Err() != nil {
		return k.used(t, o), ctx.Err()
	}
	if old == nil { // for few files, no list is stored, and no lock is necessary
		s := f.newScan(ctx, nil)
		s.most = keepFrom
		if t, err := s.tree(watch); !errors.Is(err, errMany) {
			if err == nil && seen != nil {
				k.remove(o) // the damaged list of a folder that now has few files
			}
			return t, err
		}
	}
	release, unkept := func() {}, error(nil)
	for try := 1; ; try++ {
		watch.set(nil)
		lock, err := k.lock(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if unkept = err; err != nil {
			break
		}
		release = sync.OnceFunc(func() {
			lock.Release() //nolint:errcheck // the end of the process releases it, too
		})
		if try == mostTries || !k.replaced(seen) {
			break
		}
		release() // so that all waiting processes can check the list at the same time
		old, seen = k.load(o)
		if t := f.current(ctx, old, watch); t != nil || ctx.Err() != nil {
			return k.used(t, o), ctx.Err()
		}
	}
	defer func() { release() }()
	s := f.newScan(ctx, old)
	s.onTimeless = release // other processes need not wait, because they cannot use the list
	t, err := s.tree(watch)
	switch {
	case err != nil:
		return nil, err
	case t.Files()+t.Folders() < keepFrom || s.timeless.Load():
		if seen != nil {
			k.remove(o)
		}
		return t, nil
	case unkept == nil:
		unkept = k.write(t.parts(k.key))
	}
	if unkept != nil {
		if o.Unkept != nil {
			o.Unkept(fmt.Errorf("keep the list of %s in %s: %w", f.path, o.CacheDir, unkept))
		}
		return t, nil
	}
	release()
	if kept, _ := k.load(o); kept != nil {
		return kept, nil
	}
	return t, nil
}

// current returns t if no folder has changed, otherwise nil.
func (f *Folder) current(ctx context.Context, t *Tree, watch *watching) *Tree {
	if t == nil {
		return nil
	}
	s := f.newScan(ctx, t)
	s.check = true
	watch.set(s)
	if _, err := s.run(); err != nil {
		return nil // the next scan reports errors
	}
	return t
}

// tree lists the folder.
func (s *scan) tree(watch *watching) (*Tree, error) {
	watch.set(s)
	root, err := s.run()
	if err != nil {
		return nil, err
	}
	w := &writer{}
	root.write(w, s.old, 0)
	return w.tree(), nil
}

// watching reports the progress of scans.
type watching struct{ current chan *scan }

func (w *watching) set(s *scan) {
	if w.current != nil {
		w.current <- s
	}
}

// start calls progress every second, until the returned function is called.
func (w *watching) start(progress func(ScanProgress)) (stop func()) {
	if progress == nil {
		return func() {}
	}
	w.current = make(chan *scan)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		var s *scan
		for {
			select {
			case next, ok := <-w.current:
				if !ok {
					return
				}
				s = next
			case <-tick.C:
				p := ScanProgress{Waiting: s == nil}
				if s != nil {
					p.Files, p.Folders = int(s.files.Load()), int(s.folders.Load())
				}
				progress(p)
			}
		}
	}()
	return func() {
		close(w.current)
		<-ended
	}
}
