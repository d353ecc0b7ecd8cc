package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Store writes the checkpoints of one run. It is safe for concurrent use, but runs one call at a time.
type Store struct {
	dir  string
	keep int

	mu   sync.Mutex
	fsys fileSystem
	root *os.Root // nil in tests without a disk
}

// Options configures a Store.
type Options struct {
	Keep int // number of newest checkpoints to keep, at least 1; the best checkpoint is always kept

	// Watch, if not nil, is called before each operation on the disk with the path of a file. The function that it
	// returns is called after the operation. The Store writes and flushes large files in pieces, so that each operation
	// is short if the disk works.
	Watch func(path string) (end func())
}

// Dir returns the folder of the Store.
func (s *Store) Dir() string { return s.dir }

// Snapshot is the content of a checkpoint. The data of the tensors must not change until Save returns.
type Snapshot struct {
	State     State
	Model     []Tensor
	Optimizer []Tensor
	Best      bool // update `best` to name this checkpoint
}

// Saved is the result of Save.
type Saved struct {
	Path     string
	Step     int64    // optimizer steps before the checkpoint
	Bytes    int64    // number of bytes written
	Removed  []string // names of the older checkpoints that were removed
	Warnings []error  // errors of updating `latest` or `best`, or of removing checkpoints; the checkpoint is complete
}

// Open opens the folder dir for writing checkpoints and creates it if necessary. It removes files that crashed saves
// left. Only one Store may be open per folder, so the caller must hold the lock of the run. Errors: *IOError, or
// another error for invalid Options.
func Open(dir string, options Options) (*Store, error) {
	if options.Keep < 1 {
		return nil, fmt.Errorf("open checkpoints %s: got %d checkpoints to keep, want at least 1", dir, options.Keep)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, ioError("create checkpoints", dir, err)
	}
	fsys, err := openFolder(dir)
	if err != nil {
		return nil, ioError("open checkpoints", dir, err)
	}
	s := &Store{dir: dir, keep: options.Keep, fsys: fsys, root: fsys.root}
	if options.Watch != nil {
		s.fsys = watched{fsys, dir, options.Watch}
	}
	if err := syncParent(dir); err != nil {
		s.Close()
		return nil, ioError("flush the parent folder of", dir, err)
	}
	if err := s.clearLeftovers(); err != nil {
		s.Close()
		return nil, ioError("clear leftovers of crashed saves in", dir, err)
	}
	return s, nil
}

// syncParent flushes the entry of a new folder to disk.
func syncParent(dir string) error {
	parent, err := openFolder(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer parent.root.Close()
	return parent.SyncDir(".")
}

// Close releases the folder.
func (s *Store) Close() error {
	if s.root == nil {
		return nil
	}
	return s.root.Close()
}

// clearLeftovers removes files that crashed saves left, and completes an interrupted replacement of a checkpoint.
func (s *Store) clearLeftovers() error {
	names, err := s.fsys.ReadDir(".")
	if err != nil {
		return err
	}
	for _, name := range names {
		temporary := strings.HasPrefix(name, ".") && strings.HasSuffix(name, temporarySuffix)
		if strings.HasPrefix(name, savingPrefix) || strings.HasPrefix(name, removingPrefix) || temporary {
			err = removeTree(s.fsys, name)
		} else if step, replaced, ok := parseStepName(name); ok && replaced {
			err = s.finishReplacement(candidate{name, step, replaced})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// finishReplacement completes an interrupted replacement: it keeps either the new checkpoint or the older one of the
// same step.
func (s *Store) finishReplacement(replaced candidate) error {
	name := StepName(replaced.step)
	c, err := loadCandidate(s.fsys, candidate{name: name, step: replaced.step}, s.dir)
	if err == nil {
		c.Close()
		return s.remove(replaced.name)
	}
	if !errors.As(err, new(*CorruptError)) { // the new checkpoint may be valid, so keep it
		return err
	}
	if err := s.remove(name); err != nil {
		return err
	}
	if err := s.fsys.Rename(replaced.name, name); err != nil {
		return err
	}
	return s.fsys.SyncDir(".")
}

// remove renames a checkpoint, flushes the folder, and then removes the files. After a crash or a power failure in
// between, the renamed folder is not mistaken for a damaged checkpoint.
func (s *Store) remove(name string) error {
	exists, err := s.fsys.Exists(name)
	if err != nil || !exists {
		return err
	}
	gone := removingPrefix + name
	if err := removeTree(s.fsys, gone); err != nil {
		return err
	}
	if err := s.fsys.Rename(name, gone); err != nil {
		return err
	}
	if err := s.fsys.SyncDir("."); err != nil {
		return err
	}
	return removeTree(s.fsys, gone)
}

// Save writes a checkpoint. After flushing it to disk, Save removes checkpoints that need not be kept. If a checkpoint
// of the same step exists, Save replaces it. If Save fails, it removes its own files and leaves older checkpoints
// unchanged; the caller may retry later. Errors: *IOError, ctx.Err(), or another error if the State or a tensor cannot
// be written.
func (s *Store) Save(ctx context.Context, snapshot Snapshot) (Saved, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := StepName(snapshot.State.Step)
	saved := Saved{Path: filepath.Join(s.dir, name), Step: snapshot.State.Step}
	temporary := savingPrefix + name
	var err error
	if saved.Bytes, err = s.write(ctx, temporary, snapshot); err == nil {
		err = s.commit(temporary, name)
	}
	if err != nil {
		if clearErr := removeTree(s.fsys, temporary); clearErr != nil {
			err = errors.Join(err, fmt.Errorf("and its temporary folder could not be removed: %w", clearErr))
		}
		if s.gone() {
			err = fmt.Errorf("%w: %w", ErrFolderGone, err)
		}
		return Saved{}, saveError(saved.Path, err)
	}
	warn := func(doing string, err error) {
		if err != nil {
			saved.Warnings = append(saved.Warnings, ioError(doing, s.dir, err))
		}
	}
	warn("replace latest in", replaceFile(s.fsys, latestFile, []byte(name+"\n")))
	if snapshot.Best {
		warn("replace best in", replaceFile(s.fsys, bestFile, []byte(name+"\n")))
	}
	saved.Removed, err = s.retain(name)
	warn("remove old checkpoints of", err)
	return saved, nil
}

// gone reports whether the folder of the Store was removed. In this case, the Store does not create it again.
func (s *Store) gone() bool {
	_, err := os.Stat(s.dir)
	return s.root != nil && errors.Is(err, fs.ErrNotExist)
}

// saveError distinguishes errors of the system from mistakes of the caller and from a cancelled context.
func saveError(path string, err error) error {
	var path1 *os.PathError
	var link *os.LinkError
	var same *IOError
	if errors.As(err, &same) || errors.As(err, &path1) || errors.As(err, &link) {
		return ioError("save checkpoint", path, err)
	}
	return fmt.Errorf("save checkpoint %s: %w", path, err)
}

// write writes all files of a checkpoint to a folder, and flushes them. The parameter name is the folder.
func (s *Store) write(ctx context.Context, name string, snapshot Snapshot) (written int64, err error) {
	text, err := encodeState(snapshot.State)
	if err != nil {
		return 0, err
	}
	if err := removeTree(s.fsys, name); err != nil {
		return 0, err
	}
	if err := s.fsys.Mkdir(name); err != nil {
		return 0, err
	}
	m := manifest{files: map[string]fileSum{}}
	metadata := map[string]string{"format": "pt"} // programs that read model weights expect this entry
	content := []func(w io.Writer, sum func(string, uint32)) error{
		func(w io.Writer, sum func(string, uint32)) error {
			return writeTensors(w, snapshot.Model, metadata, sum)
		},
		func(w io.Writer, sum func(string, uint32)) error {
			return writeTensors(w, snapshot.Optimizer, nil, sum)
		},
		func(w io.Writer, _ func(string, uint32)) error {
			_, err := w.Write(text)
			return err
		},
	}
	for i, file := range checkpointFiles {
		sum, err := s.writeSummed(ctx, name+"/"+file, content[i])
		if err != nil {
			return 0, err
		}
		m.files[file] = sum
		written += sum.bytes
	}
	list := m.encode()
	if err := createFile(s.fsys, name+"/"+manifestFile, list); err != nil {
		return 0, err
	}
	return written + int64(len(list)), s.fsys.SyncDir(name)
}

// writeSummed writes and flushes one file. It returns the file's entry for the manifest.
func (s *Store) writeSummed(ctx context.Context, name string, content func(io.Writer, func(string, uint32)) error) (
	fileSum, error) {
	file, err := s.fsys.Create(name)
	if err != nil {
		return fileSum{}, err
	}
	out := &summedWriter{ctx: ctx, w: file, hash: sha256.New()}
	tensors := map[string]uint32{}
	err = content(out, func(name string, crc uint32) { tensors[name] = crc })
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return fileSum{bytes: out.bytes, sha256: hex.EncodeToString(out.hash.Sum(nil)), tensors: tensors}, err
}

// summedWriter counts and hashes the bytes that it writes. Its writes fail after the end of ctx.
type summedWriter struct {
	ctx   context.Context
	w     io.Writer
	hash  hash.Hash
	bytes int64
}

func (s *summedWriter) Write(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := s.w.Write(p)
	s.hash.Write(p[:n])
	s.bytes += int64(n)
	return n, err
}

// commit renames a complete checkpoint to its final name. If a checkpoint with this name exists, commit first renames
// it. The old checkpoint can be loaded until the new one is flushed to disk.
func (s *Store) commit(temporary, name string) error {
	taken, err := s.fsys.Exists(name)
	if err != nil {
		return err
	}
	old := name + replacedSuffix
	if taken {
		if err := s.remove(old); err != nil {
			return err
		}
		if err := s.fsys.Rename(name, old); err != nil {
			return err
		}
	}
	if err := s.fsys.Rename(temporary, name); err != nil {
		if taken {
			err = errors.Join(err, s.fsys.Rename(old, name))
		}
		return err
	}
	return s.fsys.SyncDir(".")
}
