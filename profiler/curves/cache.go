package curves

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// version is the version of the file format.
const version = 1

const (
	mostBytes  = 1 << 20
	mostPoints = 4096
)

// Cache is a folder of curves.
type Cache struct{ dir string }

// Open returns the cache in dir. The first Store creates the folder.
func Open(dir string) *Cache { return &Cache{dir} }

// file is the stored form. It contains the key, because the file name is only a hash.
type file struct {
	Version int          `json:"version"`
	Key     string       `json:"key"`
	Points  [][2]float64 `json:"points"` // samples, seconds
}

func (c *Cache) path(key string) string {
	return filepath.Join(c.dir, fmt.Sprintf("%.12x.json", sha256.Sum256([]byte(key))))
}

// Load returns the curve of a key, nil if there is none.
func (c *Cache) Load(key string) (balancer.Curve, error) {
	path := c.path(key)
	text, err := regular.Read(path, mostBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var f file
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err == nil {
		err = f.check(key)
	}
	if err != nil {
		return nil, fmt.Errorf("curve cache: %s: %w", path, err)
	}
	curve := make(balancer.Curve, len(f.Points))
	for i, p := range f.Points {
		curve[i] = balancer.Point{Samples: p[0], Seconds: p[1]}
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
		return fmt.Errorf("is the curve of %q, want %q", f.Key, key)
	case len(f.Points) == 0 || len(f.Points) > mostPoints:
		return fmt.Errorf("got %d points, want 1 to %d", len(f.Points), mostPoints)
	}
	return nil
}

// Store saves a curve.
func (c *Cache) Store(key string, curve balancer.Curve) (err error) {
	f := file{Version: version, Key: key}
	for _, p := range curve {
		f.Points = append(f.Points, [2]float64{p.Samples, p.Seconds})
	}
	if err := curve.Check(); err != nil {
		return fmt.Errorf("curve cache: %q: %w", key, err)
	}
	text, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("curve cache: %w", err)
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return fmt.Errorf("curve cache: %w", err)
	}
	temporary, err := os.CreateTemp(c.dir, "curve-*.tmp")
	if err != nil {
		return fmt.Errorf("curve cache: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(temporary.Name())
			err = fmt.Errorf("curve cache: %w", err)
		}
	}()
	_, err = temporary.Write(append(text, '\n'))
	if err := errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), c.path(key)) // the folder is not synced: a lost curve is measured again
}
