//go:build cgo && linux

package hosts_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/cluster/ranktest"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/gloo"
	"github.com/hetero-train/hetero-train/engine/collective/hosts"
	"github.com/hetero-train/hetero-train/engine/collective/shm"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// roleVariable makes the test binary run as one rank. Its value is the role as JSON.
const roleVariable = "HETERO_HOSTS_TEST_ROLE"

type role struct {
	Rank      int
	Hosts     [][]int
	Addresses [][2]string // addresses of shared memory, indexed by host
	Meeting   string      // address of the rendezvous
}

func TestMain(m *testing.M) {
	ranktest.Main(m, roleVariable, func(r role) {
		rank := -1
		err := r.run()
		var peer *collective.PeerError
		if errors.As(err, &peer) {
			rank = peer.Rank
		}
		fmt.Printf("peer %d: %v\n", rank, err)
	})
}

const size = 4

// connect opens the same communicators as a training run.
func (r role) connect(ctx context.Context, group *rendezvous.Group) (*hosts.Communicator, error) {
	host, place := hosts.HostOf(r.Hosts, r.Rank)
	opts := hosts.Options{Rank: r.Rank, Size: size, Hosts: r.Hosts, RankOf: ranktest.LostRank}
	shared := func(address string) (*shm.Communicator, error) {
		return shm.Connect(ctx, shm.Config{Rank: place, Size: len(r.Hosts[host]), Address: address})
	}
	var err error
	if opts.Within, err = shared(r.Addresses[host][0]); err != nil {
		return nil, err
	}
	if opts.Spread, err = shared(r.Addresses[host][1]); err != nil {
		return nil, err
	}
	if place == 0 {
		opts.Between, err = gloo.Connect(ctx,
			gloo.Config{Rank: host, Size: len(r.Hosts), Control: group, Host: "127.0.0.1", RankOf: func(err error) int {
				host, _ := hosts.HostOf(r.Hosts, ranktest.LostRank(err))
				return host
			}})
		if err != nil {
			return nil, err
		}
	}
	return hosts.New(opts)
}

// run prints the result of compute in one line, then "round". It then reduces 4 MB again and again.
func (r role) run() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	group, err := ranktest.Join(ctx, rendezvous.Options{Rank: r.Rank, WorldSize: size, Address: r.Meeting})
	if err != nil {
		return err
	}
	defer group.Close()
	comm, err := r.connect(ctx, group)
	if err != nil {
		group.Abort(err) // the other ranks wait for this rank
		return err
	}
	defer comm.Close()
	memory, err := reference.New().Alloc(4 << 20)
	if err != nil {
		return err
	}
	if err := r.compute(ctx, comm, memory); err != nil {
		return err
	}
	for round := 0; ; round++ {
		if err := comm.Enqueue(collective.AllReduce{Name: "sum", Buffer: device.Whole(memory),
			DType: tensor.F32}); err != nil {
			return err
		}
		if err := comm.Sync(context.Background()); err != nil {
			return err
		}
		if round == 0 {
			fmt.Println("round")
		}
	}
}

// compute sums thirds and prints the bits of the sum. It then gathers bytes and prints them.
func (r role) compute(ctx context.Context, comm collective.Communicator, memory device.Buffer) error {
	host := memory.Host()
	binary.LittleEndian.PutUint32(host, math.Float32bits(1/(3+float32(r.Rank))))
	if err := comm.Enqueue(collective.AllReduce{Buffer: device.Region{Buffer: memory, Bytes: 4},
		DType: tensor.F32}); err != nil {
		return err
	}
	if err := comm.Sync(ctx); err != nil {
		return err
	}
	fmt.Printf("%08x ", binary.LittleEndian.Uint32(host))
	counts := []int64{1, 2, 0, 3} // rank 0 has byte 0, and rank 1 has bytes 1 and 2
	clear(host)
	own := [size][]int{{0}, {1, 2}, {}, {3, 4, 5}}
	for _, i := range own[r.Rank] {
		host[i] = byte('a' + i)
	}
	if err := comm.Enqueue(collective.AllGather{Buffer: device.Region{Buffer: memory, Bytes: 6}, DType: tensor.U8,
		Counts: counts}); err != nil {
		return err
	}
	if err := comm.Sync(ctx); err != nil {
		return err
	}
	fmt.Printf("%s\n", host[:6])
	clear(host)
	return nil
}

// need skips the test if a native library was not built.
func need(t *testing.T) {
	t.Helper()
	nativetest.Need(t, "cpu", shm.LibraryName)
	nativetest.Need(t, "gloo", gloo.LibraryName)
}

// Two hosts have two ranks each. Ranks use shared memory within a host, and Gloo between hosts. Results must be
// bit-equal on all ranks. If a rank is killed, the other ranks must name it.
func TestProcesses(t *testing.T) {
	need(t)
	for victim := range size {
		t.Run(fmt.Sprintf("rank %d is killed", victim), func(t *testing.T) {
			r := role{Hosts: [][]int{{0, 1}, {2, 3}}}
			for range r.Hosts {
				r.Addresses = append(r.Addresses, [2]string{shm.NewAddress(), shm.NewAddress()})
			}
			ranks := ranktest.Start(t, roleVariable, size, func(rank int, meeting string) any {
				r.Rank, r.Meeting = rank, meeting
				return r
			})
			for rank := range size {
				ranks.Expect(rank, fmt.Sprintf("%08x abcdef",
					math.Float32bits((float32(1)/3+float32(1)/4)+(float32(1)/5+float32(1)/6))))
				ranks.Expect(rank, "round")
			}
			ranks.Signal(victim, syscall.SIGKILL)
			for rank := range size {
				if rank != victim {
					ranks.Expect(rank, fmt.Sprintf("peer %d: ", victim))
				}
			}
		})
	}
}
