package data

import "testing"

// MemoryBytes must count the buffers that a loader allocates. The alignment of fields is the only permitted difference.
func TestMemoryOfBatchesIsThatOfTheBuffers(t *testing.T) {
	set, err := Synthetic(SyntheticOptions{Seed: 1, Train: 100, Eval: 10, Size: 16})
	if err != nil {
		t.Fatal(err)
	}
	for _, depth := range []int{0, 2} {
		var allocated int64
		o := Options{Samples: Images{Dataset: set.Train, Transform: Transform{Crop: PadCrop, Size: 16}}, BatchSize: 20,
			Depth: depth, MaxCount: 12, Share: &Share{0, 12},
			Alloc: func(bytes int) ([]byte, func(), error) {
				allocated += int64(bytes)
				return heapMemory(bytes)
			}}
		l, err := NewLoader(o)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		got, err := o.MemoryBytes(12, 100)
		// small is the memory of the indices, of their states, and of the order of an epoch.
		small := int64(len(l.slots))*(12+4*(20+20)) + 4*100
		if slack := got - small - allocated; err != nil || slack > 0 || slack < -64*4*int64(len(l.slots)) {
			t.Errorf("depth %d: got %d bytes, %v; the buffers have %d, and %d others", depth, got, err, allocated,
				small)
		}
	}
	o := Options{Samples: Images{Dataset: set.Eval, Transform: Transform{Crop: PadCrop, Size: 16}}, BatchSize: 20,
		Evaluate: true}
	few, err1 := o.MemoryBytes(20, 10)
	many, err2 := o.MemoryBytes(20, 80)
	unknown, err3 := o.MemoryBytes(20, 0)
	if err1 != nil || err2 != nil || err3 != nil || few >= many/4 || many != unknown {
		t.Errorf("an evaluation of 10, 80 and an unknown number of samples: got %d, %d, %d bytes", few, many, unknown)
	}
}

// The loader reads the first images before the budget of the cache is known. The cache must grow as soon as the budget
// is set.
func TestACacheGrowsOnceItsBudgetIsKnown(t *testing.T) {
	splits, err := Synthetic(SyntheticOptions{Seed: 1, Train: 20, Eval: 20, Size: 16})
	if err != nil {
		t.Fatal(err)
	}
	var budget Budget
	part := splits.CachedWithin(1<<30, &budget).Train
	r, err := part.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, slabs := range []int64{0, 1} {
		budget.Set(slabs * slabBytes)
		var img Image
		if err := r.Read(3, nil, &img); err != nil {
			t.Fatal(err)
		}
		if kept := part.(*cached).entry[3].Load() != 0; kept != (slabs > 0) {
			t.Errorf("budget of %d slabs: the image is kept: %v", slabs, kept)
		}
	}
}

func TestCachesKeepToTheirBudget(t *testing.T) {
	const size = 128 // 85 images in a slab
	splits, err := Synthetic(SyntheticOptions{Seed: 1, Train: 200, Eval: 200, Size: size})
	if err != nil {
		t.Fatal(err)
	}
	all := 2 * CachedBytes(200, size, size) / slabBytes // each part has its own slabs, the last of which is not full
	if CachedBytes(1, 4000, 4000) != 0 {
		t.Error("images that need more than a slab are counted, but not cached")
	}
	for _, slabs := range []int64{0, 1, 3, all} {
		var budget Budget
		budget.Set(slabs * slabBytes)
		both := splits.CachedWithin(1<<30, &budget)
		for _, part := range []Dataset{both.Train, both.Eval} {
			r, err := part.NewReader()
			if err != nil {
				t.Fatal(err)
			}
			for i := range part.Len() {
				var img Image
				if err := r.Read(i, nil, &img); err != nil {
					t.Fatal(err)
				}
			}
			r.Close()
		}
		var taken int64
		kept := 0
		for _, part := range []Dataset{both.Train, both.Eval} {
			for _, slab := range part.(*cached).slabs {
				taken += int64(len(slab))
			}
			for i := range part.(*cached).entry {
				if part.(*cached).entry[i].Load() != 0 {
					kept++
				}
			}
		}
		if taken != slabs*slabBytes {
			t.Errorf("budget of %d slabs: the caches took %d bytes", slabs, taken)
		}
		if (kept == 400) != (slabs == all) {
			t.Errorf("budget of %d slabs, of which all images need %d: %d of 400 images are kept", slabs, all, kept)
		}
	}
}
