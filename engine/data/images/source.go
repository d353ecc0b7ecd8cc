package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/data/archive"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// source provides the files of a data set. Its methods are safe for concurrent use.
type source interface {
	// read returns the contents of a file. They are in buf if buf is large enough.
	read(f file, buf []byte) ([]byte, error)
	io.Closer
}

// tarSource reads the members of a plain tar in place.
type tarSource struct{ f *os.File }

func openTar(ctx context.Context, name string, limits archive.Limits) (source, listing, error) {
	f, info, err := regular.Open(name)
	if err != nil {
		return nil, listing{}, err
	}
	var l listing
	err = archive.Index(f, info.Size(), limits, func(m archive.Member) error {
		if m.Folder {
			l.addFolder(m.Name)
		} else {
			l.add(file{m.Name, m.Offset, m.Size})
		}
		return ctx.Err()
	})
	return tarSource{f}, l, err
}

func (s tarSource) read(f file, buf []byte) ([]byte, error) {
	buf = grow(buf, int(f.size))
	_, err := s.f.ReadAt(buf, f.offset)
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the archive became shorter after it was opened: %w", io.ErrUnexpectedEOF)
	}
	return buf, err
}

func (s tarSource) Close() error { return s.f.Close() }

// folderSource reads files below a folder.
type folderSource struct {
	root    *os.Root
	maxSize int64 // largest size of a file in bytes
}

// maxDepth limits the depth of nested folders, and thus ends cycles of links.
const maxDepth = 32

func openFolder(ctx context.Context, name string, maxSize int64) (source, listing, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, listing{}, err
	}
	var l listing
	err = walkFolder(ctx, root, ".", 0, &l)
	return folderSource{root, maxSize}, l, err
}

// walkFolder lists dir and its subfolders. It follows links whose targets are within root.
func walkFolder(ctx context.Context, root *os.Root, dir string, depth int, l *listing) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if depth > maxDepth {
		return fmt.Errorf("folder %.200q is more than %d levels deep", dir, maxDepth)
	}
	d, err := root.Open(dir)
	if err != nil {
		return err
	}
	entries, err := d.ReadDir(-1)
	d.Close() // read only
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if hidden(name) {
			continue
		}
		mode := e.Type()
		if mode&fs.ModeSymlink != 0 {
			info, err := root.Stat(name)
			if err != nil && l.brokenLinks {
				l.add(file{name: name})
				continue
			}
			if err != nil {
				return fmt.Errorf("follow a link (links out of the folder are not allowed): %w", err)
			}
			mode = info.Mode().Type()
		}
		switch {
		case mode.IsDir():
			l.addFolder(name)
			if err := walkFolder(ctx, root, name, depth+1, l); err != nil {
				return err
			}
		case mode.IsRegular():
			l.add(file{name: name})
		default:
			l.ignored++
		}
	}
	return nil
}

func (s folderSource) read(f file, buf []byte) (_ []byte, err error) {
	in, info, err := regular.OpenIn(s.root, f.name)
	if err != nil {
		return buf, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if info.Size() > s.maxSize {
		return buf, fmt.Errorf("%d bytes, want a regular file of at most %d", info.Size(), s.maxSize)
	}
	buf = grow(buf, int(info.Size()))
	_, err = io.ReadFull(in, buf)
	return buf, err
}

func (s folderSource) Close() error { return s.root.Close() }

func grow(buf []byte, n int) []byte {
	if cap(buf) < n {
		return make([]byte, n, n+n/4)
	}
	return buf[:n]
}
