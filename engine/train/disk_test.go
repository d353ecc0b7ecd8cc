package train

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/local"
)

// frozenDisk is a disk. Between freeze and thaw, its operations do not return.
type frozenDisk struct {
	mu    sync.Mutex
	gate  chan struct{} // nil: operations return
	full  atomic.Bool
	waits func(what string) // called for each wait while the disk is frozen or full
	ended atomic.Int32      // number of these waits that have ended
}

func (d *frozenDisk) frozen() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gate != nil
}

func (d *frozenDisk) freeze() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gate = make(chan struct{})
}

func (d *frozenDisk) thaw() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gate != nil {
		close(d.gate)
		d.gate = nil
	}
}

// watch blocks an operation of a Store while the disk is frozen.
func (d *frozenDisk) watch(string) (end func()) {
	d.mu.Lock()
	gate := d.gate
	d.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return func() {}
}

func (d *frozenDisk) Full() bool { return d.full.Load() }

func (d *frozenDisk) Written() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

func (d *frozenDisk) Waits(what string) (end func()) {
	if !d.frozen() && !d.full.Load() { // the disk is not frozen, only slower than two steps
		return func() {}
	}
	d.waits(what)
	return func() { d.ended.Add(1) }
}

// store opens a Store on the disk.
func (d *frozenDisk) store(t *testing.T, dir string) *checkpoint.Store {
	t.Helper()
	store, err := checkpoint.Open(dir, checkpoint.Options{Keep: 2, Watch: d.watch})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// freezeAfterStep1 makes d the disk of a rank. The disk freezes after the first step.
func (d *frozenDisk) freezeAfterStep1(t *testing.T, o *Options, rec *recorder) {
	t.Helper()
	o.Store, o.Disk = d.store(t, o.Store.Dir()), d
	rec.after = func(step int64) {
		if step == 1 {
			d.freeze()
		}
	}
}

// While the checkpoint of step 2 cannot be written, training must continue. All ranks must wait when the next save is
// due, without reporting a time-out. The wait must not change any bit, and must not count as training time.
func TestTrainingWaitsForADiskOnlyWhenASaveIsDue(t *testing.T) {
	for name, size := range map[string]int{"one rank": 1, "two ranks": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const hangs, limit = time.Minute, 10 * time.Second
				whole := undisturbed(t, size, limit)
				var disk frozenDisk
				waitedAt := -1
				ranks := disturbed(t, size, limit, func(rank int, _ context.CancelFunc, o *Options, rec *recorder) {
					if rank > 0 {
						return
					}
					disk.freezeAfterStep1(t, o, rec)
					disk.waits = func(what string) {
						waitedAt = len(rec.losses)
						if what != earlierCheckpoint {
							t.Errorf("training waits for %q", what)
						}
						time.AfterFunc(hangs, disk.thaw)
					}
				})
				for rank, s := range ranks {
					if s.err != nil || !slices.Equal(s.losses, whole[rank].losses) {
						t.Errorf("rank %d: %v, losses %v, want %v", rank, s.err, s.losses, whole[rank].losses)
					}
					for _, step := range s.steps {
						if step.Took >= hangs || step.Ranks[rank].Other >= hangs {
							t.Errorf("rank %d: step %d took %v, with %v between steps, which contains the wait", rank,
								step.Step, step.Took, step.Ranks[rank].Other)
						}
					}
				}
				if waitedAt != 4 || disk.ended.Load() != 1 {
					t.Errorf("training waited after step %d, %d times, want after step 4, once", waitedAt,
						disk.ended.Load())
				}
			})
		})
	}
}

// If the memory for records is full, all ranks must wait immediately.
func TestTrainingWaitsForRoomForRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hangs, limit = time.Minute, 10 * time.Second
		whole := undisturbed(t, 2, limit)
		var disk frozenDisk
		waitedAt := -1
		ranks := disturbed(t, 2, limit, func(rank int, _ context.CancelFunc, o *Options, rec *recorder) {
			if rank > 0 {
				return
			}
			o.Disk = &disk
			rec.after = func(step int64) {
				if step == 3 {
					disk.full.Store(true)
				}
			}
			disk.waits = func(string) {
				waitedAt = len(rec.losses)
				time.AfterFunc(hangs, func() { disk.full.Store(false) })
			}
		})
		for rank, s := range ranks {
			if s.err != nil || !slices.Equal(s.losses, whole[rank].losses) {
				t.Errorf("rank %d: %v, losses %v, want %v", rank, s.err, s.losses, whole[rank].losses)
			}
		}
		if waitedAt < 3 || waitedAt > 4 { // the ranks learn this from the reports of the next step
			t.Errorf("training waited after step %d, want after step 3 or 4", waitedAt)
		}
	})
}

// A signal must end the wait for an earlier checkpoint. The final save must then wait for the disk.
func TestASignalEndsTheWaitForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disk frozenDisk
		ranks := disturbed(t, 2, 10*time.Second, func(rank int, stop context.CancelFunc, o *Options, rec *recorder) {
			if rank > 0 {
				return
			}
			disk.freezeAfterStep1(t, o, rec)
			disk.waits = func(string) {
				stop()
				time.AfterFunc(time.Second, disk.thaw)
			}
		})
		for rank, s := range ranks {
			if s.err != nil || !s.result.Interrupted || s.result.Steps != 4 {
				t.Errorf("rank %d: %v, interrupted %v after step %d, want after step 4", rank, s.err,
					s.result.Interrupted, s.result.Steps)
			}
		}
	})
}

func undisturbed(t *testing.T, size int, limit time.Duration) []session {
	t.Helper()
	return disturbed(t, size, limit, func(int, context.CancelFunc, *Options, *recorder) {})
}

// disturbed trains ranks that save every second step. limit is the time limit of their operations.
func disturbed(t *testing.T, size int, limit time.Duration,
	change func(int, context.CancelFunc, *Options, *recorder)) []session {
	t.Helper()
	set := func(rank int, stop context.CancelFunc, o *Options, rec *recorder) {
		o.SaveSteps, o.Beside = 2, true
		change(rank, stop, o, rec)
	}
	if size == 1 {
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		rec := &recorder{}
		return []session{start(ctx, t, openReference(t), t.TempDir(), testOptions(), rec, func(o *Options) {
			set(0, stop, o, rec)
		})}
	}
	group, err := local.New(size, local.Options{Timeout: limit})
	if err != nil {
		t.Fatal(err)
	}
	c := crew{open: openReference, options: testOptions(), shares: []int{2, 4}, sync: true, dir: t.TempDir(),
		change: set,
		listen: func(rank int, unused collective.Communicator) collective.Communicator {
			unused.Close()
			return group[rank]
		}}
	return c.start(t)
}
