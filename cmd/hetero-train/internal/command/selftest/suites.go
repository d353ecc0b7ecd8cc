package selftest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/collective/gloo"
	goroutines "github.com/hetero-train/hetero-train/engine/collective/local"
	"github.com/hetero-train/hetero-train/engine/collective/shm"
	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
)

// proofs returns all suites of the program, those of devices first.
func proofs() []proof {
	var all []proof
	for _, d := range devices.Drivers {
		all = append(all, proof{name: d.Kind(), missing: func() error { return unopenable(d.Driver) },
			about: func() string { return aboutDevice(d.Driver, d.Library) }, check: func(t conformance.T) {
				devicetest.Run(t, func(t conformance.TB, opts device.Options) device.Device {
					t.Helper()
					dev, err := d.Open(0, opts)
					if err != nil {
						t.Fatal(err)
					}
					return dev
				}, d.Promises)
			}})
	}
	for _, c := range []struct {
		name    string
		missing func() error
		about   func() string
		open    collectivetest.Opener
	}{
		{"local", func() error { return nil }, nil, openLocal},
		{"shm", shm.Available, nil, openShared},
		{"gloo", gloo.Available, func() string { return "Gloo " + gloo.Version() }, openGloo},
	} {
		all = append(all, proof{name: c.name, communication: true, missing: c.missing, about: c.about,
			check: func(t conformance.T) { collectivetest.Run(t, c.open) }})
	}
	return append(all, proof{name: "nccl", communication: true, missing: ncclMissing, about: aboutNCCL,
		check: checkNCCL})
}

// unopenable returns the reason why the devices of a kind cannot be opened on this machine, or nil.
func unopenable(d device.Driver) error {
	dev, err := d.Open(0, device.Options{})
	if err != nil {
		return err
	}
	return dev.Close()
}

// aboutDevice describes the hardware of a device, and its library if there is one.
func aboutDevice(d device.Driver, library func() (path, build string, err error)) string {
	dev, err := d.Open(0, device.Options{})
	if err != nil {
		return err.Error()
	}
	defer dev.Close()
	words := []string{dev.Info().Model}
	if isa := dev.Info().ISA; isa != "" {
		words = append(words, isa)
	}
	if library != nil {
		if path, build, err := library(); err == nil {
			words = append(words, fmt.Sprintf("%s (%s)", build, path))
		}
	}
	return strings.Join(words, ", ")
}

// openLocal opens a group of ranks that are goroutines of this process.
func openLocal(t conformance.TB, size int, limit time.Duration) collectivetest.Group {
	t.Helper()
	comms, err := goroutines.New(size, goroutines.Options{Timeout: limit})
	if err != nil {
		t.Fatal(err)
	}
	return collectivetest.GroupOf(comms, func(rank int) { comms[rank].Die() })
}

// openShared opens a group of ranks that share memory, as ranks of one machine do.
func openShared(t conformance.TB, size int, limit time.Duration) collectivetest.Group {
	t.Helper()
	address := shm.NewAddress()
	comms := collectivetest.Connected(t, size, func(ctx context.Context, rank int) (*shm.Communicator, error) {
		return shm.Connect(ctx, shm.Config{Rank: rank, Size: size, Address: address, Timeout: limit})
	})
	return collectivetest.GroupOf(comms, func(rank int) { comms[rank].Die() })
}

// openGloo opens a group of ranks that connect over the loopback network. Ranks on several machines connect in the same
// way over a real network.
func openGloo(t conformance.TB, size int, limit time.Duration) collectivetest.Group {
	t.Helper()
	board := collectivetest.NewBoard()
	comms := collectivetest.Connected(t, size, func(ctx context.Context, rank int) (*gloo.Communicator, error) {
		return gloo.Connect(ctx, gloo.Config{Rank: rank, Size: size,
			Control: collectivetest.Seat{Board: board, Rank: rank}, RankOf: collectivetest.LostRank,
			Name: "selftest", Host: "127.0.0.1", Timeout: limit})
	})
	return collectivetest.GroupOf(comms, func(rank int) {
		comms[rank].Die()
		board.Lose(rank, collective.ErrDied) // rank discovery also does this when it loses a rank
	})
}
