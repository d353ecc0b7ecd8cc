package layout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"
	"unsafe"
)

// Tree is the list of the files and folders below a folder, without those of storage systems. Links have the mode of
// their targets. A Tree is one block of bytes, which the processes of a machine can share; see [Folder.Scan]. The files
// of a folder have adjacent indices and are sorted by name. A Tree is safe for concurrent use.
type Tree struct {
	head    header
	folders []byte // folderBytes for each folder; folder 0 is the folder itself
	files   []byte // fileBytes for each file
	dirs    []byte // concatenated paths of the folders
	names   []byte // concatenated paths of the files
}

// The format of a Tree: header, key, folders, paths of folders, files, paths of files. Numbers are little endian.
//
//	header  mark (8 bytes), checksum of the rest (4), length of the key (4), number of folders (8), of files (8),
//	        bytes of the paths of folders (8), of files (8)
//	folder  modification time (8, ns), change time (8, ns), device (8), inode (8), size (8), number of links (8),
//	        end of its path (8), end of its files (8), parent (8)
//	file    end of its path (7), kind (1)
const (
	treeMark    = "htfiles\x02"
	headerBytes = 48
	folderBytes = 72
	fileBytes   = 8
	endBits     = 56 // bits of the end of a path; the kind is in the bits above
)

type header struct{ key, folders, files, dirs, names int }

// stamp contains the properties of a folder that change if its entries change.
type stamp struct {
	modified, changed          int64 // nanoseconds
	device, inode, size, links uint64
}

// kinds are the modes of files in a Tree. The index of a mode is its kind.
var kinds = [...]fs.FileMode{0, fs.ModeNamedPipe, fs.ModeSocket, fs.ModeDevice, fs.ModeIrregular}

func kindOf(mode fs.FileMode) byte {
	for k, m := range kinds {
		if mode.Type() == m {
			return byte(k)
		}
	}
	if mode&fs.ModeDevice != 0 {
		return 3
	}
	return byte(len(kinds) - 1)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// openTree returns the Tree that data contains. It returns an error if data is damaged, or has another key.
func openTree(data []byte, key string) (*Tree, error) {
	if len(data) < headerBytes || string(data[:8]) != treeMark {
		return nil, errors.New("the file has another format")
	}
	var n [4]int
	left := uint64(len(data) - headerBytes)
	for k := range n {
		v := binary.LittleEndian.Uint64(data[16+8*k:])
		if v > left {
			return nil, errors.New("the file is cut")
		}
		n[k] = int(v)
	}
	h := header{int(binary.LittleEndian.Uint32(data[12:])), n[0], n[1], n[2], n[3]}
	if uint64(h.key)+uint64(h.folders)*folderBytes+uint64(h.files)*fileBytes+uint64(h.dirs)+uint64(h.names) != left {
		return nil, errors.New("the file is cut")
	}
	if crc32.Checksum(data[12:], castagnoli) != binary.LittleEndian.Uint32(data[8:]) {
		return nil, errors.New("the checksum is wrong")
	}
	t := &Tree{head: h}
	rest := data[headerBytes:]
	cut := func(n int) []byte {
		part := rest[:n:n]
		rest = rest[n:]
		return part
	}
	if string(cut(h.key)) != key {
		return nil, errors.New("the file belongs to another folder")
	}
	t.folders, t.dirs = cut(h.folders*folderBytes), cut(h.dirs)
	t.files, t.names = cut(h.files*fileBytes), cut(h.names)
	return t, t.check()
}

// check returns an error unless all numbers are in their valid ranges.
func (t *Tree) check() error {
	end, files := 0, 0
	for k := range t.head.folders {
		if t.dirEnd(k) < end || t.fileEnd(k) < files || k > 0 && t.parent(k) >= k {
			return fmt.Errorf("folder %d is damaged", k)
		}
		end, files = t.dirEnd(k), t.fileEnd(k)
	}
	if t.head.folders == 0 || end != t.head.dirs || files != t.head.files {
		return errors.New("the folders are damaged")
	}
	end = 0
	for i := range t.head.files {
		if e := t.nameEnd(i); e <= end || e > t.head.names || t.kind(i) >= len(kinds) {
			return fmt.Errorf("file %d is damaged", i)
		}
		end = t.nameEnd(i)
	}
	return nil
}

func (t *Tree) number(folder, field int) int {
	return int(binary.LittleEndian.Uint64(t.folders[folder*folderBytes+8*field:]))
}

func (t *Tree) stamp(k int) stamp {
	field := func(n int) uint64 { return uint64(t.number(k, n)) }
	return stamp{int64(field(0)), int64(field(1)), field(2), field(3), field(4), field(5)}
}
func (t *Tree) dirEnd(k int) int  { return t.number(k, 6) }
func (t *Tree) fileEnd(k int) int { return t.number(k, 7) }
func (t *Tree) parent(k int) int  { return t.number(k, 8) }

// fileStart returns the index of the first file in folder k.
func (t *Tree) fileStart(k int) int {
	if k == 0 {
		return 0
	}
	return t.fileEnd(k - 1)
}

func (t *Tree) nameEnd(i int) int {
	return int(binary.LittleEndian.Uint64(t.files[i*fileBytes:]) & (1<<endBits - 1))
}

func (t *Tree) kind(i int) int { return int(t.files[i*fileBytes+fileBytes-1]) }

// Files returns the number of files.
func (t *Tree) Files() int { return t.head.files }

// Folders returns the number of folders, including the folder itself, which is folder 0.
func (t *Tree) Folders() int { return t.head.folders }

// File returns the path of file i relative to the folder, with slashes. The string refers to the memory of the Tree.
func (t *Tree) File(i int) string {
	start := 0
	if i > 0 {
		start = t.nameEnd(i - 1)
	}
	return text(t.names[start:t.nameEnd(i)])
}

// FileMode returns the type of file i.
func (t *Tree) FileMode(i int) fs.FileMode { return kinds[t.kind(i)] }

// Folder returns the path of folder k relative to the folder, with slashes; "." for folder 0.
func (t *Tree) Folder(k int) string {
	start := 0
	if k > 0 {
		start = t.dirEnd(k - 1)
	}
	return text(t.dirs[start:t.dirEnd(k)])
}

// text returns b as a string without copying it. b must never change.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Walk calls visit for all files and folders, each folder before its contents, sorted by name.
func (t *Tree) Walk(visit func(Entry) error) error {
	return t.walk(0, t.children(), visit)
}

// children returns the folders in each folder, sorted by name.
func (t *Tree) children() [][]int32 {
	within := make([][]int32, t.head.folders)
	for k := 1; k < t.head.folders; k++ { // the folders of one parent are in order
		p := t.parent(k)
		within[p] = append(within[p], int32(k))
	}
	return within
}

func (t *Tree) walk(k int, within [][]int32, visit func(Entry) error) error {
	i, end := t.fileStart(k), t.fileEnd(k)
	before := func(folder int32) error { // visits the files before a folder
		for ; i < end && (folder < 0 || path.Base(t.File(i)) < path.Base(t.Folder(int(folder)))); i++ {
			if err := visit(Entry{t.File(i), t.FileMode(i)}); err != nil {
				return err
			}
		}
		return nil
	}
	for _, child := range within[k] {
		if err := before(child); err != nil {
			return err
		}
		if err := visit(Entry{t.Folder(int(child)), fs.ModeDir}); err != nil {
			return err
		}
		if err := t.walk(int(child), within, visit); err != nil {
			return err
		}
	}
	return before(-1)
}

// writer builds a Tree.
type writer struct {
	folders, dirs, files, names []byte
}

func (w *writer) addFolder(name string, s stamp, parent int) {
	w.dirs = append(w.dirs, name...)
	for _, v := range [...]uint64{uint64(s.modified), uint64(s.changed), s.device, s.inode, s.size, s.links,
		uint64(len(w.dirs)), 0, uint64(parent)} {
		w.folders = binary.LittleEndian.AppendUint64(w.folders, v)
	}
}

func (w *writer) addFile(dir string, base []byte, kind byte) {
	if dir != "." {
		w.names = append(append(w.names, dir...), '/')
	}
	w.names = append(w.names, base...)
	w.endFile(kind)
}

// copyFile adds file i of another Tree. The path of the file stays the same.
func (w *writer) copyFile(t *Tree, i int) {
	w.names = append(w.names, t.File(i)...)
	w.endFile(byte(t.kind(i)))
}

func (w *writer) endFile(kind byte) {
	w.files = binary.LittleEndian.AppendUint64(w.files, uint64(len(w.names))|uint64(kind)<<endBits)
}

// endFiles records the index after the last file of the newest folder.
func (w *writer) endFiles() {
	binary.LittleEndian.PutUint64(w.folders[len(w.folders)-16:], uint64(len(w.files)/fileBytes))
}

// parts returns the contents of a file that stores the Tree, in several parts.
func (t *Tree) parts(key string) [][]byte {
	head := append([]byte(treeMark), 0, 0, 0, 0)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(key)))
	for _, n := range []int{t.head.folders, t.head.files, t.head.dirs, t.head.names} {
		head = binary.LittleEndian.AppendUint64(head, uint64(n))
	}
	all := [][]byte{head, []byte(key), t.folders, t.dirs, t.files, t.names}
	sum := crc32.Checksum(head[12:], castagnoli)
	for _, part := range all[1:] {
		sum = crc32.Update(sum, castagnoli, part)
	}
	binary.LittleEndian.PutUint32(head[8:], sum)
	return all
}

// tree returns the Tree.
func (w *writer) tree() *Tree {
	h := header{0, len(w.folders) / folderBytes, len(w.files) / fileBytes, len(w.dirs), len(w.names)}
	return &Tree{head: h, folders: w.folders, dirs: w.dirs, files: w.files, names: w.names}
}
