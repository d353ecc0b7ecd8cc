package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/lab"
	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/engine/weather"
)

// labSetup is what the configuration and the environment say of the lab, see docs/lab.md.
type labSetup struct {
	place   lab.Place
	weather *weather.Weather // nil: nothing changes
	name    string           // of its file
}

// mostWeather bounds the weather's file, in bytes.
const mostWeather = 1 << 20

// readLab reads the weather's file.
func readLab(cfg *config.Config, env environment) (s labSetup, err error) {
	if s.place, err = lab.Find(env.lookup); err != nil {
		return s, exit.With(exit.Usage, err)
	}
	path := cfg.Lab.Weather
	if path == "" {
		return s, nil
	}
	text, err := regular.Read(path, mostWeather)
	if err != nil {
		return s, exit.Usagef("lab.weather: %w", err)
	}
	s.name = filepath.Base(path)
	s.weather, err = weather.Parse(path, text)
	return s, exit.With(exit.Usage, err)
}

// fact is the weather as all ranks must have it.
func (s *labSetup) fact() string {
	if s.weather == nil {
		return "none"
	}
	return s.weather.String()
}

// slow makes the device as slow as the environment wants all the time.
func (s *labSetup) slow(dev device.Device, log *slog.Logger) error {
	factor := s.place.Slowdown
	if factor <= 1 {
		return nil
	}
	slowable, ok := dev.(device.Slowable)
	if !ok {
		return exit.Usagef("environment variable %s: got %v, but device %s cannot be slowed down", lab.SlowdownVariable, factor, dev.Info().Name)
	}
	if err := slowable.SetSlowdown(factor); err != nil {
		return exit.Usagef("environment variable %s: %w", lab.SlowdownVariable, err)
	}
	if log != nil {
		log.Warn(fmt.Sprintf("simulated slowdown x%.3g: the device idles after its work", factor), "device", dev.Info().Name, "from", lab.SlowdownVariable)
	}
	return nil
}

// labRun is the lab while a run lasts.
type labRun struct {
	applier *lab.Applier
	notes   []string // for readers of the figures

	// Of rank 0, which tells what all ranks meet.
	log     *slog.Logger
	weather *weather.Weather
	ranks   []labWord
	now     []weather.Conditions
}

// labWord is what a rank tells the others of its place in the lab.
type labWord struct {
	CPUs     float64   `json:"cpus"`
	Slowdown float64   `json:"slowdown"`
	Means    lab.Means `json:"means"`
}

// openTestbed finds out how weather can be made here. All ranks tell each other where they are, so that rank 0 can say what is real and
// what is simulated.
func openTestbed(ctx context.Context, j *Rank) (l labRun, err error) {
	setup := &j.opts.lab
	word := labWord{CPUs: setup.place.CPUs, Slowdown: setup.place.Slowdown}
	if setup.weather != nil {
		program, err := os.Executable()
		if err != nil {
			return l, err
		}
		l.applier = lab.Open(lab.Options{Place: setup.place, Weather: setup.weather, Rank: j.opts.place.Rank, Device: j.device,
			Neighbour: []string{program, neighbourCommand}, Warn: func(err error) { j.opts.logOf(logs.ComponentLab).Warn(err.Error()) }})
		j.later(l.applier.Close)
		word.Means = l.applier.Means()
		for _, missing := range l.applier.Missing() {
			j.opts.logOf(logs.ComponentLab).Warn(missing.Error())
		}
	}
	words, err := j.gatherLab(ctx, word)
	if err != nil {
		return l, err
	}
	if j.team.leads() {
		l.tell(setup, words, j.opts.logOf(logs.ComponentLab))
	}
	return l, nil
}

// gatherLab exchanges the ranks' words.
func (j *Rank) gatherLab(ctx context.Context, own labWord) ([]labWord, error) {
	if j.team == nil {
		return []labWord{own}, nil
	}
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	texts, err := j.team.group.Gather(ctx, "lab", text)
	if err != nil {
		return nil, err
	}
	words := make([]labWord, len(texts))
	for rank, t := range texts {
		if err := json.Unmarshal(t, &words[rank]); err != nil {
			return nil, fmt.Errorf("lab, as rank %d tells it: %w", rank, err)
		}
	}
	return words, nil
}

// tell says what is real and what simulated, on rank 0, and notes it for readers of the figures.
func (l *labRun) tell(setup *labSetup, words []labWord, log *slog.Logger) {
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
		l.notes = append(l.notes, "the ranks have CPU quotas (real) of "+strings.Join(quotas, "/")+" CPUs")
	}
	if slowed {
		l.notes = append(l.notes, "SIMULATED: the ranks' devices idle to be "+strings.Join(slowdowns, "/")+" slower")
	}
	if setup.weather == nil {
		return
	}
	l.log, l.weather, l.ranks, l.now = log, setup.weather, words, make([]weather.Conditions, len(words))
	kinds := make([]string, len(words))
	for rank, w := range words {
		l.now[rank], kinds[rank] = weather.Fair, string(w.Means.Speed.Kind)
		log.Info("weather", "file", setup.name, "rank", rank, "speed", w.Means.Speed.String(), "neighbours", w.Means.Neighbour.String(), "links", w.Means.Link.String())
	}
	l.notes = append(l.notes, fmt.Sprintf("weather %s changes ranks while they train, their speeds: %s", setup.name, strings.Join(kinds, "/")))
	if highest := setup.weather.HighestRank(); highest >= len(words) {
		log.Warn("weather: lines about ranks that this run does not have change nothing", "file", setup.name, "highest_rank", highest, "ranks", len(words))
	}
}

// before brings this rank into the conditions of a step; rank 0 says what has changed on all.
func (l *labRun) before(step int64) {
	l.applier.Before(step)
	for rank := range l.now {
		c := l.weather.At(step, rank)
		if !c.Alike(l.now[rank]) {
			l.log.Info("weather", "step", step, "rank", rank, "now", l.ranks[rank].Means.Describe(c))
		}
		l.now[rank] = c
	}
}

// neighbourCommand is the subcommand of a busy neighbour.
const neighbourCommand = "neighbour"

func newNeighbour() *cobra.Command {
	return &cobra.Command{
		Use:    neighbourCommand,
		Hidden: true,
		Short:  "Keep one CPU busy until standard input ends",
		Args:   noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := lab.Burn(cmd.InOrStdin()); err != nil {
				return errors.Join(errors.New(neighbourCommand+": standard input"), err)
			}
			return nil
		},
	}
}
