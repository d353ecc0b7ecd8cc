package run

import (
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/memory"
)

// Decoders may use the memory that the account leaves free, and then the part of the image cache that is still unused.
// A cache that is planned but empty must not cause a warning. A cache with images must count together with the
// decoders.
func TestDecodersAndCachesHaveOneLimit(t *testing.T) {
	const mib = 1 << 20
	part := func(bytes int64) []memory.Part { return []memory.Part{{Name: "part", Bytes: bytes}} }
	for _, c := range []struct {
		name               string
		program, cache     int64 // planned bytes
		slabs              int   // slabs of 4 MiB that the cache has filled before the decoders start
		used, over, growth int64 // growth: the bytes by which the cache may still grow
	}{
		{"no images", 60 * mib, 40 * mib, 4, 0, 0, 24 * mib},
		{"what the account leaves", 60 * mib, 20 * mib, 0, 20 * mib, 0, 20 * mib},
		{"a part of an empty cache", 60 * mib, 40 * mib, 0, 16 * mib, 0, 24 * mib},
		{"the whole of an empty cache", 60 * mib, 40 * mib, 0, 40 * mib, 0, 0},
		{"the rest of a cache", 60 * mib, 40 * mib, 5, 20 * mib, 0, 0},
		{"more than the rest of a cache", 60 * mib, 40 * mib, 5, 21 * mib, mib, 0},
		{"a full cache", 60 * mib, 40 * mib, 10, 12 * mib, 12 * mib, 0},
		{"no cache", 100 * mib, 0, 0, mib, mib, 0},
		{"more than the limit, accepted within the tolerance of a run", 110 * mib, 0, 0, 0, 0, 0},
	} {
		account := memory.Account{Host: part(c.program), Optional: part(c.cache), Limit: memory.Limit{Bytes: 100 * mib}}
		var budget data.Budget
		budget.Set(c.cache)
		set := filled(t, &budget, c.slabs)
		if got := overrun(account, c.used, &budget); got != c.over {
			t.Errorf("%s: got %d MiB above the limit, want %d", c.name, got/mib, c.over/mib)
		}
		if got := overrun(account, c.used, &budget); got != c.over {
			t.Errorf("%s: got %d MiB above the limit the second time, want %d", c.name, got/mib, c.over/mib)
		}
		before := budget.Held()
		if before != int64(c.slabs)*4*mib {
			t.Errorf("%s: the cache has %d bytes before the decoders", c.name, before)
		}
		readAll(t, set)
		if got := budget.Held() - before; got != c.growth {
			t.Errorf("%s: the cache has grown by %d MiB, want %d", c.name, got/mib, c.growth/mib)
		}
	}
}

// filled returns a data set of images that fill 12 slabs of a cache. The first slabs are already in the cache.
func filled(t *testing.T, budget *data.Budget, slabs int) data.Dataset {
	t.Helper()
	const size, inSlab = 128, 85 // width and height in pixels; images of 3 x 128 x 128 + 8 bytes in a slab of 4 MiB
	set, err := data.Synthetic(data.SyntheticOptions{Seed: 1, Train: 12 * inSlab, Eval: 10, Size: size})
	if err != nil {
		t.Fatal(err)
	}
	cached := set.CachedWithin(0, budget).Train
	read(t, cached, slabs*inSlab)
	return cached
}

func readAll(t *testing.T, set data.Dataset) {
	t.Helper()
	read(t, set, set.Len())
}

func read(t *testing.T, set data.Dataset, images int) {
	t.Helper()
	r, err := set.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := range images {
		var img data.Image
		if err := r.Read(i, nil, &img); err != nil {
			t.Fatal(err)
		}
	}
}
