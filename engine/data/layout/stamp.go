package layout

import (
	"os"
	"time"

	"github.com/hetero-train/hetero-train/engine/platform"
)

// freshFor is the time for which the times of a changed folder do not yet prove that the list is complete: file systems
// record times in steps of up to 2 s.
const freshFor = 2 * time.Second

// stampless is the stamp of a folder whose times prove nothing.
var stampless = stamp{}

// A test replaces these.
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

// stampNow returns the present stamp of a folder. On network file systems it opens the folder, because they may answer
// stat from a cache of several seconds, but ask the server when a folder is opened.
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

// fileSystem returns the file system of an open folder. It asks once for each device.
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
