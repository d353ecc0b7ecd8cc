package checkpoint

import (
	"path/filepath"
)

// Sizes of the operations of a watched folder, in bytes. At 1 MB/s, a flush takes 8 s. With larger values, a slow disk
// looks like a disk that does not respond. With smaller values, a hard disk spends more time on seeks.
const (
	largestWrite = 1 << 20
	largestFlush = 8 << 20
	largestRead  = 8 << 20
)

// watched is a fileSystem that calls Options.Watch for each operation.
type watched struct {
	fileSystem
	dir   string
	begin func(path string) (end func())
}

func (w watched) start(name string) (end func()) { return w.begin(filepath.Join(w.dir, name)) }

func (w watched) Mkdir(name string) error {
	defer w.start(name)()
	return w.fileSystem.Mkdir(name)
}

func (w watched) Create(name string) (writeFile, error) {
	defer w.start(name)()
	file, err := w.fileSystem.Create(name)
	if err != nil {
		return nil, err
	}
	return &watchedFile{writeFile: file, start: func() (end func()) { return w.start(name) }}, nil
}

func (w watched) Rename(from, to string) error {
	defer w.start(to)()
	return w.fileSystem.Rename(from, to)
}

func (w watched) Remove(name string) error {
	defer w.start(name)()
	return w.fileSystem.Remove(name)
}

func (w watched) SyncDir(name string) error {
	defer w.start(name)()
	return w.fileSystem.SyncDir(name)
}

func (w watched) Open(name string) (readFile, error) {
	defer w.start(name)()
	file, err := w.fileSystem.Open(name)
	if err != nil {
		return nil, err
	}
	return &watchedReader{file, func() (end func()) { return w.start(name) }}, nil
}

// watchedReader is a file of a watched folder. It reads in pieces.
type watchedReader struct {
	readFile
	start func() (end func())
}

// ReadAt implements [io.ReaderAt].
func (f *watchedReader) ReadAt(p []byte, offset int64) (n int, err error) {
	for len(p) > 0 && err == nil {
		var read int
		read, err = f.read(p[:min(len(p), largestRead)], offset)
		n, p, offset = n+read, p[read:], offset+int64(read)
	}
	return n, err
}

func (f *watchedReader) read(p []byte, offset int64) (int, error) {
	defer f.start()()
	return f.readFile.ReadAt(p, offset)
}

func (w watched) ReadDir(name string) ([]string, error) {
	defer w.start(name)()
	return w.fileSystem.ReadDir(name)
}

func (w watched) Exists(name string) (bool, error) {
	defer w.start(name)()
	return w.fileSystem.Exists(name)
}

// watchedFile is a file of a watched folder. It writes and flushes in pieces.
type watchedFile struct {
	writeFile
	start   func() (end func())
	pending int // bytes written since the last flush
}

// Write implements [io.Writer].
func (f *watchedFile) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		var wrote int
		wrote, err = f.write(p[:min(len(p), largestWrite)])
		n, p = n+wrote, p[wrote:]
		if f.pending += wrote; err == nil && f.pending >= largestFlush {
			err = f.Sync()
		}
	}
	return n, err
}

func (f *watchedFile) write(p []byte) (int, error) {
	defer f.start()()
	return f.writeFile.Write(p)
}

func (f *watchedFile) Sync() error {
	f.pending = 0
	defer f.start()()
	return f.writeFile.Sync()
}

func (f *watchedFile) Close() error {
	defer f.start()()
	return f.writeFile.Close()
}
