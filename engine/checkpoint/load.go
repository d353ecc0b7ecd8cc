package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
)

// Checkpoint is an open, verified checkpoint.
type Checkpoint struct {
	Path      string // path of the folder
	State     State
	Model     *File
	Optimizer *File
}

// Close closes the files of the checkpoint.
func (c *Checkpoint) Close() error {
	return errors.Join(c.Model.Close(), c.Optimizer.Close())
}

// Load opens the checkpoint in the folder at path, and verifies all of its bytes against the manifest. Errors:
// *IOError, *CorruptError, *FormatError.
func Load(path string) (*Checkpoint, error) {
	if err := refuseQuarantined(path); err != nil {
		return nil, err
	}
	dir, err := openFolder(path)
	if err != nil {
		return nil, ioError("open checkpoint", path, err)
	}
	defer dir.root.Close() // open files remain open
	return load(dir, ".", path)
}

// load opens a checkpoint in fsys. The parameter name is its folder. Errors contain path instead of name.
func load(fsys fileSystem, name, path string) (*Checkpoint, error) {
	m, err := readManifest(fsys, name, path)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{Path: path}
	if c.State, err = loadState(fsys, name, path, m.files[stateFile]); err != nil {
		return nil, err
	}
	if c.Model, err = loadTensors(fsys, name, path, modelFile, m); err != nil {
		return nil, err
	}
	if c.Optimizer, err = loadTensors(fsys, name, path, optimizerFile, m); err != nil {
		c.Model.Close()
		return nil, err
	}
	return c, nil
}

func readManifest(fsys fileSystem, name, path string) (manifest, error) {
	text, err := readSmall(fsys, name, path, manifestFile, maxManifestBytes)
	if err != nil {
		return manifest{}, err
	}
	return decodeManifest(filepath.Join(path, manifestFile), text)
}

func loadState(fsys fileSystem, name, path string, want fileSum) (State, error) {
	label := filepath.Join(path, stateFile)
	text, err := readSmall(fsys, name, path, stateFile, maxStateBytes)
	if err != nil {
		return State{}, err
	}
	if got := hexSum(text); int64(len(text)) != want.bytes || got != want.sha256 {
		return State{},
			corrupt(label, "got %d bytes with SHA-256 %.12s…, want %d bytes with SHA-256 %.12s… as in the manifest",
				len(text), got, want.bytes, want.sha256)
	}
	state, err := decodeState(text)
	if err != nil {
		return State{}, corrupt(label, "%v", err)
	}
	return state, nil
}

func loadTensors(fsys fileSystem, name, path, file string, m manifest) (_ *File, err error) {
	label := filepath.Join(path, file)
	src, size, err := openIn(fsys, name, path, file)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			src.Close()
		}
	}()
	want := m.files[file]
	if size != want.bytes {
		return nil, corrupt(label, "got %d bytes, want %d as in the manifest", size, want.bytes)
	}
	hash := sha256.New()
	if _, err := io.CopyBuffer(hash, io.NewSectionReader(src, 0, size),
		make([]byte, min(size+1, writeChunkBytes))); err != nil {
		return nil, ioError("read", label, err)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != want.sha256 {
		return nil, corrupt(label, "got SHA-256 %.12s…, want %.12s… as in the manifest%s", got, want.sha256,
			damagedTensors(src, size, want))
	}
	f, err := NewFile(src, size, label)
	if err != nil {
		return nil, err
	}
	for _, t := range f.tensors {
		if _, ok := want.tensors[t.Name]; !ok || len(f.tensors) != len(want.tensors) {
			return nil, corrupt(label, "the tensors differ from those in the manifest")
		}
	}
	f.closers, f.sums = []io.Closer{src}, want.tensors
	return f, nil
}

// damagedTensors returns the names of the damaged tensors in a file with a wrong hash. The header must be readable.
func damagedTensors(src io.ReaderAt, size int64, want fileSum) string {
	f, err := NewFile(src, size, "")
	if err != nil {
		return " (its header is damaged)"
	}
	f.sums = want.tensors
	var first string
	damaged := 0
	for _, t := range f.tensors {
		if _, err := f.Read(t.Name); err != nil {
			if damaged++; damaged == 1 {
				first = t.Name
			}
		}
	}
	switch damaged {
	case 0:
		return " (its header is damaged)"
	case 1:
		return fmt.Sprintf(" (tensor %q is damaged)", first)
	}
	return fmt.Sprintf(" (tensor %q and %d more are damaged)", first, damaged-1)
}

// openIn opens a file of a checkpoint. The parameter name is the folder of the checkpoint. If the file is missing, the
// error is a CorruptError instead of an IOError.
func openIn(fsys fileSystem, name, path, file string) (readFile, int64, error) {
	label := filepath.Join(path, file)
	src, err := fsys.Open(name + "/" + file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, corrupt(path, "file %s is missing", file)
	}
	if err != nil {
		return nil, 0, ioError("open", label, err)
	}
	size, err := src.Size()
	if err != nil {
		src.Close()
		return nil, 0, ioError("open", label, err)
	}
	return src, size, nil
}

func readSmall(fsys fileSystem, name, path, file string, limit int64) ([]byte, error) {
	label := filepath.Join(path, file)
	src, size, err := openIn(fsys, name, path, file)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	if size > limit {
		return nil, corrupt(label, "got %d bytes, want at most %d", size, limit)
	}
	text := make([]byte, size)
	if err := readFull(src, text, 0); err != nil {
		return nil, ioError("read", label, err)
	}
	return text, nil
}
