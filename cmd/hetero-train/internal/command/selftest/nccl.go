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

// In the conformance suite of NCCL, as in training, each rank is a process and not a thread of this process, for these
// reasons:
//
//   - NCCL refuses two ranks of one host on one GPU. It compares a hash of the host and the bus id of the GPU. Up to
//     NCCL 2.30.2, ranks can avoid this only with different values of NCCL_HOSTID, which a process reads once. From
//     2.30.3 on, NCCL_MULTI_RANK_GPU_ENABLE allows several ranks on one GPU.
//   - Kernels of two ranks wait for each other, so within one CUDA context they must be on the GPU at the same time. A
//     rank may have to wait for the whole device, for example to free memory. Within one context, this wait would
//     include the kernels of the other rank and would never end. Between processes, the driver switches from one
//     context to the other, which is slower but does not block.
//   - All streams of a process share CUDA_DEVICE_MAX_CONNECTIONS hardware queues. Ranks in one process could therefore
//     have to share a queue.
//   - A test can kill one rank.
//
// The documentation of NCCL calls several ranks per GPU experimental. NCCL gives each such rank few thread blocks
// (CTAs).

const (
	ownGPUs    = 4 // number of GPUs from which no check puts two ranks on one GPU
	sharedCTAs = 4 // number of thread blocks (CTAs) of a rank that shares its GPU
)

// rankCommand is the name of the subcommand that runs one rank.
const rankCommand = "nccl-rank"

// ncclMissing returns the reason why NCCL cannot be checked, or nil.
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
	return shm.Available() // the ranks of the suite also use shared memory
}

// ncclSeats returns the number of GPUs, and whether several ranks share a GPU.
func ncclSeats() (gpus int, shareGPU bool) {
	gpus, err := cuda.Driver{}.Count()
	if err != nil {
		return 1, true // each rank reports the error later
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

// checkNCCL runs the conformance suite of communicators on NCCL.
func checkNCCL(t conformance.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	gpus, shareGPU := ncclSeats()
	crew := processes.New(func(rank int) *exec.Cmd {
		return exec.Command(program, rankCommand, "--gpu", strconv.Itoa(rank%gpus),
			"--share="+strconv.FormatBool(shareGPU))
	}, shm.NewAddress)
	t.Cleanup(func() {
		if err := crew.Close(); err != nil {
			t.Error(err)
		}
	})
	// Use few sizes and rounds: to open a communicator takes tenths of a second. On a shared GPU, each switch between
	// processes takes milliseconds.
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

// NewRank returns the command that runs one rank of the conformance suite.
func NewRank() *cobra.Command {
	var gpu int
	var shareGPU bool
	cmd := &cobra.Command{Use: rankCommand, Hidden: true, Short: "Be a rank of selftest", Args: cli.NoArguments}
	cmd.Flags().IntVar(&gpu, "gpu", 0, "its `number`")
	cmd.Flags().BoolVar(&shareGPU, "share", false, "other ranks may be on it")
	cmd.RunE = func(*cobra.Command, []string) error {
		open := func() (device.Device, error) { return cuda.Driver{}.Open(gpu, device.Options{}) }
		requests, replies := os.NewFile(3, "requests"), os.NewFile(4, "replies")
		return processes.Serve(requests, replies, open,
			func(ctx context.Context, dev device.Device, g processes.Group) (collective.Communicator, error) {
				return joinNCCL(ctx, dev, g, shareGPU)
			})
	}
	return cmd
}

// joinNCCL opens a communicator for the ranks of a group, as training does for the ranks of one machine.
func joinNCCL(ctx context.Context, dev device.Device, g processes.Group, shareGPU bool) (collective.Communicator,
	error) {
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
	if err != nil { // return no typed nil pointer in the interface
		return nil, err
	}
	return comm, nil
}
