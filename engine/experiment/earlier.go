package experiment

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// Earlier describes an existing run in the folder. It is used to decide whether another run may resume it.
type Earlier struct {
	From   string                     // path of the checkpoint or file that contains Config
	Config string                     // settings of the run, TOML
	Extra  map[string]json.RawMessage // checkpoint.State.Extra of the newest checkpoint; nil without a checkpoint
	Result *Result                    // result of the run; nil while it has not ended
	Steps  int64                      // number of trained steps
	Epochs int64                      // number of epochs begun, including an incomplete one
}

// Change is a setting with a different value than in an earlier run.
type Change struct {
	Key string // full key with dots
	Old string
	New string
	// Detail describes the difference if Old and New do not; may be "".
	Detail string
	// Shapes states that the parameters of the model depend on the key. The run then cannot resume, even if the change
	// is allowed.
	Shapes bool
}

func (c Change) String() string {
	text := fmt.Sprintf("%s was %s, now %s", c.Key, c.Old, c.New)
	if c.Detail != "" {
		text += ": " + c.Detail
	}
	return text
}

// ChangedError reports that a run must not resume an earlier run, because the settings differ. The result would not
// match the settings.
type ChangedError struct {
	Dir     string   // folder of the earlier run
	Path    string   // Options.Resume
	Changes []Change // changed settings; empty if only the length of training differs
	Steps   int64    // number of steps of the earlier run if the settings request fewer steps; otherwise 0
	Length  string   // setting that requests fewer steps, such as "train.steps = 2"
}

// Reason returns the changes on one line.
func (e *ChangedError) Reason() string {
	var all []string
	for _, c := range e.Changes {
		all = append(all, c.String())
	}
	if e.Steps > 0 {
		all = append(all, fmt.Sprintf("the run has already trained %d steps, and the new setting is %s", e.Steps,
			e.Length))
	}
	return strings.Join(all, "; ")
}

func (e *ChangedError) Error() string {
	from := e.Path
	if from == ResumeAuto {
		from = e.Dir
	}
	var b strings.Builder
	if len(e.Changes) > 0 {
		fmt.Fprintf(&b, "%s was trained with other settings:", from)
		for _, c := range e.Changes {
			fmt.Fprintf(&b, "\n  %v", c)
		}
	}
	if e.Steps > 0 {
		if b.Len() > 0 {
			b.WriteString("\nand ")
		}
		fmt.Fprintf(&b, "%s has already trained %d steps, and the new setting is %s", from, e.Steps, e.Length)
	}
	b.WriteString(
		"\nno step was trained; options:\n  --resume none  starts a new run and renames the folder of the old run")
	switch {
	case slices.ContainsFunc(e.Changes, func(c Change) bool { return c.Shapes }):
		fmt.Fprintf(&b, "\n  --set model.init_from=%s --set experiment.name=NAME  starts a new run with the weights that fit the new model",
			from)
	case e.Steps == 0:
		fmt.Fprintf(&b, "\n  --resume %s", from)
		for _, c := range e.Changes {
			fmt.Fprintf(&b, " --allow %s", c.Key)
		}
		b.WriteString("  resumes with the new settings")
	}
	b.WriteString("\n  --set experiment.name=NAME  trains in another folder")
	return b.String()
}

// decide determines how the run begins; see the table in the package comment.
func (r *Run) decide(o Options) error {
	if o.Resume == ResumeNone {
		return r.giveWay(nil)
	}
	if o.Resume != ResumeAuto {
		return r.decidePath(o)
	}
	result, err := readResult(r.root, r.Dir, resultFile)
	found := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the result of the last run is ignored: %v", err))
	}
	c, skipped, damage := checkpoint.Latest(r.CheckpointDir())
	if o.Source != nil {
		step := int64(-1)
		if c != nil {
			step = c.State.Step
		}
		copied, err := o.Source.Fetch(r.Dir, step)
		if err == nil && copied {
			if c != nil {
				c.Close() // read only
			}
			c, skipped, damage = checkpoint.Latest(r.CheckpointDir())
		}
		if err != nil {
			r.Checkpoint = c // the caller must close it
			return err
		}
	}
	if errors.Is(damage, checkpoint.ErrNone) {
		damage = nil
	}
	r.Checkpoint, r.Skipped = c, skipped
	earlier, err := r.earlier(c)
	if err != nil {
		return err
	}
	if found {
		earlier.Result, earlier.Steps, earlier.Epochs = &result, max(earlier.Steps, result.Steps),
			max(earlier.Epochs, result.Epochs)
	}
	changed, err := r.changed(o, earlier)
	switch {
	case err != nil:
		return err
	case changed != nil && o.Named:
		return changed
	case changed != nil:
		r.closeCheckpoint()
		return r.giveWay(changed)
	case found && o.done(result):
		r.Warnings = append(r.Warnings, lostEnd(&result, c, skipped)...)
		if errors.As(damage, new(*checkpoint.CorruptError)) &&
			!slices.ContainsFunc(skipped, checkpoint.Skipped.Unreadable) {
			r.Lost = damage
		} else {
			r.Unread = damage
		}
		r.closeCheckpoint() // read only
		r.Finished = &result
	case damage != nil:
		return fmt.Errorf("resume %s: %w\nstart a new run with --resume none, which renames the folder of the old run",
			r.Dir, damage)
	case c == nil && result.Steps > 0:
		r.Warnings = append(r.Warnings,
			fmt.Sprintf("%s has trained %d steps, but its checkpoints are missing: the run starts again", r.Dir,
				result.Steps))
	}
	return nil
}

// CheckEnd returns the reason why the newest checkpoint in the folder of a run is not complete, or nil. It does not
// read tensors; see checkpoint.Incomplete.
func CheckEnd(run *os.Root) error {
	if info, err := run.Stat(checkpointsFolder); err != nil || !info.IsDir() {
		return nil
	}
	folder, err := run.OpenRoot(checkpointsFolder)
	if err != nil {
		return nil // other functions report it
	}
	defer folder.Close() // read only
	if err := checkpoint.Incomplete(folder); errors.As(err, new(*checkpoint.CorruptError)) ||
		errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil // the checkpoint is complete, or this user cannot read it
}

// lostEnd describes the newest checkpoints of a finished run that are damaged or cannot be read, and the remaining
// state. c is the newest valid checkpoint; if it is nil, Run.Lost or Run.Unread has the reason.
func lostEnd(result *Result, c *checkpoint.Checkpoint, skipped []checkpoint.Skipped) (texts []string) {
	if c == nil {
		return nil
	}
	for _, s := range skipped {
		fault := "is damaged"
		if s.Unreadable() {
			fault = "cannot be read"
		}
		text := fmt.Sprintf("the checkpoint %s %s: %v", s.Path, fault, s.Err)
		text += fmt.Sprintf("; the newest valid checkpoint is that of step %d of %d", c.State.Step, result.Steps)
		texts = append(texts, text)
	}
	return texts
}

// decidePath determines how the run begins if the user named a checkpoint. The checkpoint is already open.
func (r *Run) decidePath(o Options) error {
	state := r.Checkpoint.State
	var changed *ChangedError
	var err error
	if state.Step > 0 { // at step 0 (imported weights), no settings have affected the weights
		changed, err = r.changed(o, Earlier{From: r.Checkpoint.Path, Config: state.Config, Extra: state.Extra,
			Steps: state.Step, Epochs: epochsBegun(state)})
	}
	switch {
	case err != nil:
		return err
	case changed != nil:
		return changed
	case !r.own:
		return r.giveWay(nil)
	}
	if result, err := readResult(r.root, r.Dir, resultFile); err == nil && o.done(result) &&
		r.Checkpoint.State.Step >= result.Steps {
		r.closeCheckpoint()
		r.Finished = &result
	}
	return nil
}

// earlier describes the run in the folder. Settings in a checkpoint take precedence over those in the folder.
func (r *Run) earlier(c *checkpoint.Checkpoint) (Earlier, error) {
	if c != nil && c.State.Config != "" {
		return Earlier{From: c.Path, Config: c.State.Config, Extra: c.State.Extra, Steps: c.State.Step,
			Epochs: epochsBegun(c.State)}, nil
	}
	text, err := r.PreviousConfig()
	e := Earlier{From: filepath.Join(r.ConfigDir(), resolvedFile), Config: text}
	if c != nil {
		e.Extra, e.Steps, e.Epochs = c.State.Extra, c.State.Step, epochsBegun(c.State)
	}
	return e, err
}

// epochsBegun returns the number of epochs begun, including an incomplete one.
func epochsBegun(s checkpoint.State) int64 {
	if s.EpochSample > 0 {
		return s.Epoch + 1
	}
	return s.Epoch
}

// changed compares this run with an earlier one. It returns nil if this run may resume the earlier run.
func (r *Run) changed(o Options, e Earlier) (*ChangedError, error) {
	out := &ChangedError{Dir: r.Dir, Path: o.Resume, Length: o.Length}
	if o.Compare != nil && e.Config != "" {
		var err error
		if out.Changes, err = o.Compare(e); err != nil {
			return nil, err
		}
	}
	if o.Steps > 0 && e.Steps > o.Steps || o.Steps == 0 && o.Epochs > 0 && e.Epochs > o.Epochs {
		out.Steps = e.Steps
	}
	if len(out.Changes) == 0 && out.Steps == 0 {
		return nil, nil
	}
	return out, nil
}

// giveWay makes Begin move the contents of the folder to another name. The parameter why contains the changed settings.
// It is nil if the user requested a new run.
func (r *Run) giveWay(why *ChangedError) error {
	if r.root == nil {
		return nil
	}
	used, err := holdsFiles(r.root, ".")
	r.moves, r.Changed = used, why
	return folderError("list", r.Dir, err)
}

func (r *Run) closeCheckpoint() {
	if r.Checkpoint != nil {
		r.Checkpoint.Close() // read only
		r.Checkpoint = nil
	}
}
