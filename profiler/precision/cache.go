package precision

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hetero-train/hetero-train/engine/regular"
)

// version is the version of the file format.
const version = 1

const mostBytes = 1 << 16

// Choice is the fastest format.
type Choice struct {
	Type    string             `json:"type"`
	Seconds map[string]float64 `json:"seconds"` // of a step, by format
}

// Cache is a folder of choices: one JSON file per key, written atomically. It can be deleted safely: the formats are
// timed again.
type Cache struct{ dir string }

// Open returns the cache in dir. The first Store creates the folder.
func Open(dir string) *Cache { return &Cache{dir} }

// file is the stored form. It contains the key, because the file name is only a hash.
type file struct {
	Version int    `json:"version"`
	Key     string `json:"key"`
	Choice
}

func (c *Cache) path(key string) string {
	return filepath.Join(c.dir, fmt.Sprintf("%.12x.json", sha256.Sum256([]byte(key))))
}

// Load returns the choice of a key; its Type is "" if there is none.
func (c *Cache) Load(key string) (Choice, error) {
	path := c.path(key)
	text, err := regular.Read(path, mostBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return Choice{}, nil
	}
	var f file
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	switch {
	case err != nil:
	case f.Version != version:
		err = fmt.Errorf("got version %d, want %d", f.Version, version)
	case f.Key != key:
		err = fmt.Errorf("got the choice of %q, want that of %q", f.Key, key)
	case f.Type == "":
		err = errors.New("got no type")
	}
	if err != nil {
		return Choice{}, fmt.Errorf("number format cache: %s: %w", path, err)
	}
	return f.Choice, nil
}

// Store saves a choice.
func (c *Cache) Store(key string, choice Choice) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("number format cache: %w", err)
		}
	}()
	text, err := json.Marshal(file{version, key, choice})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(c.dir, "choice-*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(temporary.Name())
		}
	}()
	_, err = temporary.Write(append(text, '\n'))
	if err := errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), c.path(key))
}
