package dry

import "golang.org/x/sys/unix"

// reserve reserves address space; a page takes memory only after it is written.
func reserve(bytes int64) ([]byte, error) {
	return unix.Mmap(-1, 0, int(max(bytes, 1)), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
}

func giveBack(host []byte) error { return unix.Munmap(host) }
