package platform

// FileSystem describes a file system. The zero value describes a file system with unknown properties.
type FileSystem struct {
	Name string
	// FolderTimes means that the times of a folder change with each new, removed or renamed entry. Many file systems on
	// object stores, and read-only images, report constant times.
	FolderTimes bool
	// Local means that only this machine can change the files. On other file systems, another machine may remove a
	// mapped file. An access to the map then ends the process with SIGBUS.
	Local bool
}
