package schedule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/dqn"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// learning contains the flags of schedule train that change the result of training: the options of the learner, and the
// problem that it learns.
type learning struct {
	flags   *pflag.FlagSet
	options dqn.Options
	problem dqn.Problem
	alone   bool
}

func (l *learning) add(flags *pflag.FlagSet) {
	l.flags, l.options, l.problem = flags, dqn.Defaults(), dqn.DefaultProblem()
	o, p := &l.options, &l.problem
	flags.Uint64Var(&o.Seed, "seed", 1, "seed of weights, episodes and exploration")
	flags.Float64Var(&p.Random, "random", p.Random, "fraction of the episodes on random clusters, 0 to 1")
	flags.IntVar(&p.Encoding.Similarity, "similarity", 0, fmt.Sprintf("`DIMENSIONS` of the vectors that remember which jobs ran well on which GPUs; the network reads their scores; %d to %d, or 0: no scores",
		dqn.MinSimilarity, dqn.MaxSimilarity))
	flags.BoolVar(&p.Encoding.Ingested, "ingested", false,
		"the network also reads the normalised facts of schedule ingest about the cluster, its GPUs and the jobs")
	flags.BoolVar(&l.alone, "alone", false, "train a network that decides without policy gang")
	flags.Float64Var(&p.Lambda, "lambda", p.Lambda,
		"cost of a second of an idle GPU, relative to a second of a job in the system; above 0, below 1")
	flags.Var(episodic{&o.Rate}, "learning-rate",
		"learning rate of Adam: `RATE`, or FROM,TO,EPISODES: it falls linearly over the first episodes")
	flags.Var(episodic{&o.Exploration}, "epsilon",
		"probability of a random action: `PROBABILITY`, or FROM,TO,EPISODES: it falls linearly over the first episodes")
	flags.BoolVar(&o.Double, "double", o.Double, "double DQN: the trained weights select the action of a target, and the target weights compute its value")
	flags.BoolVar(&o.Prioritised, "prioritised", o.Prioritised,
		"prioritised replay: sample decisions with a large error more often")
	flags.IntVar(&o.Steps, "returns", o.Steps,
		"`N` rewards of a target, before the value from the target weights; 1: the plain DQN")
	flags.Int64Var(&o.Imitate, "imitate", o.Imitate,
		"`EPISODES` at the start in which the network imitates policy gang; 0: none, as with --alone")
}

// check checks the flags of a training run with the given number of episodes, and applies --alone.
func (l *learning) check(episodes int64) error {
	o, p := &l.options, &l.problem
	switch {
	case !(p.Random >= 0 && p.Random <= 1):
		return exit.Usagef("schedule train: --random: got %v, want a number from 0 to 1", p.Random)
	case p.Encoding.Similarity != 0 &&
		(p.Encoding.Similarity < dqn.MinSimilarity || p.Encoding.Similarity > dqn.MaxSimilarity):
		return exit.Usagef("schedule train: --similarity: got %d dimensions, want 0, or %d to %d",
			p.Encoding.Similarity, dqn.MinSimilarity, dqn.MaxSimilarity)
	case !(p.Lambda > 0 && p.Lambda < 1):
		return exit.Usagef("schedule train: --lambda: got %v, want a number above 0 and below 1", p.Lambda)
	case !within(o.Rate) || o.Rate.From == 0 && o.Rate.To == 0:
		return exit.Usagef("schedule train: --learning-rate: got %s, want rates from 0 to 1, and one above 0",
			episodic{&o.Rate})
	case o.Rate.To == 0 && episodes > o.Rate.Over:
		return exit.Usagef("schedule train: --learning-rate: got %s with %d episodes, want a last rate above 0, or at least %d episodes of falling rates: a rate of 0 trains nothing",
			episodic{&o.Rate}, episodes, episodes)
	case !within(o.Exploration):
		return exit.Usagef("schedule train: --epsilon: got %s, want probabilities from 0 to 1",
			episodic{&o.Exploration})
	case o.Steps < 1 || o.Steps > mostReturns:
		return exit.Usagef("schedule train: --returns: got %d, want 1 to %d", o.Steps, mostReturns)
	case o.Imitate < 0:
		return exit.Usagef("schedule train: --imitate: got %d, want at least 0", o.Imitate)
	case l.alone && o.Imitate > 0 && l.flags.Changed("imitate"):
		return exit.Usagef("schedule train: --imitate: got %d with --alone, want 0: without policy gang, there is no policy to imitate",
			o.Imitate)
	}
	if l.alone {
		l.problem.SetAlone()
		o.Imitate = 0
	}
	return nil
}

// mostReturns is the largest value of --returns. Longer sums of rewards depend mostly on later decisions.
const mostReturns = 1000

// within reports whether both values of a schedule are between 0 and 1.
func within(s dqn.Schedule) bool { return s.From >= 0 && s.From <= 1 && s.To >= 0 && s.To <= 1 }

// measured reports whether the utilization of at least one GPU is known, and whether the temperature of at least one
// is.
func measured(c *scheduler.Cluster) (utilization, temperature bool) {
	for _, g := range c.GPUs {
		utilization = utilization || !math.IsNaN(g.Utilization)
		temperature = temperature || !math.IsNaN(g.Temperature)
	}
	return utilization, temperature
}

// resumable returns an error if the checkpoint belongs to another training run. The result would then differ from the
// result of an uninterrupted run. The options in l are those of the new command.
func (l *learning) resumable(c *checkpoint.Checkpoint, problem json.RawMessage) error {
	if c.State.Seed != l.options.Seed {
		return exit.Usagef("--seed: got %d, want %d, the seed of %s; choose another --output for a new training",
			l.options.Seed, c.State.Seed, c.Path)
	}
	saved, err := dqn.SavedProblem(c)
	if err != nil {
		return exit.With(exit.Data, err)
	}
	var one, other bytes.Buffer
	if err := errors.Join(json.Compact(&one, saved), json.Compact(&other, problem)); err != nil {
		return exit.With(exit.Data, fmt.Errorf("%s: %w", c.Path, err))
	}
	if one.String() != other.String() {
		return exit.Usagef("%s was trained on other episodes: other files, another --random, --similarity, --ingested, --alone or --lambda, or another version of the program; choose another --output for a new training",
			c.Path)
	}
	before, err := dqn.SavedOptions(c)
	if err != nil {
		return exit.With(exit.Data, err)
	}
	now := l.options
	for _, f := range []struct {
		flag      string
		got, want any
	}{
		{"learning-rate", episodic{&now.Rate}, episodic{&before.Rate}},
		{"epsilon", episodic{&now.Exploration}, episodic{&before.Exploration}},
		{"double", now.Double, before.Double},
		{"prioritised", now.Prioritised, before.Prioritised},
		{"returns", now.Steps, before.Steps},
		{"imitate", now.Imitate, before.Imitate},
	} {
		if got, want := fmt.Sprint(f.got), fmt.Sprint(f.want); got != want {
			return exit.Usagef("--%s: got %s, want %s, the value of %s; choose another --output for a new training",
				f.flag, got, want, c.Path)
		}
	}
	if now != before {
		return exit.Usagef("%s was trained by another version of the program, with other options; choose another --output for a new training",
			c.Path)
	}
	return nil
}

// episodic is the value of a flag that sets a schedule over episodes.
type episodic struct{ of *dqn.Schedule }

func (c episodic) Type() string { return "schedule" }

func (c episodic) String() string {
	if c.of == nil {
		return ""
	}
	if c.of.Over == 0 {
		return fmt.Sprintf("%g", c.of.To)
	}
	return fmt.Sprintf("%g,%g,%d", c.of.From, c.of.To, c.of.Over)
}

func (c episodic) Set(text string) error {
	parts := strings.Split(text, ",")
	values := make([]float64, min(2, len(parts)))
	faulty := len(parts) != 1 && len(parts) != 3
	for i := range values {
		var err error
		values[i], err = strconv.ParseFloat(parts[i], 64)
		faulty = faulty || err != nil
	}
	var s dqn.Schedule
	if s.To = values[len(values)-1]; len(parts) == 3 {
		var err error
		s.From = values[0]
		s.Over, err = strconv.ParseInt(parts[2], 10, 64)
		faulty = faulty || err != nil || s.Over < 1
	}
	if faulty {
		return errors.New("want one number, or FROM,TO,EPISODES with at least 1 episode, such as 1e-3,1e-5,15000")
	}
	*c.of = s
	return nil
}
