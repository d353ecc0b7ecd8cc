package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hetero-train/hetero-train/engine/experiment"
)

// mostRuns is the largest number of entries that are listed from a folder.
const mostRuns = 2000

// Folder is a folder of runs, such as the folder experiments.
//
// If another folder replaces the folder at Path, the next call reads the other folder.
type Folder struct {
	Path string
	// Indexes is the folder for the indexes of long runs; "": there are no indexes. The user of this process must own
	// the folder. Set it before Open.
	Indexes string
	// Program is the version of this program. An index that another version has written is not used. Set it before
	// Open.
	Program string

	self string // name of the run if the folder itself is a run; otherwise ""

	// mu guards the next fields. A method holds mu while it uses root, but not while it reads a run, so that a slow
	// folder does not block other runs.
	mu       sync.RWMutex
	root     *os.Root
	identity fs.FileInfo // identity of root
	closed   bool
}

// NameError reports an invalid name of a run.
type NameError struct{ Name string }

func (e *NameError) Error() string {
	return fmt.Sprintf("run %q: want a name of at most 64 characters from A-Z a-z 0-9 . _ -", e.Name)
}

// OpenFolder opens a folder of runs, or the folder of a single run.
func OpenFolder(path string) (*Folder, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open runs: %w", err)
	}
	identity, err := root.Stat(".")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open runs: %w", err), root.Close())
	}
	f := &Folder{Path: path, root: root, identity: identity}
	if isRun(root) {
		full, err := filepath.Abs(path)
		if err != nil {
			return nil, errors.Join(err, root.Close())
		}
		if name := filepath.Base(full); experiment.ValidName(name) {
			f.self = name
		} else {
			f.self = "run"
		}
	}
	return f, nil
}

// Close closes the folder. Runs that are open remain open.
func (f *Folder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return f.root.Close()
}

// refresh opens the folder at Path if it is no longer the same folder.
func (f *Folder) refresh() {
	now, err := os.Stat(f.Path)
	if err != nil {
		return
	}
	f.mu.RLock()
	same := os.SameFile(f.identity, now)
	f.mu.RUnlock()
	if same {
		return
	}
	root, err := os.OpenRoot(f.Path)
	if err != nil {
		return
	}
	identity, err := root.Stat(".")
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || f.closed {
		root.Close() // read only
		return
	}
	f.root.Close() // read only
	f.root, f.identity = root, identity
}

// Holds reports whether the folder still contains the run r. It returns false if the folder of the run was deleted or
// renamed, even if another run now has its name. While the folders cannot be accessed, it returns true.
func (f *Folder) Holds(r *Run) bool {
	f.refresh()
	f.mu.RLock()
	defer f.mu.RUnlock()
	var now fs.FileInfo
	var err error
	if f.self != "" {
		now, err = os.Stat(f.Path)
	} else {
		now, err = f.root.Stat(r.Name)
	}
	if err != nil {
		return !isMissing(err)
	}
	return os.SameFile(r.identity, now) // while r has its folder open, no other folder can have the same inode
}

// isRun reports whether a folder contains files of a run.
func isRun(root *os.Root) bool {
	for _, name := range []string{resolvedFile, resultFile, lockFile, logsFolder + "/" + metricsOfRank0} {
		if info, err := root.Stat(name); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

// openRoot opens the folder of a run. It does not follow symbolic links that lead out of the folder. The caller must
// hold f.mu.
func (f *Folder) openRoot(name string) (*os.Root, error) {
	if !experiment.ValidName(name) {
		return nil, &NameError{name}
	}
	if f.self != "" {
		if name != f.self {
			return nil, fmt.Errorf("run %s: %w", name, fs.ErrNotExist)
		}
	}
	root, err := f.root.OpenRoot(f.place(name))
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", name, err)
	}
	if !isRun(root) {
		return nil, errors.Join(fmt.Errorf("run %s: %w: the folder has no files of a run", name, fs.ErrNotExist),
			root.Close())
	}
	return root, nil
}

// place returns the path of a run, relative to the folder.
func (f *Folder) place(name string) string {
	if f.self != "" {
		return "."
	}
	return name
}

// Listing is the result of Folder.List.
type Listing struct {
	Runs []Summary `json:"runs"` // newest run first
	// Nested contains subfolders that are not runs, but contain runs. Paths are relative to the folder. OpenFolder
	// opens them.
	Nested []string `json:"nested"`
	Others int      `json:"others"` // number of other entries
	Left   int      `json:"left"`   // number of entries that were not read because there are too many
}

// List returns a summary of each run. It reads a few kilobytes per run, until ctx ends.
func (f *Folder) List(ctx context.Context) (Listing, error) {
	f.refresh()
	out := Listing{Runs: []Summary{}, Nested: []string{}}
	names := []string{f.self}
	if f.self == "" {
		f.mu.RLock()
		entries, err := fs.ReadDir(f.root.FS(), ".")
		f.mu.RUnlock()
		if err != nil {
			return out, fmt.Errorf("list %s: %w", f.Path, err)
		}
		names = nil
		for _, e := range entries {
			switch {
			case strings.HasPrefix(e.Name(), "."):
			case !e.IsDir() || !experiment.ValidName(e.Name()):
				out.Others++
			case len(names) == mostRuns:
				out.Left++
			default:
				names = append(names, e.Name())
			}
		}
	}
	for _, name := range names {
		if err := context.Cause(ctx); err != nil {
			return out, err
		}
		f.mu.RLock()
		root, err := f.openRoot(name)
		nested := err != nil && f.containsRuns(name)
		f.mu.RUnlock()
		if err != nil {
			if nested {
				out.Nested = append(out.Nested, name)
			} else {
				out.Others++
			}
			continue
		}
		out.Runs = append(out.Runs, summarize(name, root))
		root.Close() // read only
	}
	slices.SortStableFunc(out.Runs, func(a, b Summary) int { return cmp.Compare(b.Updated, a.Updated) })
	return out, nil
}

// containsRuns reports whether a folder, which itself is not a run, contains a run. The caller must hold f.mu.
func (f *Folder) containsRuns(name string) bool {
	root, err := f.root.OpenRoot(name)
	if err != nil {
		return false
	}
	defer root.Close() // read only
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return false
	}
	for _, e := range entries[:min(len(entries), 100)] {
		if !e.IsDir() {
			continue
		}
		if sub, err := root.OpenRoot(e.Name()); err == nil {
			found := isRun(sub)
			sub.Close() // read only
			if found {
				return true
			}
		}
	}
	return false
}

// Single returns the name of the run if the folder is itself a run.
func (f *Folder) Single() (name string, ok bool) { return f.self, f.self != "" }
