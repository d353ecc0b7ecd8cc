package checkpoint

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

var errCrashed = errors.New("the machine is off")

// memoryFS is a fileSystem that simulates power failures. A power failure keeps the contents of a file up to its last
// Sync, and the entries of a folder up to its last SyncDir. memoryFS can stop at any operation.
type memoryFS struct {
	root *node
	ops  int // number of operations so far that modify something

	crashAt int   // number of the first operation that fails; all later ones also fail; 0: none
	torn    bool  // half of the bytes of the write at crashAt are stored
	failAt  int   // number of the only operation that fails, with EIO
	budget  int64 // number of bytes that can still be written; below 0: no limit
	reads   int   // number of operations so far that only read
	failing int   // number of the only read operation that fails, with EIO
	failed  string
}

type node struct {
	isDir   bool
	data    []byte
	durable []byte
	entries map[string]*node
	synced  map[string]*node
	pending []entryChange // changes since the last SyncDir
}

type entryChange struct {
	remove string // name to remove; "": none
	add    string
	node   *node
}

func dirNode() *node {
	return &node{isDir: true, entries: map[string]*node{}, synced: map[string]*node{}}
}

// tornBytes is the block size of the simulated disk. Real disks usually have 4 KiB, but the files of this test are
// small.
const tornBytes = 64

func newMemoryFS() *memoryFS { return &memoryFS{root: dirNode(), budget: -1} }

// step counts an operation and returns an error if the operation must fail.
func (m *memoryFS) step(op, name string) error {
	m.ops++
	if m.crashAt > 0 && m.ops >= m.crashAt {
		return errCrashed
	}
	if m.ops == m.failAt {
		m.failed = op + " " + name
		return &os.PathError{Op: op, Path: name, Err: syscall.EIO}
	}
	return nil
}

func (m *memoryFS) off() bool { return m.crashAt > 0 && m.ops >= m.crashAt }

func (m *memoryFS) find(name string) (*node, error) {
	at := m.root
	for _, part := range strings.Split(path.Clean(name), "/") {
		if part == "." {
			continue
		}
		next := at.entries[part]
		if next == nil {
			return nil, &os.PathError{Op: "find", Path: name, Err: fs.ErrNotExist}
		}
		at = next
	}
	return at, nil
}

func (m *memoryFS) parent(name string) (*node, string, error) {
	dir, err := m.find(path.Dir(name))
	return dir, path.Base(name), err
}

func (n *node) change(c entryChange) {
	n.pending = append(n.pending, c)
	c.apply(n.entries)
}

func (c entryChange) apply(entries map[string]*node) {
	if c.remove != "" {
		delete(entries, c.remove)
	}
	if c.add != "" {
		entries[c.add] = c.node
	}
}

func (m *memoryFS) add(op, name string, n *node) error {
	if err := m.step(op, name); err != nil {
		return err
	}
	dir, base, err := m.parent(name)
	if err != nil {
		return err
	}
	if dir.entries[base] != nil {
		return &os.PathError{Op: op, Path: name, Err: fs.ErrExist}
	}
	dir.change(entryChange{add: base, node: n})
	return nil
}

func (m *memoryFS) Mkdir(name string) error { return m.add("mkdir", name, dirNode()) }

func (m *memoryFS) Create(name string) (writeFile, error) {
	n := &node{}
	return &memoryFile{fs: m, node: n, name: name}, m.add("create", name, n)
}

func (m *memoryFS) Rename(from, to string) error {
	if err := m.step("rename", from); err != nil {
		return err
	}
	src, fromBase, err := m.parent(from)
	if err != nil {
		return err
	}
	dst, toBase, err := m.parent(to)
	if err != nil {
		return err
	}
	moved, old := src.entries[fromBase], dst.entries[toBase]
	if moved == nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: fs.ErrNotExist}
	}
	if old != nil && old.isDir && len(old.entries) > 0 {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: syscall.ENOTEMPTY}
	}
	if src == dst {
		src.change(entryChange{remove: fromBase, add: toBase, node: moved})
		return nil
	}
	dst.change(entryChange{add: toBase, node: moved})
	src.change(entryChange{remove: fromBase})
	return nil
}

func (m *memoryFS) Remove(name string) error {
	if err := m.step("remove", name); err != nil {
		return err
	}
	dir, base, err := m.parent(name)
	if err != nil {
		return err
	}
	n := dir.entries[base]
	if n == nil {
		return &os.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	if len(n.entries) > 0 {
		return &os.PathError{Op: "remove", Path: name, Err: syscall.ENOTEMPTY}
	}
	dir.change(entryChange{remove: base})
	return nil
}

func (m *memoryFS) SyncDir(name string) error {
	if err := m.step("syncdir", name); err != nil {
		return err
	}
	n, err := m.find(name)
	if err != nil {
		return err
	}
	n.synced, n.pending = maps.Clone(n.entries), nil
	return nil
}

// look counts a read operation and returns an error if the operation must fail.
func (m *memoryFS) look(op, name string) error {
	if m.off() {
		return errCrashed
	}
	if m.reads++; m.reads == m.failing {
		m.failed = op + " " + name
		return &os.PathError{Op: op, Path: name, Err: syscall.EIO}
	}
	return nil
}

func (m *memoryFS) Open(name string) (readFile, error) {
	if err := m.look("open", name); err != nil {
		return nil, err
	}
	n, err := m.find(name)
	if err != nil {
		return nil, err
	}
	return memoryReader{bytes.NewReader(n.data), m, name}, nil
}

func (m *memoryFS) ReadDir(name string) ([]string, error) {
	if err := m.look("readdir", name); err != nil {
		return nil, err
	}
	n, err := m.find(name)
	if err != nil {
		return nil, err
	}
	if !n.isDir {
		return nil, &os.PathError{Op: "readdir", Path: name, Err: syscall.ENOTDIR}
	}
	return slices.Sorted(maps.Keys(n.entries)), nil
}

func (m *memoryFS) Exists(name string) (bool, error) {
	if err := m.look("exists", name); err != nil {
		return false, err
	}
	_, err := m.find(name)
	return err == nil, nil
}

type memoryReader struct {
	*bytes.Reader
	fs   *memoryFS
	name string
}

func (memoryReader) Close() error           { return nil }
func (r memoryReader) Size() (int64, error) { return r.Reader.Size(), r.fs.look("stat", r.name) }

func (r memoryReader) ReadAt(p []byte, offset int64) (int, error) {
	if err := r.fs.look("read", r.name); err != nil {
		return 0, err
	}
	return r.Reader.ReadAt(p, offset)
}

type memoryFile struct {
	fs   *memoryFS
	node *node
	name string
}

func (f *memoryFile) Write(p []byte) (int, error) {
	if err := f.fs.step("write", f.name); err != nil {
		if f.fs.torn && f.fs.ops == f.fs.crashAt {
			f.node.data = append(f.node.data, p[:len(p)/2]...)
		}
		return 0, err
	}
	if f.fs.budget >= 0 && int64(len(p)) > f.fs.budget {
		n := int(f.fs.budget)
		f.fs.budget = 0
		f.node.data = append(f.node.data, p[:n]...)
		return n, &os.PathError{Op: "write", Path: f.name, Err: syscall.ENOSPC}
	}
	if f.fs.budget >= 0 {
		f.fs.budget -= int64(len(p))
	}
	f.node.data = append(f.node.data, p...)
	return len(p), nil
}

func (f *memoryFile) Sync() error {
	if err := f.fs.step("sync", f.name); err != nil {
		return err
	}
	f.node.durable = slices.Clone(f.node.data)
	return nil
}

func (f *memoryFile) Close() error { return nil }

var _ io.Writer = (*memoryFile)(nil)

// afterKill returns the state after a kill, which includes all operations.
func (m *memoryFS) afterKill() *memoryFS {
	return &memoryFS{root: m.root.copy(func(n *node) ([]byte, map[string]*node) { return n.data, n.entries }),
		budget: -1}
}

// afterPowerFailure returns a possible state of the disk: all flushed data, and a random part of the other data.
func (m *memoryFS) afterPowerFailure(chance *rand.Rand) *memoryFS {
	survivor := func(n *node) ([]byte, map[string]*node) {
		entries := maps.Clone(n.synced)
		for _, change := range n.pending[:chance.IntN(len(n.pending)+1)] {
			change.apply(entries)
		}
		data := n.durable
		if lost := len(n.data) - len(data); lost > 0 && chance.IntN(2) == 0 {
			data = slices.Clone(n.data[:len(data)+chance.IntN(lost+1)])
			switch chance.IntN(3) {
			case 0:
				clear(data[len(n.durable):]) // the disk stored the length of the file, but not the blocks
			case 1:
				for at := len(n.durable); at < len(data); at += tornBytes { // the disk stored some of the blocks
					if chance.IntN(2) == 0 {
						clear(data[at:min(at+tornBytes, len(data))])
					}
				}
			}
		}
		return data, entries
	}
	return &memoryFS{root: m.root.copy(survivor), budget: -1}
}

func (n *node) copy(survivor func(*node) ([]byte, map[string]*node)) *node {
	data, entries := survivor(n)
	c := &node{isDir: n.isDir, data: slices.Clone(data), durable: slices.Clone(data)}
	if n.isDir {
		c.entries = map[string]*node{}
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			c.entries[name] = entries[name].copy(survivor)
		}
		c.synced = maps.Clone(c.entries)
	}
	return c
}
