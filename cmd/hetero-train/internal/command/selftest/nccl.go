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

// Each rank of NCCL's suite is a process, as in training, and not a thread of this process:
//
//   - NCCL refuses two ranks of one host on one GPU, by a hash of the host and the GPU's bus id. Up to 2.30.2 only
//     another NCCL_HOSTID avoids this, and a process reads NCCL_HOSTID once. From 2.30.3 on
//     NCCL_MULTI_RANK_GPU_ENABLE allows it.
//   - Kernels of two ranks wait for each other. Within one CUDA context they must be on the GPU at the same time. A
//     call of one rank that waits for the whole device, for example to free memory, would then wait for the kernels of
//     the other rank for ever. Between processes the driver switches instead, which is slower but does not block.
//   - All streams of a process share CUDA_DEVICE_MAX_CONNECTIONS hardware queues, so several ranks could share one.
//   - A test can kill one rank.
//
// NCCL calls several ranks per GPU experimental; each such rank gets few CTAs.

const (
	ownGPUs    = 4 // with this number of GPUs, no check puts two ranks on one GPU
	sharedCTAs = 4 // CTAs of a rank that shares its GPU
)

// rankCommand is the subcommand of a rank's process.
const rankCommand = "nccl-rank"

// ncclMissing returns why NCCL cannot be checked, nil if it can.
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
	return shm.Available() // the ranks use shared memory in addition to NCCL
}

// ncclSeats returns the number of GPUs, and whether the ranks share them.
func ncclSeats() (gpus int, shareGPU bool) {
	gpus, err := cuda.Driver{}.Count()
	if err != nil {
		return 1, true // the ranks report an error themselves
	}
	return gpus, gpus < ownGPUs
}

func aboutNCCL() string {
	gpus, shareGPU := ncclSeats()
	how := "one per rank"
	if shareGPU {
		how = "shared by the ranks"
	}
	return fmt.Sprintf("NCCL %s; ranks are processes; GPUs: %d, %s", exchange.LoadedNCCL(), gpus, how)
}

// checkNCCL runs the suite of communicators on NCCL.
func checkNCCL(t conformance.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	gpus, shareGPU := ncclSeats()
	crew := processes.New(func(rank int) *exec.Cmd {
		return exec.Command(program, rankCommand, "--gpu", strconv.Itoa(rank%gpus), "--share="+strconv.FormatBool(shareGPU))
	}, shm.NewAddress)
	t.Cleanup(func() {
		if err := crew.Close(); err != nil {
			t.Error(err)
		}
	})
	// Joining takes tenths of a second, and each switch between processes on a shared GPU takes milliseconds.
	o := collectivetest.Options{Sizes: []int{1, 2, 3}, Rounds: 2, Slower: 4, Apart: true}
	for _, size := range []int{4, 7} {
		if !shareGPU && size <= gpus {
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

// NewRank returns the command of a rank's process.
func NewRank() *cobra.Command {
	var gpu int
	var shareGPU bool
	cmd := &cobra.Command{Use: rankCommand, Hidden: true, Short: "Be a rank of selftest", Args: cli.NoArguments}
	cmd.Flags().IntVar(&gpu, "gpu", 0, "its `number`")
	cmd.Flags().BoolVar(&shareGPU, "share", false, "other ranks may be on it")
	cmd.RunE = func(*cobra.Command, []string) error {
		open := func() (device.Device, error) { return cuda.Driver{}.Open(gpu, device.Options{}) }
		requests, replies := os.NewFile(3, "requests"), os.NewFile(4, "replies")
		return processes.Serve(requests, replies, open, func(ctx context.Context, dev device.Device, g processes.Group) (collective.Communicator, error) {
			return joinNCCL(ctx, dev, g, shareGPU)
		})
	}
	return cmd
}

// joinNCCL joins the ranks of a group, as training joins the ranks of one machine.
func joinNCCL(ctx context.Context, dev device.Device, g processes.Group, shareGPU bool) (collective.Communicator, error) {
	inner, err := exchange.InMemory(ctx, g.Rank, g.Size, g.Address, g.Limit)
	if err != nil {
		return nil, err
	}
	control, err := staged.New(inner, dev)
	if err != nil {
		return nil, err
	}
	c := nccl.Config{Control: control, Device: dev, Timeout: g.Limit, ShareGPU: shareGPU, Host: rendezvous.HostID()}
	if shareGPU {
		c.MaxCTAs = sharedCTAs
	}
	comm, err := nccl.Connect(ctx, c)
	if err != nil { // return a nil interface, not a nil pointer in an interface
		return nil, err
	}
	return comm, nil
}
