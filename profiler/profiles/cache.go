package profiles

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/profiler/hardware"
)

// Cache is a folder of figures from the starts of trainings, one file per device, so that the next training need not
// measure. It can be deleted safely.
type Cache struct{ dir string }

// OpenCache returns the cache in dir. The first Store creates the folder.
func OpenCache(dir string) *Cache { return &Cache{dir} }

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

func (c *Cache) path(k CacheKey) string {
	return filepath.Join(c.dir, hardware.Fingerprint(k.Fingerprint, k.DeviceType, k.DType, k.Program)[:24]+".json")
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
	path := c.path(k)
	text, err := regular.Read(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var f cached
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err == nil && f.SchemaVersion != SchemaVersion {
		return nil, nil // of another program version; measured again
	}
	if err == nil && (f.Key != k || !f.Measured.TFLOPS.Known() || !f.Measured.Memory.Copy.Known()) {
		err = fmt.Errorf("got the figures of %+v, want those of %+v, above 0", f.Key, k)
	}
	if err != nil {
		return nil, fmt.Errorf("profile cache %s: %w", path, err)
	}
	return &Kept{Measured: f.Measured, Created: f.Created, File: path}, nil
}

// Store saves figures.
func (c *Cache) Store(k CacheKey, m *Measured) error {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return fmt.Errorf("profile cache: %w", err)
	}
	return write(c.path(k), cached{SchemaVersion: SchemaVersion, Key: k, Created: time.Now().UTC().Truncate(time.Second), Measured: *m})
}
