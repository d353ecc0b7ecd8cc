package replica

import (
	"testing"
)

func TestShortMemoryRecomputesAsFewLayersAsFit(t *testing.T) {
	const samples = 6
	r, err := New(openReference(t), languageOptions(0.2))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	bytes := func(layers int) int64 {
		p, err := r.plans.compileWith(r.plans.key(samples), layers)
		if err != nil {
			t.Fatal(err)
		}
		defer p.free()
		if want := min(layers, 3); p.recomputed != want {
			t.Errorf("recomputed %d layers of %d, want %d: the last layer is never recomputed", p.recomputed, layers,
				want)
		}
		return p.arenaBytes()
	}
	var sizes []int64 // memory in bytes; the index is the number of recomputed layers
	for layers := range 5 {
		sizes = append(sizes, bytes(layers))
	}
	for _, c := range []struct {
		free int64
		want int
	}{{0, 0}, {sizes[0], 0}, {sizes[0] - 1, 2}, {sizes[2] - 1, 3}, {sizes[3], 3}, {1, 3}} {
		r.plans.free = c.free
		p, err := r.plans.compile(r.plans.key(samples))
		if err != nil {
			t.Fatal(err)
		}
		if p.recomputed != c.want {
			t.Errorf("%d bytes free: recomputed %d layers, want %d; bytes by number of layers: %d", c.free,
				p.recomputed, c.want, sizes)
		}
		if err := p.free(); err != nil {
			t.Error(err)
		}
	}
}

// A plan for fewer samples can recompute fewer layers. If it then needs more memory than the arena has, it must
// recompute more layers.
func TestPlansForFewerSamplesFitIntoTheArena(t *testing.T) {
	o := languageOptions(0.2)
	open := func(o Options) *Replica {
		r, err := New(openReference(t), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		return r
	}
	whole := open(o)
	size := func(samples, layers int) int64 {
		p, err := whole.plans.compileWith(whole.plans.key(samples), layers)
		if err != nil {
			t.Fatal(err)
		}
		defer p.free()
		return p.arenaBytes()
	}
	full, fewer := size(testBatch, 3), size(testBatch-1, 0)
	if full >= fewer {
		t.Fatalf("%d samples need %d bytes with recomputation, %d samples %d without it: want fewer", testBatch, full,
			testBatch-1, fewer)
	}
	o.MemoryBytes = whole.fixedBytes() + fewer
	r := open(o)
	for n := range testBatch + 1 {
		p, err := r.plans.acquire(n)
		if err != nil {
			t.Fatalf("%d samples: %v", n, err)
		}
		r.plans.release(p)
	}
}
