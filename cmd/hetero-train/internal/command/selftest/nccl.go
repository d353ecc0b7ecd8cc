package selftest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exchange"
	"github.com/hetero-train/hetero-train/cuda"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest/processes"
	"github.com/hetero-train/hetero-train/engine/collective/shm"
	"github.com/hetero-train/hetero-train/engine/collective/staged"
	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/nccl"
)

// Ranks of NCCL's suite are processes, as those of a training are, and not threads of this one, for four reasons:
//
//   - NCCL refuses two ranks of one host on one GPU, by a hash of the host and the GPU's bus id. Up to 2.30.2 nothing but another NCCL_HOSTID gets by,
//     which it reads once in a process; from 2.30.3 on NCCL_MULTI_RANK_GPU_ENABLE lifts that.
//   - Kernels of two ranks wait for each other. Within one CUDA context they must be on the GPU together, and a call of one rank's that waits for the
//     whole device, as freeing memory does, would wait for the other's for ever. The driver takes turns among processes instead: slower, but it goes on.
//   - With CUDA_DEVICE_MAX_CONNECTIONS hardware queues for all streams of a process, several ranks' could share one.
//   - A rank that is killed is then killed.
//
// NCCL calls several ranks a GPU experimental; it asks for few CTAs of each.

const (
	ownGPUs    = 4 // GPUs from which on no check wants two ranks on one
	sharedCTAs = 4 // of a rank that shares its GPU
)

// rankCommand is the subcommand of a rank's process.
const rankCommand = "nccl-rank"

// ncclMissing is why NCCL cannot be checked here, nil if it can.
func ncclMissing() error {
	if err := cuda.Available(); err != nil {
		return fmt.Errorf("there is no GPU to use: %w", err)
	}
	settings, _, err := nccl.Settle(nil, os.Environ())
	if err != nil {
		return err
	}
	if err := settings.Apply(); err != nil {
		return err
	}
	if err := nccl.Available(); err != nil {
		return err
	}
	return shm.Available() // beside which the ranks use it
}

// ncclSeats is how many GPUs the ranks have, and whether they share them.
func ncclSeats() (gpus int, share bool) {
	gpus, err := cuda.Driver{}.Count()
	if err != nil {
		return 1, true // which the ranks tell
	}
	return gpus, gpus < ownGPUs
}

func aboutNCCL() string {
	gpus, share := ncclSeats()
	how := "each rank has one"
	if share {
		how = "ranks share them"
	}
	return fmt.Sprintf("NCCL %s; ranks are processes; GPUs: %d, %s", exchange.LoadedNCCL(), gpus, how)
}

// checkNCCL runs the suite of communicators.
func checkNCCL(t conformance.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	gpus, share := ncclSeats()
	crew := processes.New(func(rank int) *exec.Cmd {
		return exec.Command(program, rankCommand, "--gpu", strconv.Itoa(rank%gpus), "--share="+strconv.FormatBool(share))
	}, shm.NewAddress)
	t.Cleanup(func() {
		if err := crew.Close(); err != nil {
			t.Error(err)
		}
	})
	// Joining takes tenths of a second, and each turn of processes that share a GPU milliseconds.
	o := collectivetest.Options{Sizes: []int{1, 2, 3}, Rounds: 2, Slower: 4, Apart: true}
	for _, size := range []int{4, 7} {
		if !share && size <= gpus {
			o.Sizes = append(o.Sizes, size)
		}
	}
	collectivetest.RunWith(t, func(t conformance.TB, size int, limit time.Duration) collectivetest.Group {
		t.Helper()
		g := crew.Open(t, size, limit)
		g.Unordered = true
		return g
	}, o)
}

// NewRank is the process of a rank.
func NewRank() *cobra.Command {
	var gpu int
	var share bool
	cmd := &cobra.Command{Use: rankCommand, Hidden: true, Short: "Be a rank of selftest", Args: cli.NoArguments}
	cmd.Flags().IntVar(&gpu, "gpu", 0, "its `number`")
	cmd.Flags().BoolVar(&share, "share", false, "other ranks may be on it")
	cmd.RunE = func(*cobra.Command, []string) error {
		open := func() (device.Device, error) { return cuda.Driver{}.Open(gpu, device.Options{}) }
		requests, replies := os.NewFile(3, "requests"), os.NewFile(4, "replies")
		return processes.Serve(requests, replies, open, func(ctx context.Context, dev device.Device, g processes.Group) (collective.Communicator, error) {
			return joinNCCL(ctx, dev, g, share)
		})
	}
	return cmd
}

// joinNCCL joins the ranks of a group as training does those of one machine.
func joinNCCL(ctx context.Context, dev device.Device, g processes.Group, share bool) (collective.Communicator, error) {
	inner, err := exchange.InMemory(ctx, g.Rank, g.Size, g.Address, g.Limit)
	if err != nil {
		return nil, err
	}
	control, err := staged.New(inner, dev)
	if err != nil {
		return nil, err
	}
	c := nccl.Config{Control: control, Device: dev, Timeout: g.Limit, ShareGPU: share, Host: rendezvous.HostID()}
	if share {
		c.MaxCTAs = sharedCTAs
	}
	comm, err := nccl.Connect(ctx, c)
	if err != nil { // and no communicator that is a nil pointer
		return nil, err
	}
	return comm, nil
}
