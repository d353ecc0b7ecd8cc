package layout

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/data/filelock"
	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// ScanOptions are the options of [Folder.Scan].
type ScanOptions struct {
	// CacheDir is the folder for the kept list. "": the list is not kept, and belongs to this process.
	CacheDir string
	// Progress is called every second while Scan works, from one goroutine at a time; may be nil.
	Progress func(ScanProgress)
	// Kept is called with the file of a kept list that Scan uses in place of reading all folders; may be nil.
	Kept func(file string)
	// Unkept is called if a list of at least keepFrom files cannot be kept or read; may be nil.
	Unkept func(error)
}

// ScanProgress is the progress of [Folder.Scan].
type ScanProgress struct {
	Files, Folders int
	Waiting        bool // another process lists the same folder
}

// keepFrom is the number of files and folders from which Scan keeps the list. Fewer are read within milliseconds from
// local disks, and need little memory.
const keepFrom = 1000

// Scan lists all files and folders below the folder, without a call per file: the folders state names and types. It
// reads several folders at a time, and resolves links.
//
// With ScanOptions.CacheDir, Scan keeps the list as a file. The processes of a machine map this file, so they share
// its memory: 8 bytes and the path for each file. One process lists, and the others wait. A later Scan asks for the
// times of each folder, and reads only changed folders. It does not notice a link whose target was replaced by another
// kind of file. Scan keeps no list if a folder is on a file system that is not known to maintain the times of folders.
//
// A link to a folder that contains the link is an error.
func (f *Folder) Scan(ctx context.Context, o ScanOptions) (*Tree, error) {
	var watch watching
	defer watch.start(o.Progress)()
	absolute, err := filepath.Abs(f.path)
	if err == nil && o.CacheDir != "" && !f.Broken && f.fileSystem().FolderTimes {
		key := absolute + "\x00links that leave the folder are followed"
		if f.root != nil {
			key = absolute + "\x00links that leave the folder are refused"
		}
		sum := sha256.Sum256([]byte(key))
		name := filepath.Base(absolute) + "-" + hex.EncodeToString(sum[:8]) + ".files"
		return f.scanKept(ctx, filepath.Join(o.CacheDir, name), key, o, &watch)
	}
	s := f.newScan(ctx, nil)
	watch.set(s)
	root, err := s.run()
	if err != nil {
		return nil, err
	}
	w := &writer{}
	root.write(w, nil, 0)
	return w.tree(), nil
}

// fileSystem returns the file system of the folder itself.
func (f *Folder) fileSystem() platform.FileSystem {
	d, err := f.openFolder(".")
	if err != nil {
		return platform.FileSystem{}
	}
	defer d.Close() // read only
	return fileSystemOf(d)
}

// scanKept returns the kept list, after it has been brought up to date.
func (f *Folder) scanKept(ctx context.Context, kept, key string, o ScanOptions, watch *watching) (*Tree, error) {
	if t := f.current(ctx, f.loadKept(kept, key, o), watch); t != nil || ctx.Err() != nil {
		if t != nil && o.Kept != nil {
			o.Kept(kept)
		}
		return t, ctx.Err()
	}
	release := func() {}
	err := os.MkdirAll(filepath.Dir(kept), 0o755)
	if err == nil {
		var lock *filelock.Lock
		watch.set(nil)
		if lock, err = filelock.Acquire(ctx, kept+".lock"); err == nil {
			release = sync.OnceFunc(func() {
				lock.Release() //nolint:errcheck // the end of the process releases it, too
			})
			defer release()
		}
	}
	old := f.loadKept(kept, key, o) // another process may have written it
	if t := f.current(ctx, old, watch); t != nil || ctx.Err() != nil {
		if t != nil && o.Kept != nil {
			o.Kept(kept)
		}
		return t, ctx.Err()
	}
	s := f.newScan(ctx, old)
	s.onTimeless = release // other processes cannot use the list
	watch.set(s)
	root, scanErr := s.run()
	if scanErr != nil {
		return nil, scanErr
	}
	w := &writer{key: key}
	root.write(w, old, 0)
	t := w.tree()
	if t.Files()+t.Folders() < keepFrom || s.timeless.Load() {
		return t, nil
	}
	if err == nil {
		err = writeKept(kept, w.parts())
	}
	if err == nil {
		if mapped := f.loadKept(kept, key, o); mapped != nil {
			return mapped, nil
		}
		return t, nil
	}
	if o.Unkept != nil {
		o.Unkept(fmt.Errorf("keep the list of %s in %s: %w", f.path, filepath.Dir(kept), err))
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

// loadKept maps a kept list. It returns nil if there is none, or if it is damaged. The map lasts as long as the
// process, because names in messages may refer to it. Its memory belongs to the page cache.
func (f *Folder) loadKept(kept, key string, o ScanOptions) *Tree {
	file, info, err := regular.Open(kept)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var t *Tree
	if err == nil {
		defer file.Close() // read only
		var mapped []byte
		if mapped, err = platform.Map(file, int(info.Size())); err == nil {
			if t, err = openTree(mapped, key); err != nil {
				err = errors.Join(err, platform.Unmap(mapped))
			}
		}
	}
	if err == nil {
		return t
	}
	if o.Unkept != nil {
		o.Unkept(fmt.Errorf("read the kept list %s: %w", kept, err))
	}
	return nil
}

// writeKept replaces the file at path. Processes that have mapped the old file keep its contents.
func writeKept(path string, parts [][]byte) (err error) {
	out, err := regular.Create(path + ".part")
	if err != nil {
		return err
	}
	for _, part := range parts {
		if err == nil {
			_, err = out.Write(part)
		}
	}
	if err = errors.Join(err, out.Close()); err == nil {
		return os.Rename(path+".part", path)
	}
	return errors.Join(err, os.Remove(path+".part"))
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
