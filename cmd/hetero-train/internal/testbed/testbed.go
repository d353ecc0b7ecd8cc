package testbed

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/lab"
	"github.com/hetero-train/hetero-train/engine/weather"
)

// Testbed is the testbed of a rank during a run.
type Testbed struct {
	applier *lab.Applier
	Notes   []string // sentences that a reader needs to interpret the numbers of the run

	// The following fields are set only on rank 0, which logs the conditions of all ranks.
	log     *slog.Logger
	weather *weather.Weather
	ranks   []word
	now     []weather.Conditions
}

// word is the message that a rank sends about its conditions.
type word struct {
	CPUs     float64   `json:"cpus"`
	Slowdown float64   `json:"slowdown"`
	Means    lab.Means `json:"means"`
}

// Open determines how this rank can apply the scenario. All ranks exchange the result, so that rank 0 can log which
// conditions are real and which are simulated.
func Open(ctx context.Context, k *compute.Rank) (l Testbed, err error) {
	setup := &k.Process.Opts.Lab
	word := word{CPUs: setup.Setup.CPUs, Slowdown: setup.Setup.Slowdown}
	if setup.Weather != nil {
		program, err := os.Executable()
		if err != nil {
			return l, err
		}
		l.applier = lab.Open(lab.Options{Setup: setup.Setup, Weather: setup.Weather,
			Rank: k.Process.Opts.Assignment.Rank, Device: k.Device,
			Neighbour: []string{program, NeighbourCommand}, Warn: func(err error) {
				k.Process.Opts.LogOf(logs.ComponentLab).Warn(err.Error())
			}})
		k.Process.Later(l.applier.Close)
		word.Means = l.applier.Means()
		for _, missing := range l.applier.Missing() {
			k.Process.Opts.LogOf(logs.ComponentLab).Warn(missing.Error())
		}
	}
	words, err := process.GatherAll(ctx, k.Team, "lab", "lab: rank", word)
	if err != nil {
		return l, err
	}
	if k.Team.Leads() {
		l.logConditions(setup, words, k.Process.Opts.LogOf(logs.ComponentLab))
	}
	return l, nil
}

// logConditions logs, on rank 0, which conditions are real and which are simulated. It stores the text in Notes.
func (l *Testbed) logConditions(setup *session.TestbedSetup, words []word, log *slog.Logger) {
	quotas, slowdowns := make([]string, len(words)), make([]string, len(words))
	limited, slowed := false, false
	for rank, w := range words {
		quotas[rank], slowdowns[rank] = "-", "x1"
		if w.CPUs > 0 && w.Slowdown == 1 {
			quotas[rank], limited = fmt.Sprintf("%.3g", w.CPUs), true
		}
		if w.Slowdown > 1 {
			slowdowns[rank], slowed = fmt.Sprintf("x%.3g", w.Slowdown), true
		}
	}
	if limited {
		l.Notes = append(l.Notes, "CPU quotas of the ranks (real): "+strings.Join(quotas, "/")+" CPUs")
	}
	if slowed {
		l.Notes = append(l.Notes, "SIMULATED slowdown of the ranks' devices: "+strings.Join(slowdowns, "/"))
	}
	if setup.Weather == nil {
		return
	}
	l.log, l.weather, l.ranks, l.now = log, setup.Weather, words, make([]weather.Conditions, len(words))
	kinds := make([]string, len(words))
	for rank, w := range words {
		l.now[rank], kinds[rank] = weather.Fair, string(w.Means.Speed.Kind)
		log.Info("weather", "file", setup.Name, "rank", rank, "speed", w.Means.Speed.String(), "neighbours",
			w.Means.Neighbour.String(), "links", w.Means.Link.String())
	}
	l.Notes = append(l.Notes, fmt.Sprintf("scenario %s changes the speed of the ranks during training; speeds: %s",
		setup.Name, strings.Join(kinds, "/")))
	if highest := setup.Weather.HighestRank(); highest >= len(words) {
		log.Warn("the scenario has lines for ranks that do not exist in this run; these lines have no effect", "file",
			setup.Name, "highest_rank", highest, "ranks", len(words))
	}
}

// Before applies the conditions of a step to this rank. Rank 0 logs the changes of the conditions of all ranks.
func (l *Testbed) Before(step int64) {
	l.applier.Before(step)
	for rank := range l.now {
		c := l.weather.At(step, rank)
		if !c.Alike(l.now[rank]) {
			l.log.Info("weather", "step", step, "rank", rank, "now", l.ranks[rank].Means.Describe(c))
		}
		l.now[rank] = c
	}
}

// NeighbourCommand is the name of the subcommand that simulates a noisy neighbour.
const NeighbourCommand = "neighbour"
