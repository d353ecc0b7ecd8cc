package layout

import (
	"encoding/binary"
	"io/fs"
	"os"
	"syscall"
)

// readNames calls visit for all entries of an open folder except "." and "..", in the order of the file system. The
// argument mode is the type of the entry as stated by the folder, or fs.ModeIrregular if the folder does not state it.
// The argument name is valid only during the call. If visit returns an error, readNames stops and returns it.
//
// readNames makes large reads, and no call per entry. In contrast, os.File.ReadDir reads 8 KiB at a time. It calls
// lstat for each entry of a folder that was opened through an os.Root.
func readNames(d *os.File, buf []byte, visit func(name []byte, mode fs.FileMode) error) error {
	raw, err := d.SyscallConn()
	if err != nil {
		return err
	}
	for {
		var n int
		var readErr error
		err := raw.Control(func(fd uintptr) {
			for {
				if n, readErr = syscall.ReadDirent(int(fd), buf); readErr != syscall.EINTR {
					return
				}
			}
		})
		if err != nil {
			return err
		}
		if readErr != nil {
			return &fs.PathError{Op: "read folder", Path: d.Name(), Err: readErr}
		}
		if n <= 0 {
			return nil
		}
		for rest := buf[:n]; len(rest) >= nameAt; {
			// struct linux_dirent64: inode 8 bytes, offset 8, length of the record 2, type 1, name
			size := int(binary.NativeEndian.Uint16(rest[16:]))
			if size < nameAt || size > len(rest) {
				return &fs.PathError{Op: "read folder", Path: d.Name(), Err: syscall.EIO}
			}
			name := rest[nameAt:size]
			for i, c := range name {
				if c == 0 {
					name = name[:i]
					break
				}
			}
			if inode := binary.NativeEndian.Uint64(rest); inode != 0 && string(name) != "." && string(name) != ".." {
				if err := visit(name, modeOf(rest[18])); err != nil {
					return err
				}
			}
			rest = rest[size:]
		}
	}
}

// nameAt is the position of the name in a struct linux_dirent64.
const nameAt = 19

func modeOf(kind byte) fs.FileMode {
	switch kind {
	case syscall.DT_REG:
		return 0
	case syscall.DT_DIR:
		return fs.ModeDir
	case syscall.DT_LNK:
		return fs.ModeSymlink
	case syscall.DT_FIFO:
		return fs.ModeNamedPipe
	case syscall.DT_SOCK:
		return fs.ModeSocket
	case syscall.DT_CHR, syscall.DT_BLK:
		return fs.ModeDevice
	}
	return fs.ModeIrregular // some file systems do not state the type
}
