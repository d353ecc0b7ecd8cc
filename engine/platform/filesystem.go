package platform

// FileSystem describes a file system. The zero value is a file system about which nothing is known.
type FileSystem struct {
	Name string
	// FolderTimes means that each new, removed or renamed entry of a folder changes the times of the folder. Many file
	// systems on object stores, and read-only images, report constant times.
	FolderTimes bool
	// Local means that only this machine changes the files. On other file systems, another machine may remove a mapped
	// file, and an access to the map then ends the process with SIGBUS.
	Local bool
}
