package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"

	"github.com/hetero-train/hetero-train/engine/data/archive"
	"github.com/hetero-train/hetero-train/engine/data/layout"
	"github.com/hetero-train/hetero-train/engine/data/stored"
)

// source provides the files of a data set. Its methods are safe for concurrent use.
type source interface {
	// read returns the contents of a file. It uses buf if buf is large enough.
	read(f file, buf []byte) ([]byte, error)
	io.Closer
}

// tarSource reads the members of a plain tar in place.
type tarSource struct{ f stored.File }

func openTar(ctx context.Context, name string, limits archive.Limits) (source, listing, error) {
	if err := stored.Plan(ctx, []string{name}); err != nil {
		return nil, listing{}, err
	}
	f, info, err := stored.Open(name)
	if err != nil {
		return nil, listing{}, err
	}
	var l listing
	marked, err := archive.IndexToMark(f, info.Size(), limits, func(m archive.Member) error {
		if m.Folder {
			l.addFolder(m.Name)
		} else {
			l.add(file{m.Name, m.Offset, m.Size})
		}
		return ctx.Err()
	})
	l.unmarked = !marked
	if err != nil || !stored.Remote(name) {
		return tarSource{f}, l, err
	}
	f.Close() // read only
	random, _, err := stored.OpenRandom(name)
	return tarSource{random}, l, err
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

// folderSource reads files in a folder and its subfolders.
type folderSource struct {
	folder  *layout.Folder
	maxSize int64 // largest size of a file in bytes
}

func (o Options) openFolder(ctx context.Context, name string) (source, listing, error) {
	folder, err := layout.OpenFolder(name, o.FollowLinks)
	if err != nil {
		return nil, listing{}, err
	}
	var l listing
	tree, err := folder.Scan(ctx, layout.ScanOptions{CacheDir: o.CacheDir, Progress: scanLog(o.Logger, name),
		Kept: func(file string) {
			o.Logger.Info("images: the kept list of "+name+" is used; delete the file to list all folders again",
				"file", file)
		},
		Unkept: func(err error) { o.Logger.Warn("images: the list of the folder is not kept", "reason", err) }})
	if err == nil && tree.Files() > math.MaxInt32 {
		err = fmt.Errorf("%d files, want at most %d", tree.Files(), math.MaxInt32)
	}
	if err == nil && stored.Remote(name) {
		var paths []string
		for i := range tree.Files() {
			paths = append(paths, folder.Path(tree.File(i)))
		}
		err = stored.Plan(ctx, paths)
	}
	if err == nil {
		l.addTree(tree)
	}
	return folderSource{folder, o.Limits.MemberBytes}, l, err
}

// scanLog returns a function that logs the progress of a scan after 2 s, then every 10 s.
func scanLog(log *slog.Logger, name string) func(layout.ScanProgress) {
	calls := 0
	return func(p layout.ScanProgress) {
		if calls++; calls != 2 && calls%10 != 0 {
			return
		}
		if p.Waiting {
			log.Info("images: another process lists " + name + ", this one waits for its list")
			return
		}
		log.Info("images: listing "+name, "files", p.Files, "folders", p.Folders)
	}
}

func (s folderSource) read(f file, buf []byte) (_ []byte, err error) {
	in, info, err := s.folder.Open(f.name)
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

func (s folderSource) Close() error { return s.folder.Close() }

func grow(buf []byte, n int) []byte {
	if cap(buf) < n {
		return make([]byte, n, n+n/4)
	}
	return buf[:n]
}
