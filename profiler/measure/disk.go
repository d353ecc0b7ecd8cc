package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// DiskSpeed is the speed of the disk that contains a folder, in decimal MB/s.
type DiskSpeed struct {
	WriteMBytes Figure `json:"write_mbytes_per_second"` // includes the time until the data is on the disk
	ReadMBytes  Figure `json:"read_mbytes_per_second"`
	ReadCached  bool   `json:"read_cached"` // the file stayed in the page cache, so ReadMBytes is the speed of memory
	Bytes       int64  `json:"bytes"`       // size of the file in bytes
}

// Each write has diskBlock bytes. After every diskFlush bytes, the file is synced.
const (
	diskBlock = 4 << 20
	diskFlush = 16 << 20
)

// Disk measures the disk that contains dir. It writes a file of at most limit bytes and at most a quarter of the free
// space, syncs it, reads it back and removes it.
func Disk(ctx context.Context, dir string, limit int64, budget time.Duration) (d DiskSpeed, err error) {
	if free, known := freeBytes(dir); known {
		limit = min(limit, free/4)
	}
	if limit <= 0 {
		return d, fmt.Errorf("disk: %s is full", dir)
	}
	f, err := os.CreateTemp(dir, ".profile-*")
	if err != nil {
		return d, fmt.Errorf("disk: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	block := make([]byte, diskBlock)
	for i := range block { // random data, because some disks and file systems compress
		block[i] = byte(i*i>>7 ^ i*2654435761>>13)
	}
	began := time.Now()
	deadline := began.Add(budget * 2 / 3)
	for d.Bytes < limit && (d.Bytes == 0 || time.Now().Before(deadline)) {
		if err := ctx.Err(); err != nil {
			return d, err
		}
		n, err := f.Write(block[:min(diskBlock, limit-d.Bytes)])
		if d.Bytes += int64(n); err == nil && d.Bytes%diskFlush == 0 {
			err = f.Sync()
		}
		if err != nil {
			return d, fmt.Errorf("disk: write to %s: %w", dir, err)
		}
	}
	if err := f.Sync(); err != nil {
		return d, fmt.Errorf("disk: write to %s: %w", dir, err)
	}
	d.WriteMBytes = Figure(float64(d.Bytes) / time.Since(began).Seconds() / 1e6)
	d.ReadCached = forget(f) != nil
	began = time.Now()
	deadline = began.Add(budget / 3)
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return d, fmt.Errorf("disk: %w", err)
	}
	read := int64(0)
	for read < d.Bytes && (read == 0 || time.Now().Before(deadline)) {
		if err := ctx.Err(); err != nil {
			return d, err
		}
		n, err := io.ReadFull(f, block[:min(diskBlock, d.Bytes-read)])
		if read += int64(n); err != nil {
			return d, fmt.Errorf("disk: read from %s: %w", dir, err)
		}
	}
	d.ReadMBytes = Figure(float64(read) / time.Since(began).Seconds() / 1e6)
	return d, nil
}
