package replica

import (
	"context"
	"strings"
	"testing"
)

func TestPlansThatWereNotAskedForMakeRoom(t *testing.T) {
	dev := openReference(t)
	r, err := New(dev, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	r.plans.capacity = 3
	plan := func(samples ...int) (kernels int) {
		for _, n := range samples {
			if err := cachePlans(r, n); err != nil {
				t.Fatal(err)
			}
			if allocated, _ := dev.Memory(); allocated != r.PredictedBytes() {
				t.Errorf("share of %d: predicted %d bytes, the device gave out %d", n, r.PredictedBytes(), allocated)
			}
		}
		return r.cache.Len()
	}
	first := plan(1, 2)
	if again := plan(3, 4, 5, 3, 1, 2); again != first || len(r.plans.cached) != 3 {
		t.Errorf("got %d kernels for %d shares, want the %d of three", again, len(r.plans.cached), first)
	}
	for n, want := range map[int]bool{testBatch: true, 1: true, 2: true, 3: false, 4: false} {
		if have := r.plans.find(r.plans.key(n)) != nil; have != want {
			t.Errorf("plans for %d samples are there: %t, want %t", n, have, want)
		}
	}
	if _, err := r.Step(context.Background(), testLoader(t, testOptions()), StepOptions{Rate: 0.1}); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := dev.Memory(); left != 0 {
		t.Errorf("%d bytes are left after Close", left)
	}
	if err := cachePlans(r, 1); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("a plan for a closed replica: got %v", err)
	}
}

// cachePlans puts the plans for n samples into the plan cache.
func cachePlans(r *Replica, n int) error {
	p, err := r.plans.acquire(n)
	if p != nil {
		r.plans.release(p)
	}
	return err
}
