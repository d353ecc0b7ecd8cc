package profiles

import (
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/profiler/cache"
	"github.com/hetero-train/hetero-train/profiler/hardware"
)

// Cache is a folder of values that were measured at the start of a training run, with one file per device. The next run
// need not repeat the measurement. The folder can be deleted at any time.
type Cache struct{ folder cache.Folder }

// OpenCache returns the cache in dir. The first Store creates the folder.
func OpenCache(dir string) *Cache { return &Cache{cache.Folder{Dir: dir, MaxBytes: maxFile}} }

// CacheKey contains all properties on which the values depend.
type CacheKey struct {
	Fingerprint string `json:"fingerprint"` // fingerprint of hardware.Identity: device, CPU quota, memory
	DeviceType  string `json:"device_type"`
	DType       string `json:"dtype"`
	Program     string `json:"program"` // version of the program; other versions may have other kernels
}

// cached is the stored form of the values.
type cached struct {
	SchemaVersion int       `json:"schema_version"`
	Key           CacheKey  `json:"key"`
	Created       time.Time `json:"created"`
	Measured      Measured  `json:"measured"`
}

func (k CacheKey) file() string {
	return hardware.Fingerprint(k.Fingerprint, k.DeviceType, k.DType, k.Program)[:24] + ".json"
}

// Kept contains the values that Load found in the cache.
type Kept struct {
	Measured Measured
	Created  time.Time
	File     string
}

// Load returns the values of a key, or nil if the cache contains none. If the file cannot be used, Load returns an
// error, and the next Store replaces the file.
func (c *Cache) Load(k CacheKey) (*Kept, error) {
	var f cached
	path, found, err := c.folder.Load(k.file(), &f)
	if err != nil {
		return nil, fmt.Errorf("profile cache %w", err)
	}
	if !found || f.SchemaVersion != SchemaVersion {
		return nil, nil // the file of another program version: the values must be measured again
	}
	if f.Key != k || !f.Measured.TFLOPS.Known() || !f.Measured.Memory.Copy.Known() {
		return nil, fmt.Errorf("profile cache %s: got measurements of %+v, want positive measurements of %+v", path,
			f.Key, k)
	}
	return &Kept{Measured: f.Measured, Created: f.Created, File: path}, nil
}

// Store saves the values of a key.
func (c *Cache) Store(k CacheKey, m *Measured) error {
	f := cached{SchemaVersion: SchemaVersion, Key: k, Created: time.Now().UTC().Truncate(time.Second), Measured: *m}
	if err := c.folder.Store(k.file(), f); err != nil {
		return fmt.Errorf("profile cache: %w", err)
	}
	return nil
}
