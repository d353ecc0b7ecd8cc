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

// wayOn describes the step at which the run resumes, and the command that resumes it. This is the command line of this
// process, changed if it would not resume the run.
func (o Options) wayOn(cfg *config.Config, step int64) string {
	text := fmt.Sprintf("continues from step %d with: %s", step, o.again(cfg))
	switch {
	case o.Assignment.WorldSize > 1 && !o.Assignment.Launch && !o.Supervised():
		text += " (under the same launcher)"
	case o.Assignment.LocalWorldSize > 0 && o.Assignment.WorldSize > o.Assignment.LocalWorldSize:
		text += " (and the command of every other machine)"
	}
	return text
}

// WayOn describes the step at which the run resumes and the command that resumes it.
func (s *Session) WayOn(step int64) string { return s.Opts.wayOn(s.Cfg, step) }

// again returns a command line that resumes the run, quoted for a shell.
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

// withoutResume returns args without the arguments that set train.resume.
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

// quoted returns word, quoted for a shell if necessary.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Supervised reports whether a supervisor of this program started this process as a rank.
func (o Options) Supervised() bool {
	_, set := o.Env.Lookup(SupervisedVariable)
	return set
}

// Reported reports whether the supervisor explains to the user how to resume, so that the ranks need not. This is true
// on the machine of rank 0, because only its supervisor knows the folder of the run.
func (o Options) Reported() bool {
	return o.Supervised() && o.Assignment.Rank == o.Assignment.LocalRank
}

// FromNewest describes the newest checkpoint in dir and the command that resumes from it. It is for a process that did
// not save the run.
func (o Options) FromNewest(cfg *config.Config, dir string) string {
	step, ok := checkpoint.NewestStep(dir)
	if !ok {
		return "there is no checkpoint of this run on this machine: " + o.again(cfg) + " starts from the beginning"
	}
	return "the run " + o.wayOn(cfg, step)
}

// CheckpointsOf returns the folder of a run's checkpoints. The run need not be open.
func CheckpointsOf(cfg *config.Config) string {
	return filepath.Join(cfg.Experiment.OutputDir, cfg.Experiment.Name, "checkpoints")
}
