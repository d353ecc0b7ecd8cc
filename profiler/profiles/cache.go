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

// Cache is a folder of figures that were measured when a training began, one file a device, so that the next training need not measure.
// The folder is safe to delete.
type Cache struct{ dir string }

// OpenCache names the folder; it is made with the first Store.
func OpenCache(dir string) *Cache { return &Cache{dir} }

// CacheKey is everything that figures depend on.
type CacheKey struct {
	Fingerprint string `json:"fingerprint"` // hardware.Identity: device, CPU quota, memory
	DeviceType  string `json:"device_type"`
	DType       string `json:"dtype"`
	Program     string `json:"program"` // kernels change with it
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

// Kept are figures of the cache.
type Kept struct {
	Measured Measured
	Created  time.Time
	File     string
}

// Load gives the figures of a key, nil where there are none. A file that cannot be used is an error; the next Store replaces it.
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
		return nil, nil // of another program; its figures are measured again
	}
	if err == nil && (f.Key != k || !f.Measured.TFLOPS.Known() || !f.Measured.Memory.Copy.Known()) {
		err = fmt.Errorf("got the figures of %+v, want those of %+v, above 0", f.Key, k)
	}
	if err != nil {
		return nil, fmt.Errorf("profile cache %s: %w", path, err)
	}
	return &Kept{Measured: f.Measured, Created: f.Created, File: path}, nil
}

// Store keeps figures.
func (c *Cache) Store(k CacheKey, m *Measured) error {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return fmt.Errorf("profile cache: %w", err)
	}
	return write(c.path(k), cached{SchemaVersion: SchemaVersion, Key: k, Created: time.Now().UTC().Truncate(time.Second), Measured: *m})
}
