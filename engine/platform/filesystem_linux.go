package platform

import (
	"os"

	"golang.org/x/sys/unix"
)

const (
	zfsMagic    = 0x2FC12FC1
	lustreMagic = 0x0BD00BD0
)

// fileSystems lists the file systems with known properties, by the type that statfs returns. All other file systems
// have unknown properties, for example FUSE, SquashFS, CIFS and 9P.
var fileSystems = map[uint32]FileSystem{
	unix.EXT4_SUPER_MAGIC:      {Name: "ext", FolderTimes: true, Local: true}, // ext2 and ext3 have the same type
	unix.XFS_SUPER_MAGIC:       {Name: "xfs", FolderTimes: true, Local: true},
	unix.BTRFS_SUPER_MAGIC:     {Name: "btrfs", FolderTimes: true, Local: true},
	zfsMagic:                   {Name: "zfs", FolderTimes: true, Local: true},
	unix.OVERLAYFS_SUPER_MAGIC: {Name: "overlay", FolderTimes: true, Local: true},
	unix.TMPFS_MAGIC:           {Name: "tmpfs", FolderTimes: true, Local: true},
	unix.NFS_SUPER_MAGIC:       {Name: "nfs", FolderTimes: true},
	lustreMagic:                {Name: "lustre", FolderTimes: true},
}

// FileSystemOf returns the file system of an open file or folder, or the zero value if it is unknown.
func FileSystemOf(f *os.File) FileSystem {
	var s unix.Statfs_t
	raw, err := f.SyscallConn()
	if err != nil {
		return FileSystem{}
	}
	var statErr error
	if err := raw.Control(func(fd uintptr) { statErr = unix.Fstatfs(int(fd), &s) }); err != nil || statErr != nil {
		return FileSystem{}
	}
	return fileSystems[uint32(s.Type)]
}
