package session

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
)

// wayOn says from which step the run continues, and with which command. The command is the one that was typed, unless it would not resume.
func (o Options) wayOn(cfg *config.Config, step int64) string {
	text := fmt.Sprintf("continues from step %d with: %s", step, o.again(cfg))
	switch {
	case o.Place.WorldSize > 1 && !o.Place.Launch && !o.Supervised():
		text += " (under the same launcher)"
	case o.Place.LocalWorldSize > 0 && o.Place.WorldSize > o.Place.LocalWorldSize:
		text += " (and the command of every other machine)"
	}
	return text
}

// WayOn says from which step the run continues, and with which command.
func (j *Session) WayOn(step int64) string { return j.Opts.wayOn(j.Cfg, step) }

// again is the command line that resumes the run, for a shell.
func (o Options) again(cfg *config.Config) string {
	name := os.Args[0]
	if typed, set := o.Env.Lookup(SupervisedVariable); set && typed != "" {
		name = typed
	}
	args := o.Args
	if cfg.Train.Resume != experiment.ResumeAuto {
		args = append(withoutResume(args), "--resume", experiment.ResumeAuto)
	}
	words := []string{quoted(name)}
	for _, arg := range args {
		words = append(words, quoted(arg))
	}
	return strings.Join(words, " ")
}

// withoutResume takes out of a command line what sets train.resume.
func withoutResume(args []string) (rest []string) {
	const key = "train.resume="
	for i := 0; i < len(args); i++ {
		arg, next := args[i], ""
		if i+1 < len(args) {
			next = args[i+1]
		}
		switch {
		case arg == "--resume", arg == "--set" && strings.HasPrefix(next, key):
			i++
		case strings.HasPrefix(arg, "--resume="), strings.HasPrefix(arg, "--set="+key):
		default:
			rest = append(rest, arg)
		}
	}
	return rest
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quoted is a word as a shell reads it back.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Supervised reports whether this program has started this process as a rank.
func (o Options) Supervised() bool {
	_, set := o.Env.Lookup(SupervisedVariable)
	return set
}

// Reported says that a supervisor which knows the run's folder tells the user how to go on.
func (o Options) Reported() bool { return o.Supervised() && o.Place.Rank == o.Place.LocalRank }

// FromNewest names the newest checkpoint and the command that resumes it, for a process that did not save.
func (o Options) FromNewest(cfg *config.Config, dir string) string {
	step, ok := checkpoint.NewestStep(dir)
	if !ok {
		return "there is no checkpoint of this run on this machine: " + o.again(cfg) + " starts from the beginning"
	}
	return "the run " + o.wayOn(cfg, step)
}

// CheckpointsOf is the folder of a run's checkpoints, before the run is opened.
func CheckpointsOf(cfg *config.Config) string {
	return filepath.Join(cfg.Experiment.OutputDir, cfg.Experiment.Name, "checkpoints")
}
