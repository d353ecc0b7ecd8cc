package precision

import (
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/profiler/cache"
)

// version is the version of the file format.
const version = 1

const mostBytes = 1 << 16

// Choice is the chosen number format with the times of all formats.
type Choice struct {
	Type    string             `json:"type"`
	Seconds map[string]float64 `json:"seconds"` // time of a step by format, s
}

// Cache is a folder of choices. It can be deleted at any time; the formats are then timed again.
type Cache struct{ folder cache.Folder }

// Open returns the cache in dir. The first Store creates the folder.
func Open(dir string) *Cache { return &Cache{cache.Folder{Dir: dir, MaxBytes: mostBytes}} }

// file is the stored form of a choice. It contains the key, because the file name is only a hash.
type file struct {
	Version int    `json:"version"`
	Key     string `json:"key"`
	Choice
}

// Load returns the choice of a key. If the cache contains none, its Type is "".
func (c *Cache) Load(key string) (Choice, error) {
	var f file
	path, found, err := c.folder.Load(cache.Name(key), &f)
	if err != nil {
		return Choice{}, fmt.Errorf("number format cache: %w", err)
	}
	if !found {
		return Choice{}, nil
	}
	switch {
	case f.Version != version:
		err = fmt.Errorf("got version %d, want %d", f.Version, version)
	case f.Key != key:
		err = fmt.Errorf("got the choice for %q, want the choice for %q", f.Key, key)
	case f.Type == "":
		err = errors.New("got no type")
	}
	if err != nil {
		return Choice{}, fmt.Errorf("number format cache: %s: %w", path, err)
	}
	return f.Choice, nil
}

// Store saves a choice.
func (c *Cache) Store(key string, choice Choice) error {
	if err := c.folder.Store(cache.Name(key), file{version, key, choice}); err != nil {
		return fmt.Errorf("number format cache: %w", err)
	}
	return nil
}
