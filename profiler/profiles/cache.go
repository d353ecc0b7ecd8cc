package profiles

import (
	"fmt"
	"time"

	"github.com/hetero-train/hetero-train/profiler/cache"
	"github.com/hetero-train/hetero-train/profiler/hardware"
)

// Cache is a folder of figures from the starts of trainings, one file per device, so that the next training need not
// measure. It can be deleted safely.
type Cache struct{ folder cache.Folder }

// OpenCache returns the cache in dir. The first Store creates the folder.
func OpenCache(dir string) *Cache { return &Cache{cache.Folder{Dir: dir, MaxBytes: maxFile}} }

// CacheKey contains everything on which the figures depend.
type CacheKey struct {
	Fingerprint string `json:"fingerprint"` // hardware.Identity: device, CPU quota, memory
	DeviceType  string `json:"device_type"`
	DType       string `json:"dtype"`
	Program     string `json:"program"` // version of the program, whose kernels may change
}

// cached is a file of the cache.
type cached struct {
	SchemaVersion int       `json:"schema_version"`
	Key           CacheKey  `json:"key"`
	Created       time.Time `json:"created"`
	Measured      Measured  `json:"measured"`
}

func (k CacheKey) file() string {
	return hardware.Fingerprint(k.Fingerprint, k.DeviceType, k.DType, k.Program)[:24] + ".json"
}

// Kept are cached figures.
type Kept struct {
	Measured Measured
	Created  time.Time
	File     string
}

// Load returns the figures of a key, nil if there are none. It returns an error for an unusable file, which the next
// Store replaces.
func (c *Cache) Load(k CacheKey) (*Kept, error) {
	var f cached
	path, found, err := c.folder.Load(k.file(), &f)
	if err != nil {
		return nil, fmt.Errorf("profile cache %w", err)
	}
	if !found || f.SchemaVersion != SchemaVersion {
		return nil, nil // a file of another program version is measured again
	}
	if f.Key != k || !f.Measured.TFLOPS.Known() || !f.Measured.Memory.Copy.Known() {
		return nil, fmt.Errorf("profile cache %s: got the figures of %+v, want those of %+v, above 0", path, f.Key, k)
	}
	return &Kept{Measured: f.Measured, Created: f.Created, File: path}, nil
}

// Store saves figures.
func (c *Cache) Store(k CacheKey, m *Measured) error {
	f := cached{SchemaVersion: SchemaVersion, Key: k, Created: time.Now().UTC().Truncate(time.Second), Measured: *m}
	if err := c.folder.Store(k.file(), f); err != nil {
		return fmt.Errorf("profile cache: %w", err)
	}
	return nil
}
