package webdataset

import (
	"container/list"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// maxOpen is the largest number of open shards, if the limit of open files permits it.
const maxOpen = 128

// mostOpen returns the largest number of open shards. It is at most a quarter of the process's limit of open files,
// because other parts of the program need files, too.
func mostOpen() int {
	limit, ok := platform.FileLimit()
	if !ok {
		return maxOpen
	}
	return int(min(max(limit/4, 1), maxOpen))
}

// pool opens shards on demand and closes the least recently used ones. Its methods are safe for concurrent use.
type pool struct {
	shards []identity
	most   int // largest number of open shards

	mu     sync.Mutex
	open   map[int]*handle
	recent *list.List // elements are *handle, most recently used first
}

type handle struct {
	*os.File
	number int
	users  int
	at     *list.Element
}

func newPool(shards []identity) *pool {
	return &pool{shards: shards, most: mostOpen(), open: map[int]*handle{}, recent: list.New()}
}

// take returns an open shard. The caller must return it with giveBack.
func (p *pool) take(number int) (*handle, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h, ok := p.open[number]; ok {
		h.users++
		p.recent.MoveToFront(h.at)
		return h, nil
	}
	id := p.shards[number]
	f, info, err := regular.Open(id.path)
	if errors.Is(err, syscall.EMFILE) && p.dropIdle() { // the process has reached its limit of open files
		f, info, err = regular.Open(id.path)
	}
	if err != nil {
		return nil, err
	}
	if info.Size() != id.size || info.ModTime().UnixNano() != id.time {
		err = fmt.Errorf("the shard changed after it was indexed: got %d bytes, modified %v, want %d bytes",
			info.Size(), info.ModTime(), id.size)
		f.Close() // read only
		return nil, err
	}
	h := &handle{File: f, number: number, users: 1}
	h.at = p.recent.PushFront(h)
	p.open[number] = h
	for e := p.recent.Back(); e != nil && p.recent.Len() > p.most; {
		old, before := e.Value.(*handle), e.Prev()
		if old.users == 0 {
			p.drop(old)
		}
		e = before
	}
	return h, nil
}

// dropIdle closes all unused shards. It reports whether there were any. The caller must hold the lock.
func (p *pool) dropIdle() (any bool) {
	for _, h := range p.open {
		if h.users == 0 {
			p.drop(h)
			any = true
		}
	}
	return any
}

// drop closes an unused shard. The caller must hold the lock.
func (p *pool) drop(h *handle) {
	delete(p.open, h.number)
	p.recent.Remove(h.at)
	h.File.Close() // read only
}

func (p *pool) giveBack(h *handle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h.users--
}

// Close closes all shards.
func (p *pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.open {
		p.drop(h)
	}
	return nil
}
