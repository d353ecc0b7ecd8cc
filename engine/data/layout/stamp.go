package layout

import (
	"os"
	"time"

	"github.com/hetero-train/hetero-train/engine/platform"
)

// freshFor is the duration after a change of a folder during which the folder's times cannot prove that a list is
// complete. The reason is that file systems record times in steps of up to 2 s.
const freshFor = 2 * time.Second

// stampless is the stamp of a folder whose times cannot prove that it is unchanged.
var stampless = stamp{}

// Tests replace these variables.
var (
	now          = time.Now
	fileSystemOf = platform.FileSystemOf
)

// stampOf returns the stamp of a folder.
func stampOf(info os.FileInfo, fs platform.FileSystem) stamp {
	s := stamp{modified: info.ModTime().UnixNano(), changed: platform.ChangeTime(info), size: uint64(info.Size()),
		links: platform.Links(info)}
	s.device, s.inode, _ = platform.FileID(info)
	if age := now().UnixNano() - max(s.modified, s.changed); !fs.FolderTimes || age < int64(freshFor) {
		return stampless
	}
	return s
}

// stampNow returns the present stamp of a folder. On a network file system, it opens the folder. The reason is that
// stat may return values from a cache of several seconds, but opening a folder queries the server.
func (s *scan) stampNow(name string) (os.FileInfo, stamp, error) {
	if !s.remote.Load() {
		info, err := s.stat(name)
		if err != nil {
			return nil, stampless, err
		}
		device, _, _ := platform.FileID(info)
		s.mu.Lock()
		fs, known := s.devices[device]
		s.mu.Unlock()
		if known && fs.Local {
			return info, stampOf(info, fs), nil
		}
	}
	d, err := s.openFolder(name)
	if err != nil {
		return nil, stampless, err
	}
	defer d.Close() // read only
	return s.stampOpen(d)
}

// stampOpen returns the stamp of an open folder.
func (s *scan) stampOpen(d *os.File) (os.FileInfo, stamp, error) {
	info, err := d.Stat()
	if err != nil {
		return nil, stampless, err
	}
	fs := s.fileSystem(d, info)
	if !fs.Local {
		s.remote.Store(true)
	}
	if !fs.FolderTimes && s.timeless.CompareAndSwap(false, true) && s.onTimeless != nil {
		s.onTimeless()
	}
	return info, stampOf(info, fs), nil
}

// fileSystem returns the file system of an open folder. It queries each device once.
func (s *scan) fileSystem(d *os.File, info os.FileInfo) platform.FileSystem {
	device, _, ok := platform.FileID(info)
	if !ok {
		return platform.FileSystem{}
	}
	s.mu.Lock()
	fs, known := s.devices[device]
	s.mu.Unlock()
	if !known {
		fs = fileSystemOf(d)
		s.mu.Lock()
		s.devices[device] = fs
		s.mu.Unlock()
	}
	return fs
}
