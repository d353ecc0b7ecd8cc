//go:build cgo && linux

package nccl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/staged"
	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// faults is the environment variable that selects a fault of the fake NCCL (nccl/shim/fake.cc).
const faults = "HETERO_FAKE_NCCL"

// patience is a time limit that no test reaches, even on a busy machine.
const patience = time.Minute

func TestRanksThatCannotJoinAreTold(t *testing.T) {
	lib := shim(t)
	for _, c := range []struct {
		name   string
		change func(r *ranks)
		want   []string
	}{
		{"another version of NCCL", func(r *ranks) {
			r.config[1].pretend = func(h *hello) { h.Version, h.Path = 22703, "/other/libnccl.so.2" }
		}, []string{"rank 0 has NCCL 2.28.9", "rank 1 has NCCL 2.27.3 (/other/libnccl.so.2)"}},
		{"no NCCL on a rank", func(r *ranks) { r.config[1].library = "libhetero_none.so" },
			[]string{"rank 1: no libhetero_none.so"}},
		{"two ranks on one GPU", func(r *ranks) { r.config[1].Device = r.devs[0] },
			[]string{"ranks 0 and 1 use the same GPU (0000:01:00.0 of here)", "device.share_gpu"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := prepare(conformance.Go(t), lib, 2, 0)
			c.change(r)
			_, errs := r.connect(patience)
			for rank, err := range errs {
				if !errors.Is(err, ErrUnusable) {
					t.Errorf("rank %d: got %v, want %v", rank, err, ErrUnusable)
					continue
				}
				for _, want := range c.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("rank %d: got %v, want %q in it", rank, err, want)
					}
				}
			}
		})
	}
}

// From the version MultiRankGPU on, NCCL itself permits shared GPUs. In earlier versions, ranks of one process cannot
// share a GPU, because NCCL treats a process as one host. A test in cmd/hetero-train/program shares a GPU between
// processes.
func TestSharedGPUIsAllowedWhereAsked(t *testing.T) {
	for version, want := range map[Version]error{MultiRankGPU: nil, 22809: errors.New("Duplicate GPU")} {
		t.Run(version.String(), func(t *testing.T) {
			lib := shim(t)
			if !apart(t, fmt.Sprintf("version=%d", version)) {
				return
			}
			r := prepare(conformance.Go(t), lib, 2, 0)
			for rank := range r.config {
				r.config[rank].Device, r.config[rank].ShareGPU = r.devs[0], true
			}
			comms := r.joined(conformance.Go(t))
			for rank, err := range sums(t, r, comms, 3) {
				if (err == nil) != (want == nil) || want != nil &&
					!strings.Contains(errors.Join(err, comms[1-rank].Err()).Error(), want.Error()) {
					t.Errorf("rank %d: got %v, want %v", rank, err, want)
				}
			}
			for _, c := range comms {
				if err := c.Close(); err != nil && want == nil {
					t.Error(err)
				}
			}
		})
	}
}

// apart runs the calling test again with a fault of the fake NCCL. It starts another process, because a process opens
// NCCL only once. In that process, it returns true.
func apart(t *testing.T, fault string) bool {
	t.Helper()
	if os.Getenv(faults) != "" {
		return os.Getenv(faults) == fault
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v")
	cmd.Env = append(os.Environ(), faults+"="+fault)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

func TestJoiningEnds(t *testing.T) {
	lib := shim(t)
	for _, c := range []struct {
		name, fault string
		limit       time.Duration // below patience; a busy machine may need a longer one
		want        string        // text of the error of some rank
	}{
		{"a rank that never arrives", "absent:1", 300 * time.Millisecond, "not all ranks joined within"},
		{"a rank whose NCCL refuses", "refuse:1", patience, "ncclCommInitRankConfig: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(faults, c.fault)
			for limit := c.limit; ; limit *= 10 {
				r := prepare(conformance.Go(t), lib, 3, 0)
				_, errs := r.connect(limit)
				said := false
				for rank, err := range errs {
					if err == nil {
						t.Errorf("rank %d: no error", rank)
						continue
					}
					said = said || strings.Contains(err.Error(), c.want)
				}
				if said {
					break
				}
				if limit >= patience/2 { // with a shorter limit, the time-out may have come while the ranks joined
					t.Errorf("got %v, want %q in one of them", errs, c.want)
					break
				}
			}
		})
	}
}

// sums enqueues n all-reduces on every rank. It returns the error of each rank's Sync.
func sums(t *testing.T, r *ranks, comms []*Communicator, n int) []error {
	t.Helper()
	errs := make([]error, len(comms))
	var wg sync.WaitGroup
	for rank, c := range comms {
		b, err := r.devs[rank].Alloc(4 * 1000)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			for i := range n {
				if err := c.Enqueue(collective.AllReduce{Name: fmt.Sprintf("bucket %d", i), Buffer: device.Whole(b),
					DType: tensor.F32}); err != nil {
					break // Sync returns the reason
				}
			}
			errs[rank] = c.Sync(ctx)
		})
	}
	wg.Wait()
	return errs
}

// If NCCL does not complete an operation, all ranks must return an error within the time limit.
func TestOperationsEnd(t *testing.T) {
	lib := shim(t)
	const short = 2 * time.Second // a busy machine needs a longer limit
	for _, c := range []struct {
		name, fault string
		limit       time.Duration
		meanwhile   func(r *ranks, comms []*Communicator)
		check       func(errs []error) error
	}{
		{"an operation that hangs", "hang:1@2", short, nil, func(errs []error) error {
			var late *collective.TimeoutError
			for _, err := range errs {
				if errors.As(err, &late) && late.Number == 2 && late.Limit >= short &&
					strings.Contains(late.Op, "bucket 1") {
					return nil
				}
			}
			return errors.New("want a TimeoutError of operation 2")
		}},
		{"a rank that dies while the others are in an operation", "hang:1@2", 0, func(r *ranks, _ []*Communicator) {
			r.inner[1].Die()
		}, func(errs []error) error {
			for _, rank := range []int{0, 2} {
				var peer *collective.PeerError
				if !errors.As(errs[rank], &peer) || peer.Rank != 1 || !errors.Is(errs[rank], collective.ErrDied) {
					return fmt.Errorf("rank %d: want that rank 1 died", rank)
				}
			}
			return nil
		}},
		{"an abort while an operation runs", "hang:1@2", 0, func(_ *ranks, comms []*Communicator) {
			comms[2].Abort(errors.New("a whim"))
		}, func(errs []error) error {
			var peer *collective.PeerError
			if !errors.As(errs[0], &peer) || peer.Rank != 2 || !strings.Contains(errs[0].Error(), "a whim") ||
				!errors.Is(errs[2], collective.ErrAborted) {
				return errors.New("want that rank 2 aborted of a whim")
			}
			return nil
		}},
		{"only NCCL finds that another rank is gone", "lost:0@1,hang:1@1", 0, nil, func(errs []error) error {
			if !strings.Contains(errs[0].Error(), "remote process exited or there was a network error") {
				return errors.New("want NCCL's own words on rank 0")
			}
			return nil
		}},
		{"a call that NCCL refuses", "reject:2@1", short, nil, func(errs []error) error {
			if !strings.Contains(errs[2].Error(), "ncclAllReduce: invalid usage: it was asked to fail") {
				return errors.New("want NCCL's own words on rank 2")
			}
			return nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(faults, c.fault)
			for _, times := range []time.Duration{1, 10} {
				r := prepare(conformance.Go(t), lib, 3, times*c.limit)
				comms := r.joined(conformance.Go(t))
				if c.meanwhile != nil {
					go func() {
						for comms[0].Position().Entered < 2 { // rank 0 hangs in the second operation
							time.Sleep(time.Millisecond)
						}
						c.meanwhile(r, comms)
					}()
				}
				errs := sums(t, r, comms, 2)
				for rank, err := range errs {
					if err == nil {
						t.Errorf("rank %d: no error", rank)
					}
				}
				for rank, c := range comms {
					if err := c.Close(); err != nil {
						t.Errorf("rank %d: close: %v", rank, err)
					}
				}
				err := c.check(errs)
				if err == nil {
					break
				}
				if times == 10 || c.limit == 0 { // with a shorter limit, an earlier operation may have timed out
					t.Errorf("got %v: %v", errs, err)
					break
				}
			}
		})
	}
}

// If NCCL performs an operation as the contract requires, the host communicator must not perform it.
func TestGPUMemoryGoesThroughNCCL(t *testing.T) {
	t.Setenv(faults, "reject:0@3") // fails the third operation that NCCL performs
	r := prepare(conformance.Go(t), shim(t), 1, 0)
	c := r.joined(conformance.Go(t))[0]
	b, err := r.devs[0].Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	host, err := r.devs[0].AllocHost(64)
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range []collective.Op{
		collective.AllReduce{Buffer: device.Whole(b), DType: tensor.F32}, // NCCL's operation 1
		collective.AllReduce{Buffer: device.Whole(host), DType: tensor.F32},
		// NCCL's Max loses NaN, so NCCL does not perform this one.
		collective.AllReduce{Buffer: device.Whole(b), DType: tensor.F32, Reduce: collective.Max},
		collective.Barrier{},
		collective.AllReduce{Buffer: device.Whole(b), DType: tensor.I64, Reduce: collective.Max}, // NCCL's operation 2
	} {
		if err := errors.Join(c.Enqueue(op), c.Sync(t.Context())); err != nil {
			t.Fatalf("%s: %v", collective.Signature(op), err)
		}
	}
	if err := errors.Join(c.Enqueue(collective.Broadcast{Buffer: device.Whole(b)}), c.Sync(t.Context())); err == nil {
		t.Error("the third operation on GPU memory did not reach NCCL")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// The test uses another process, because a process opens NCCL only once.
func TestOldNCCLIsRefused(t *testing.T) {
	lib := shim(t)
	if !apart(t, "version=21703") {
		return
	}
	r := prepare(conformance.Go(t), lib, 1, 0)
	_, errs := r.connect(patience)
	if !errors.Is(errs[0], ErrUnusable) || !strings.Contains(errs[0].Error(), "is NCCL 2.17.3, want 2.18.0 or later") {
		t.Errorf("got %v", errs[0])
	}
}

func TestDeviceThatIsNoGPUIsRefused(t *testing.T) {
	r := prepare(conformance.Go(t), shim(t), 1, 0)
	r.config[0].Device = struct{ device.Device }{r.devs[0]}
	if _, errs := r.connect(patience); !errors.Is(errs[0], ErrUnusable) {
		t.Errorf("got %v, want %v", errs[0], ErrUnusable)
	}
}

var _ collective.Communicator = (*staged.Communicator)(nil)

// If ncclCommAbort does not return, as on a lost GPU, all ranks must continue. The error must name the resources that
// remain in use.
func TestGivingUpEnds(t *testing.T) {
	t.Setenv(faults, "hang:1@1,stuck:1")
	for _, limit := range []string{"1500", "30000"} { // ms
		t.Setenv("HETERO_SHIM_GIVE_UP_MS", limit)
		r := prepare(conformance.Go(t), shim(t), 2, 400*time.Millisecond)
		comms := r.joined(conformance.Go(t))
		for rank, err := range sums(t, r, comms, 1) {
			if err == nil {
				t.Errorf("rank %d: no error", rank)
			}
		}
		says := "ncclCommAbort has not returned within " + limit + " ms"
		if err := comms[1].Close(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("rank 1: close: got %v, want %q", err, says)
		}
		err := comms[0].Close()
		if err == nil {
			break
		}
		if limit == "30000" || !strings.Contains(err.Error(), says) { // else the machine may be busy
			t.Errorf("rank 0: close: got %v, want no error", err)
			break
		}
	}
}

func TestOddTimeoutsAreRefused(t *testing.T) {
	r := prepare(conformance.Go(t), shim(t), 1, 0)
	r.config[0].Timeout = -time.Second
	if _, errs := r.connect(patience); errs[0] == nil || !strings.Contains(errs[0].Error(), "got a time-out of -1s") {
		t.Errorf("got %v, want what is wrong", errs[0])
	}
}
