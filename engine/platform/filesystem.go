package platform

// FileSystem describes a file system. The zero value is a file system about which nothing is known.
type FileSystem struct {
	Name string
	// FolderTimes means that each new, removed or renamed entry of a folder changes the times of the folder. Many
	// file systems over object stores, and those in read-only images, state constant times.
	FolderTimes bool
	// Local means that only this machine changes the files. A map of another file system's file ends the process with
	// SIGBUS if another machine removes the file.
	Local bool
}
