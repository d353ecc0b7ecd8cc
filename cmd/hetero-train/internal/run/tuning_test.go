package run

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

func tunerOf(c *config.Config, peers *replica.Peers) *tuner {
	rank := compute.NewRank(c, session.Options{})
	rank.Device = reference.New()
	return &tuner{tr: newTraining(rank), peers: peers, micro: true}
}

// All ranks must reject the same candidates. Each rank knows the limits of all ranks, but does not know whether an
// allocation fails on another rank.
func TestRanksAgreeOnSharesThatDoNotFit(t *testing.T) {
	c := config.Default()
	c.Data.BatchSize, c.Train.GradAccumulation = 32, 0
	c.Balance.FixedShares = []int{30, 2}
	tune := tunerOf(c, &replica.Peers{})
	if got, err := tune.divide([]int{30, 2}); err != nil || !slices.Equal(got, []int{30, 2}) {
		t.Errorf("shares that fit: got %v, %v", got, err)
	}
	_, err := tune.divide([]int{29, 2})
	if !tune.doesNotFit(fmt.Errorf("replica: %w", err)) || !errors.Is(err, divide.ErrInfeasible) {
		t.Errorf("a share that does not fit: got %v, want that all ranks try the next candidate", err)
	}
	for _, err := range []error{device.ErrOutOfMemory, &replica.MemoryError{Err: device.ErrOutOfMemory}} {
		if tune.doesNotFit(err) {
			t.Errorf("%v of one of several ranks ends only this rank's attempt", err)
		}
		if !tunerOf(c, nil).doesNotFit(err) {
			t.Errorf("%v of the only rank ends the run", err)
		}
	}
	c.Balance.FixedShares = nil
	if got, err := tune.divide([]int{30, 4}); err != nil || !slices.Equal(got, []int{28, 4}) {
		t.Errorf("without fixed shares: got %v, %v, want equal shares within the limits", got, err)
	}
}

// The key of a choice must not depend on the memory that other programs use at the start of a run.
func TestTheKeyOfAChoiceDoesNotDependOnAvailableMemory(t *testing.T) {
	keyOf := func(bytes int64) string {
		tune := tunerOf(config.Default(), nil)
		tune.tr.rank.PlanHost(memory.Limit{Bytes: bytes, Source: "memory available on the machine"}, memory.Own{})
		return tune.describe()
	}
	if little, much := keyOf(1<<30), keyOf(3<<30); little != much {
		t.Errorf("got keys %q and %q", little, much)
	}
}

// A run must not use a choice from the cache if its memory, times or possible numbers differ.
func TestTheKeyOfAChoiceHasAllSettingsOfTheTimes(t *testing.T) {
	keyOf := func(change func(c *config.Config)) string {
		c := config.Default()
		change(c)
		return tunerOf(c, nil).describe()
	}
	usual := keyOf(func(*config.Config) {})
	if same := keyOf(func(c *config.Config) {
		c.Experiment.Name, c.Optimizer.LR, c.Train.Steps = "other", 1,
			7
	}); same != usual {
		t.Errorf("got %q, want %q", same, usual)
	}
	for name, change := range map[string]func(c *config.Config){
		"train.recompute": func(c *config.Config) { c.Train.Recompute = "off" },
		"augment.mixup":   func(c *config.Config) { c.Augment.Mixup = 0.2 },
		"ema.decay":       func(c *config.Config) { c.EMA.Decay = 0.9 },
		"norms":           func(c *config.Config) { c.Train.NormsInterval = 5 },
		"device.threads":  func(c *config.Config) { c.Device.Threads = 1 },
	} {
		if keyOf(change) == usual {
			t.Errorf("the key does not contain %s", name)
		}
	}
}
