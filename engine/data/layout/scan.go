package layout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hetero-train/hetero-train/engine/platform"
)

const (
	// foldersAtOnce is the number of folders that a scan reads at the same time. Each needs a thread. Network storage
	// needs a round trip of 0.1 to 20 ms for each call. A scan of many folders takes 1/foldersAtOnce of the sum of
	// these times.
	foldersAtOnce = 32
	// linksAtOnce is the number of links that a scan resolves at the same time, over all folders.
	linksAtOnce = 64
	// mostFolders limits the number of folders in a scan, which needs about 600 bytes per folder.
	mostFolders = 16 << 20
	// mostVisits limits how often a scan reads one folder through different links. Without the limit, 32 nested folders
	// with two links each to the next folder (64 links) would result in 4 billion paths.
	mostVisits = 1000
	// readBytes is the buffer size for one read of a folder: about 6,000 names. File systems may return less.
	readBytes = 256 << 10
)

// node is a folder that a scan has found.
type node struct {
	name   string // path relative to the folder
	parent *node
	depth  int
	info   os.FileInfo
	stamp  stamp
	err    error

	known    int     // index of the folder in the old Tree, if its entries are unchanged; otherwise -1
	names    []byte  // concatenated names of the files, sorted
	ends     []int32 // end of each name in names
	kinds    []byte
	children []*node // sorted
}

// fileID identifies a folder.
type fileID struct{ device, inode uint64 }

// scan is one reading of a folder and its subfolders.
type scan struct {
	*Folder
	ctx    context.Context
	old    *Tree          // provides the entries of unchanged folders; may be nil
	number map[string]int // indices of the folders of old
	within [][]int32      // children of each folder of old
	check  bool           // only check whether the folders of old have changed
	most   int            // stop with errMany at this number of files and folders; 0: no limit

	mu      sync.Mutex
	more    sync.Cond
	todo    []*node
	running int
	failed  bool

	links   chan struct{} // one token for each link that is being resolved
	files   atomic.Int64
	folders atomic.Int64

	found  int            // number of folders found; mu guards it
	visits map[fileID]int // number of visits of each folder; mu guards it
	limit  int            // limit of found

	devices    map[uint64]platform.FileSystem // by device; mu guards it
	remote     atomic.Bool                    // a folder is on a file system that other machines can change
	timeless   atomic.Bool                    // a folder is on a file system without FolderTimes
	onTimeless func()                         // called once if timeless becomes true; may be nil
}

// newScan returns a scan; old may be nil.
func (f *Folder) newScan(ctx context.Context, old *Tree) *scan {
	s := &scan{Folder: f, ctx: ctx, old: old, links: make(chan struct{}, linksAtOnce),
		limit: mostFolders, visits: map[fileID]int{}, devices: map[uint64]platform.FileSystem{}}
	s.more.L = &s.mu
	if old != nil {
		s.number = make(map[string]int, old.Folders())
		for k := range old.Folders() {
			s.number[old.Folder(k)] = k
		}
		s.within = old.children()
	}
	return s
}

// run reads all folders.
func (s *scan) run() (root *node, err error) {
	root = &node{name: "."}
	s.todo = []*node{root}
	var all sync.WaitGroup
	for range foldersAtOnce {
		all.Go(s.work)
	}
	all.Wait()
	if err := s.ctx.Err(); err != nil {
		return nil, err
	}
	if err := root.firstError(); err != nil {
		return nil, err
	}
	return root, nil
}

// errChanged means that a folder has changed since it was recorded in the old Tree.
var errChanged = errors.New("the folder has changed")

// errMany means that there are at least scan.most files and folders.
var errMany = errors.New("the folder has many files")

// work reads folders until none remains. It takes the newest folder first, which keeps the number of waiting folders
// small.
func (s *scan) work() {
	buf := make([]byte, readBytes)
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for len(s.todo) == 0 && s.running > 0 {
			s.more.Wait()
		}
		if len(s.todo) == 0 || s.failed {
			s.more.Broadcast()
			return
		}
		n := s.todo[len(s.todo)-1]
		s.todo = s.todo[:len(s.todo)-1]
		s.running++
		s.mu.Unlock()
		n.err = s.read(n, buf)
		s.mu.Lock()
		s.running--
		if s.found += len(n.children); n.err == nil && s.found > s.limit {
			n.err = fmt.Errorf("more than %d folders, the newest in %.200q%s", s.limit, n.name, s.linkAbove(n))
		}
		s.failed = s.failed || n.err != nil
		s.todo = append(s.todo, n.children...)
		s.more.Broadcast()
	}
}

// read reads the entries of a folder, or takes them from the old Tree.
func (s *scan) read(n *node, buf []byte) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if n.depth > maxDepth {
		return fmt.Errorf("folder %.200q is more than %d levels deep", n.name, maxDepth)
	}
	n.known = -1
	if k, ok := s.number[n.name]; ok {
		info, now, err := s.stampNow(n.name)
		if err != nil {
			return err
		}
		if now == s.old.stamp(k) && now != stampless {
			n.info, n.stamp, n.known = info, now, k
		}
	}
	if n.known < 0 {
		if s.check {
			return errChanged
		}
		if err := s.readFolder(n, buf); err != nil {
			return err
		}
	}
	for a := n.parent; a != nil; a = a.parent {
		if os.SameFile(a.info, n.info) {
			return fmt.Errorf("the link %.200q leads to folder %.200q, which contains it: delete the link", n.name,
				a.name)
		}
	}
	if err := s.visit(n); err != nil {
		return err
	}
	if n.known >= 0 {
		for _, k := range s.within[n.known] {
			n.children = append(n.children, &node{name: s.old.Folder(int(k)), parent: n, depth: n.depth + 1})
		}
		s.files.Add(int64(s.old.fileEnd(n.known) - s.old.fileStart(n.known)))
	}
	s.folders.Add(1)
	if s.most > 0 && int(s.files.Load()+s.folders.Load()) >= s.most {
		return errMany
	}
	return nil
}

// visit counts the visits of a folder.
func (s *scan) visit(n *node) error {
	device, inode, ok := platform.FileID(n.info)
	if !ok {
		return nil
	}
	id := fileID{device, inode}
	s.mu.Lock()
	s.visits[id]++
	visits := s.visits[id]
	s.mu.Unlock()
	if visits <= mostVisits {
		return nil
	}
	return fmt.Errorf("more than %d paths lead to the folder %.200q%s", mostVisits, n.name, s.linkAbove(n))
}

// linkAbove returns the end of a message that names the innermost link in the path of a folder, or "" without a link.
func (s *scan) linkAbove(n *node) string {
	for ; n.parent != nil; n = n.parent {
		if info, err := os.Lstat(s.Path(n.name)); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Sprintf(", through the link %.200q: delete the link", n.name)
		}
	}
	return ""
}

// foldersRead counts the folders whose entries were read, for tests.
var foldersRead atomic.Int64

// readFolder reads the entries of a folder. It reads the time of the folder first, so that a later change is detected.
func (s *scan) readFolder(n *node, buf []byte) error {
	d, err := s.openFolder(n.name)
	if err != nil {
		return err
	}
	defer d.Close() // read only
	if n.info, n.stamp, err = s.stampOpen(d); err != nil {
		return err
	}
	found, err := s.entries(n.name, d, buf, s.links, s.most)
	if err != nil {
		return err
	}
	for k, e := range found.all {
		name := found.name(k)
		if e.mode.IsDir() {
			n.children = append(n.children, &node{name: path.Join(n.name, string(name)), parent: n, depth: n.depth + 1})
			continue
		}
		n.names = append(n.names, name...)
		n.ends, n.kinds = append(n.ends, int32(len(n.names))), append(n.kinds, kindOf(e.mode))
	}
	s.files.Add(int64(len(n.ends)))
	if s.most == 0 {
		foldersRead.Add(1)
	}
	return nil
}

func (n *node) firstError() error {
	if n.err != nil {
		return n.err
	}
	for _, c := range n.children {
		if err := c.firstError(); err != nil {
			return err
		}
	}
	return nil
}

// write adds a folder and its contents to w. It frees the names after writing them, because a large folder has many.
func (n *node) write(w *writer, old *Tree, parent int) {
	number := len(w.folders) / folderBytes
	w.addFolder(n.name, n.stamp, parent)
	if n.known >= 0 {
		for i := old.fileStart(n.known); i < old.fileEnd(n.known); i++ {
			w.copyFile(old, i)
		}
	}
	start := int32(0)
	for k, end := range n.ends {
		w.addFile(n.name, n.names[start:end], n.kinds[k])
		start = end
	}
	n.names, n.ends, n.kinds = nil, nil, nil
	w.endFiles()
	for _, c := range n.children {
		c.write(w, old, number)
	}
}

// foldersOpened counts the folders that were opened, for tests.
var foldersOpened atomic.Int64

// openFolder opens a folder below f.
func (f *Folder) openFolder(dir string) (*os.File, error) {
	foldersOpened.Add(1)
	if f.root == nil {
		return os.Open(f.Path(dir))
	}
	return f.root.Open(filepath.FromSlash(dir))
}

// found contains the entries of a folder. One block contains all names, because a folder may have millions of files.
type found struct {
	names []byte
	all   []foundEntry
}

type foundEntry struct {
	start, end int32 // of the name in names
	mode       fs.FileMode
}

func (f *found) name(k int) []byte { return f.names[f.all[k].start:f.all[k].end] }

// entries returns the entries of the open folder d, whose path is dir, sorted by name. If there are at least limit
// entries, it returns errMany; limit = 0 means no limit.
func (f *Folder) entries(dir string, d *os.File, buf []byte, links chan struct{}, limit int) (found, error) {
	var list found
	err := readNames(d, buf, func(name []byte, mode fs.FileMode) error {
		if !System(text(name)) {
			start := int32(len(list.names))
			list.names = append(list.names, name...)
			list.all = append(list.all, foundEntry{start, int32(len(list.names)), mode})
		}
		if limit > 0 && len(list.all) >= limit {
			return errMany
		}
		return nil
	})
	if err == nil && len(list.names) > math.MaxInt32 {
		err = fmt.Errorf("folder %.200q has names of %d bytes, want at most %d", dir, len(list.names), math.MaxInt32)
	}
	if err != nil {
		return found{}, err
	}
	slices.SortFunc(list.all, func(a, b foundEntry) int {
		return bytes.Compare(list.names[a.start:a.end], list.names[b.start:b.end])
	})
	var unknown []int
	for k, e := range list.all {
		if e.mode&(fs.ModeSymlink|fs.ModeIrregular) != 0 {
			unknown = append(unknown, k)
		}
	}
	return list, f.resolve(dir, &list, unknown, links)
}

// resolve sets the modes of links to those of their targets. It resolves several links at a time, because network
// storage needs a round trip for each link.
func (f *Folder) resolve(dir string, list *found, links []int, tokens chan struct{}) error {
	if len(links) == 0 {
		return nil
	}
	name := func(k int) string { return path.Join(dir, string(list.name(links[k]))) }
	var all sync.WaitGroup
	errs := make([]error, len(links))
	workers := min(cap(tokens), len(links))
	for w := range workers {
		all.Go(func() {
			for k := w; k < len(links); k += workers {
				tokens <- struct{}{}
				info, err := f.stat(name(k))
				<-tokens
				mode := &list.all[links[k]].mode
				switch {
				case err == nil:
					*mode = info.Mode().Type()
				case f.Broken:
					*mode = 0
				default:
					errs[k] = err
				}
			}
		})
	}
	all.Wait()
	for k, err := range errs {
		if err != nil {
			return f.linkError(name(k), err)
		}
	}
	return nil
}

// List returns the entries of a folder, sorted by name. It leaves out entries of storage systems. Links have the mode
// of their targets.
func (f *Folder) List(dir string) ([]Entry, error) {
	if f.objects != nil {
		return f.remoteEntries(dir)
	}
	d, err := f.openFolder(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close() // read only
	list, err := f.entries(dir, d, make([]byte, readBytes), make(chan struct{}, linksAtOnce), 0)
	entries := make([]Entry, len(list.all))
	for k, e := range list.all {
		entries[k] = Entry{path.Join(dir, string(list.name(k))), e.mode}
	}
	return entries, err
}

// Walk calls visit for all files and folders below the folder, sorted by name, each folder before its contents. It
// leaves out files of storage systems. A link to a folder that contains the link is an error.
func (f *Folder) Walk(ctx context.Context, visit func(Entry) error) error {
	t, err := f.Scan(ctx, ScanOptions{})
	if err != nil {
		return err
	}
	return t.Walk(func(e Entry) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return visit(Entry{strings.Clone(e.Name), e.Mode}) // the visitor may keep a few of many names
	})
}
