package tuning

import (
	"fmt"
	"math"
	"slices"

	"github.com/hetero-train/hetero-train/profiler/cache"
)

// Margin is the fraction by which a candidate must be faster than the first one to be chosen, after both were timed
// several times. With a larger value, candidates that are clearly faster are not chosen. With a smaller value, noise
// decides between equally fast candidates, and runs are harder to compare.
const Margin = 0.02

// MicroBatches returns the possible numbers of micro-batches of an optimizer step, ascending: the divisors of batch
// that leave at least one sample for each rank. If pairs is true, samples are mixed in pairs, so several micro-batches
// must have even sizes.
func MicroBatches(batch, ranks int, pairs bool) (list []int) {
	for n := 1; n <= batch/max(ranks, 1); n++ {
		if batch%n == 0 && (n == 1 || !pairs || batch/n%2 == 0) {
			list = append(list, n)
		}
	}
	return list
}

// Fastest returns the index of the fastest candidate. times[i] contains the step times of all ranks with candidate i,
// in seconds; the time of the slowest rank is decisive. Unless another candidate is faster by the fraction margin, the
// first one is chosen.
func Fastest(times [][]float64, margin float64) int {
	best, least := 0, (1-margin)*slices.Max(times[0])
	for i, ranks := range times[1:] {
		if t := slices.Max(ranks); t < least {
			best, least = i+1, t
		}
	}
	return best
}

// Timed is a candidate with its time.
type Timed struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"` // time of a step
}

// Choice is the chosen sizes with the times of all candidates.
type Choice struct {
	MicroBatches int     `json:"micro_batches"`
	CapBytes     int64   `json:"cap_bytes"` // maximum size of a bucket; 0: sizes from the times of single gradients
	Micro        []Timed `json:"micro,omitempty"`
	Buckets      []Timed `json:"buckets,omitempty"`
}

// version is the version of the file format.
const (
	version   = 1
	mostBytes = 1 << 16
)

// Cache is a folder of choices. It can be deleted at any time; later runs then time their candidates again.
type Cache struct{ folder cache.Folder }

// Open returns the cache in dir. The first Store creates the folder.
func Open(dir string) *Cache { return &Cache{cache.Folder{Dir: dir, MaxBytes: mostBytes}} }

// file is the stored form of a choice. It contains the key, because the file name is only a hash.
type file struct {
	Version int    `json:"version"`
	Key     string `json:"key"`
	Choice
}

// Load returns the choice of a key. found is false if the cache contains none.
func (c *Cache) Load(key string) (choice Choice, found bool, err error) {
	var f file
	path, found, err := c.folder.Load(cache.Name(key), &f)
	if err != nil {
		return Choice{}, false, fmt.Errorf("cache of tuned sizes: %w", err)
	}
	if !found {
		return Choice{}, false, nil
	}
	switch {
	case f.Version != version:
		err = fmt.Errorf("got version %d, want %d", f.Version, version)
	case f.Key != key:
		err = fmt.Errorf("got the choice for %q, want the choice for %q", f.Key, key)
	case f.MicroBatches < 1 || f.MicroBatches > math.MaxInt32 || f.CapBytes < 0:
		err = fmt.Errorf("got %d micro-batches and buckets of %d bytes, want at least 1 and 0", f.MicroBatches,
			f.CapBytes)
	}
	if err != nil {
		return Choice{}, false, fmt.Errorf("cache of tuned sizes: %s: %w", path, err)
	}
	return f.Choice, true, nil
}

// Store saves a choice.
func (c *Cache) Store(key string, choice Choice) error {
	if err := c.folder.Store(cache.Name(key), file{version, key, choice}); err != nil {
		return fmt.Errorf("cache of tuned sizes: %w", err)
	}
	return nil
}
