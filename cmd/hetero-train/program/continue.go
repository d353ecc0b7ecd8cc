package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/train"
)

// wayOn says from which step the run continues, and with which command. The command is the one that was typed, unless it would not resume.
func (o trainOptions) wayOn(cfg *config.Config, step int64) string {
	text := fmt.Sprintf("continues from step %d with: %s", step, o.again(cfg))
	switch {
	case o.place.WorldSize > 1 && !o.place.Launch && !o.supervised():
		text += " (under the same launcher)"
	case o.place.LocalWorldSize > 0 && o.place.WorldSize > o.place.LocalWorldSize:
		text += " (and the command of every other machine)"
	}
	return text
}

func (j *Session) wayOn(step int64) string { return j.opts.wayOn(j.cfg, step) }

// again is the command line that resumes the run, for a shell.
func (o trainOptions) again(cfg *config.Config) string {
	name := os.Args[0]
	if typed, set := o.env.lookup(supervisedVariable); set && typed != "" {
		name = typed
	}
	args := o.args
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

// survived adds the step that rank 0 has saved to the error of a run of several ranks.
func (j *training) survived(result train.Result, err error) error {
	if err == nil || !result.Survived || errors.Is(err, train.ErrFinalSave) {
		return err
	}
	if j.opts.reported() {
		return fmt.Errorf("%w; the last step that all ranks have done, %d, is saved", err, result.Steps)
	}
	return fmt.Errorf("%w; the last step that all ranks have done is saved: the run %s", err, j.wayOn(result.Steps))
}

// supervised reports whether this program has started this process as a rank.
func (o trainOptions) supervised() bool {
	_, set := o.env.lookup(supervisedVariable)
	return set
}

// reported says that a supervisor which knows the run's folder tells the user how to go on.
func (o trainOptions) reported() bool { return o.supervised() && o.place.Rank == o.place.LocalRank }

// leaderLost adds the newest checkpoint to the error of a rank that has lost rank 0, the only rank that saves.
func (j *training) leaderLost(err error) error {
	if err == nil || j.opts.reported() || exit.LostRank(err) != 0 && exit.PeerOf(err) != 0 {
		return err
	}
	return fmt.Errorf("%w; %s", err, j.opts.fromNewest(j.cfg, j.team.start.Checkpoints))
}

// fromNewest names the newest checkpoint and the command that resumes it, for a process that did not save.
func (o trainOptions) fromNewest(cfg *config.Config, dir string) string {
	step, ok := checkpoint.NewestStep(dir)
	if !ok {
		return "there is no checkpoint of this run on this machine: " + o.again(cfg) + " starts from the beginning"
	}
	return "the run " + o.wayOn(cfg, step)
}

// checkpointsOf is the folder of a run's checkpoints, before the run is opened.
func checkpointsOf(cfg *config.Config) string {
	return filepath.Join(cfg.Experiment.OutputDir, cfg.Experiment.Name, "checkpoints")
}

// laterSignal is how much later than another rank this one may get the signal that a launcher sends to all. A shorter time would let a run that was
// interrupted end as a terminated one; a longer time delays the end where one rank alone was told.
const laterSignal = time.Second

// interruption is the error, with its exit code, of a run that a signal ended after it was saved.
func (j *training) interruption(ctx context.Context, step int64) error {
	var s exit.Stopped
	if !errors.As(context.Cause(ctx), &s) { // another rank was told to stop; whoever told it may be about to tell this one
		select {
		case <-ctx.Done():
		case <-time.After(laterSignal):
		}
		if !errors.As(context.Cause(ctx), &s) {
			s = exit.Stopped{Signal: syscall.SIGTERM}
		}
	}
	return exit.With(s.Saved(), fmt.Errorf("%w: saved; the run %s", s, j.wayOn(step)))
}

// unsaved tells what a run whose final save failed still has.
func (j *training) unsaved(newest string, err error) error {
	if newest == "" {
		return fmt.Errorf("%w; nothing of this run is saved", err)
	}
	step, ok := checkpoint.NewestStep(filepath.Dir(newest))
	if !ok {
		return fmt.Errorf("%w; the newest checkpoint is %s", err, newest)
	}
	return fmt.Errorf("%w; the newest checkpoint is %s: once it can be saved again, the run %s", err, newest, j.wayOn(step))
}
