//go:build cgo && linux

package staged

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/collective/gloo"
	"github.com/hetero-train/hetero-train/engine/collective/local"
	"github.com/hetero-train/hetero-train/engine/collective/shm"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// gpu opens the CUDA device compiled for the host.
func gpu(t *testing.T) device.Device {
	t.Helper()
	dev, err := nativetest.Load(t, "cpu", nativetest.CUDAShim).Open(0, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

// rank is one rank of a mixed group.
type rank struct {
	dev    device.Device
	comm   collective.Communicator
	stream device.Stream
}

const mixedRanks = 3

// Ranks 0 and 2 have their buckets in GPU memory, and rank 1 has its buckets in host memory. Steps overlap. With every
// host communicator, the results must be bit-equal.
func TestGPUAndCPURanksGetTheSameBits(t *testing.T) {
	devs := [mixedRanks]device.Device{gpu(t), reference.New(), gpu(t)}
	want := mixedRun(t, [mixedRanks]device.Device{reference.New(), reference.New(), reference.New()}, overLocal(t))
	for name, open := range map[string]func(*testing.T) []collective.Communicator{
		"local": overLocal, "shm": overSharedMemory, "gloo": overGloo} {
		t.Run(name, func(t *testing.T) {
			got := mixedRun(t, devs, open(t))
			for r := range got {
				if !bytes.Equal(got[r], want[r]) {
					t.Errorf("rank %d: got other bits than ranks that are all on the host", r)
				}
			}
		})
	}
}

func overLocal(t *testing.T) []collective.Communicator {
	comms, err := local.New(mixedRanks, local.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return collectivetest.GroupOf(comms, nil).Comms
}

// joined connects all ranks concurrently.
func joined[C collective.Communicator](t *testing.T,
	connect func(ctx context.Context, r int) (C, error)) []collective.Communicator {
	return collectivetest.GroupOf(collectivetest.Connected(t, mixedRanks, connect), nil).Comms
}

func overSharedMemory(t *testing.T) []collective.Communicator {
	if err := shm.Available(); err != nil {
		needtest.Missing(t, "shm", err)
	}
	address := shm.NewAddress()
	return joined(t, func(ctx context.Context, r int) (*shm.Communicator, error) {
		return shm.Connect(ctx, shm.Config{Rank: r, Size: mixedRanks, Address: address, Timeout: time.Minute})
	})
}

func overGloo(t *testing.T) []collective.Communicator {
	if err := gloo.Available(); err != nil {
		needtest.Missing(t, "gloo", err)
	}
	board := collectivetest.NewBoard()
	return joined(t, func(ctx context.Context, r int) (*gloo.Communicator, error) {
		return gloo.Connect(ctx, gloo.Config{Rank: r, Size: mixedRanks,
			Control: collectivetest.Seat{Board: board, Rank: r}, RankOf: collectivetest.LostRank,
			Name: "mixed", Host: "127.0.0.1", Timeout: time.Minute})
	})
}

// mixedRun runs the same steps of four buckets on every rank. It returns the final memory of each rank.
func mixedRun(t *testing.T, devs [mixedRanks]device.Device, comms []collective.Communicator) [][]byte {
	t.Helper()
	out := make([][]byte, mixedRanks)
	var wg sync.WaitGroup
	for r, dev := range devs {
		wg.Go(func() {
			one := rank{dev: dev, comm: comms[r]}
			needs, err := Needs(dev)
			if err == nil && needs != (dev.Info().Kind == "cuda") {
				t.Errorf("rank %d: Needs on %s: got %v", r, dev.Info().Name, needs)
			}
			if err == nil && needs {
				one.comm, err = New(comms[r], dev)
			}
			if err == nil {
				one.stream, err = dev.NewStream()
			}
			if err == nil {
				out[r], err = one.steps(t.Context(), r)
			}
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			if err := one.comm.Close(); err != nil {
				t.Errorf("rank %d: close: %v", r, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return out
}

// steps sums, gathers and scatters parts of one buffer. Its events are those of a training step.
func (r rank) steps(ctx context.Context, number int) ([]byte, error) {
	const n = 30_000 // number of f32 elements
	memory, err := r.dev.Alloc(4 * n)
	if err != nil {
		return nil, err
	}
	host, err := r.dev.AllocHost(4 * n)
	if err != nil {
		return nil, err
	}
	data := rand.New(rand.NewPCG(7, uint64(number)))
	for i := range n {
		bits := math.Float32bits(float32(data.NormFloat64()))
		copy(host.Host()[4*i:], []byte{byte(bits), byte(bits >> 8), byte(bits >> 16), byte(bits >> 24)})
	}
	if err := errors.Join(r.stream.Copy(device.Whole(memory), device.Whole(host)), r.stream.Sync()); err != nil {
		return nil, err
	}
	part := func(from, to int64) device.Region {
		return device.Region{Buffer: memory, Offset: 4 * from, Bytes: 4 * (to - from)}
	}
	var events [5][2]device.Event
	for i := range events {
		for k := range events[i] {
			if events[i][k], err = r.dev.NewEvent(); err != nil {
				return nil, err
			}
		}
	}
	ops := []collective.Op{
		collective.AllReduce{Name: "bucket 0", Buffer: part(0, 20_000), DType: tensor.F32, After: events[0][0],
			Done: events[0][1]},
		collective.AllReduce{Name: "bucket 1", Buffer: part(20_000, 24_000), DType: tensor.BF16, After: events[1][0],
			Done: events[1][1]},
		collective.AllGather{Name: "parts", Buffer: part(0, 9_000), DType: tensor.F32, Counts: []int64{1_000, 0, 8_000},
			After: events[2][0], Done: events[2][1]},
		collective.Broadcast{Name: "root", Buffer: part(24_000, 30_000), Root: 2, After: events[3][0],
			Done: events[3][1]},
		collective.AllReduce{Name: "largest", Buffer: part(9_000, 12_000), DType: tensor.F32, Reduce: collective.Max,
			After: events[4][0], Done: events[4][1]},
	}
	for range 3 {
		for i, op := range ops {
			if err := errors.Join(events[i][0].Reset(), events[i][1].Reset(), r.comm.Enqueue(op)); err != nil {
				return nil, err
			}
		}
		for i := range ops { // as in training: a bucket becomes ready, and later its sum is used
			if err := r.stream.Record(events[i][0]); err != nil {
				return nil, err
			}
		}
		for i := range ops {
			if err := events[i][1].WaitHost(time.Minute); err != nil {
				return nil, err
			}
		}
	}
	if err := errors.Join(r.comm.Sync(ctx), r.stream.Copy(device.Whole(host), device.Whole(memory)),
		r.stream.Sync()); err != nil {
		return nil, err
	}
	return bytes.Clone(host.Host()), nil
}
