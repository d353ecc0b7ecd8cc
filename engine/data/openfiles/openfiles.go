// Package openfiles opens the files of a data set on demand, and limits the number of open files.
package openfiles

import (
	"container/list"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/hetero-train/hetero-train/engine/data/stored"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// maxOpen is the largest number of open files of a Pool, if the process's limit of open files permits it.
const maxOpen = 128

// mostOpen returns the largest number of open files. It is at most a quarter of the process's limit, because other
// parts of the program also open files.
func mostOpen() int {
	limit, ok := platform.FileLimit()
	if !ok {
		return maxOpen
	}
	return int(min(max(limit/4, 1), maxOpen))
}

// File identifies the contents of a file.
type File struct {
	Path string
	Size int64 // bytes
	Time int64 // modification time in ns, or the version of an object; see stored.Version
}

// Of returns the File of a path and its info.
func Of(path string, info os.FileInfo) File {
	return File{path, info.Size(), stored.Version(info)}
}

// Pool opens files on demand and closes the least recently used ones. It is safe for concurrent use.
type Pool struct {
	files []File
	most  int // largest number of open files

	mu     sync.Mutex
	open   map[int]*Handle
	recent *list.List // elements are *Handle, most recently used first
}

// Handle is an open file.
type Handle struct {
	stored.File
	number int
	users  int
	at     *list.Element
}

// New returns a Pool of files, which the caller must close.
func New(files []File) *Pool {
	return &Pool{files: files, most: mostOpen(), open: map[int]*Handle{}, recent: list.New()}
}

// Open returns the number of open files, and the largest permitted one.
func (p *Pool) Open() (open, most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open), p.most
}

// Take returns an open file. The parameter number is the index of the file in the argument of New. The caller must
// return the Handle with GiveBack.
func (p *Pool) Take(number int) (*Handle, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h, ok := p.open[number]; ok {
		h.users++
		p.recent.MoveToFront(h.at)
		return h, nil
	}
	id := p.files[number]
	f, info, err := stored.OpenRandom(id.Path)
	if errors.Is(err, syscall.EMFILE) && p.dropIdle() { // the process has reached its limit of open files
		f, info, err = stored.OpenRandom(id.Path)
	}
	if err != nil {
		return nil, err
	}
	if Of(id.Path, info) != id {
		err = fmt.Errorf("the file changed after it was indexed: got %d bytes, modified %v, want %d bytes",
			info.Size(), info.ModTime(), id.Size)
		f.Close() // read only
		return nil, err
	}
	h := &Handle{File: f, number: number, users: 1}
	h.at = p.recent.PushFront(h)
	p.open[number] = h
	for e := p.recent.Back(); e != nil && p.recent.Len() > p.most; {
		old, before := e.Value.(*Handle), e.Prev()
		if old.users == 0 {
			p.drop(old)
		}
		e = before
	}
	return h, nil
}

// dropIdle closes all unused files. It reports whether it closed any. The caller must hold the lock.
func (p *Pool) dropIdle() (any bool) {
	for _, h := range p.open {
		if h.users == 0 {
			p.drop(h)
			any = true
		}
	}
	return any
}

// drop closes an unused file. The caller must hold the lock.
func (p *Pool) drop(h *Handle) {
	delete(p.open, h.number)
	p.recent.Remove(h.at)
	h.File.Close() // read only
}

// GiveBack ends the use of a Handle.
func (p *Pool) GiveBack(h *Handle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h.users--
}

// Close closes all files.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.open {
		p.drop(h)
	}
	return nil
}
