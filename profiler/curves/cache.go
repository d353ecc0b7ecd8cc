package curves

import (
	"fmt"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/profiler/cache"
)

// version is the version of the file format.
const version = 1

const (
	mostBytes  = 1 << 20
	mostPoints = 4096
)

// Cache is a folder of step-time curves.
type Cache struct{ folder cache.Folder }

// Open returns the cache in dir. The first Store creates the folder.
func Open(dir string) *Cache { return &Cache{cache.Folder{Dir: dir, MaxBytes: mostBytes}} }

// file is the stored form of a curve. It contains the key, because the file name is only a hash.
type file struct {
	Version int          `json:"version"`
	Key     string       `json:"key"`
	Points  [][2]float64 `json:"points"` // samples, seconds
}

// Load returns the curve of a key, or nil if the cache contains none.
func (c *Cache) Load(key string) (divide.Curve, error) {
	var f file
	path, found, err := c.folder.Load(cache.Name(key), &f)
	if err != nil {
		return nil, fmt.Errorf("curve cache: %w", err)
	}
	if !found {
		return nil, nil
	}
	if err := f.check(key); err != nil {
		return nil, fmt.Errorf("curve cache: %s: %w", path, err)
	}
	curve := make(divide.Curve, len(f.Points))
	for i, p := range f.Points {
		curve[i] = divide.Point{Samples: p[0], Seconds: p[1]}
	}
	if err := curve.Check(); err != nil {
		return nil, fmt.Errorf("curve cache: %s: %w", path, err)
	}
	return curve, nil
}

func (f *file) check(key string) error {
	switch {
	case f.Version != version:
		return fmt.Errorf("got version %d, want %d", f.Version, version)
	case f.Key != key:
		return fmt.Errorf("got the curve of %q, want the curve of %q", f.Key, key)
	case len(f.Points) == 0 || len(f.Points) > mostPoints:
		return fmt.Errorf("got %d points, want 1 to %d", len(f.Points), mostPoints)
	}
	return nil
}

// Store saves a curve.
func (c *Cache) Store(key string, curve divide.Curve) error {
	f := file{Version: version, Key: key}
	for _, p := range curve {
		f.Points = append(f.Points, [2]float64{p.Samples, p.Seconds})
	}
	if err := curve.Check(); err != nil {
		return fmt.Errorf("curve cache: %q: %w", key, err)
	}
	if err := c.folder.Store(cache.Name(key), f); err != nil {
		return fmt.Errorf("curve cache: %w", err)
	}
	return nil
}
