package experiment

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hetero-train/hetero-train/engine/regular"
)

// Script describes a run whose steps a script computes. The script saves the checkpoints, so this program stores only
// the checkpoints that the script reports.
type Script struct {
	Program string `json:"program"`    // program that runs the script, for example "PyTorch 2.15.0"
	Saved   *int64 `json:"saved_step"` // step of the newest checkpoint that the script has reported; null: none
	Closed  bool   `json:"closed"`     // the script ended the run normally
}

const (
	scriptFile      = "script.json"
	mostScriptBytes = 1 << 16
)

// NoteScript writes the description of a script to results/script.json. After a crash, it is the only source of this
// description.
func (r *Run) NoteScript(s *Script) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return r.replace(filepath.Join(resultsFolder, scriptFile), append(text, '\n'))
}

// ReadScript reads the description of the script of a run. It returns nil if this program computed the steps.
func ReadScript(root *os.Root) *Script {
	text, err := regular.ReadIn(root, filepath.Join(resultsFolder, scriptFile), mostScriptBytes)
	s := new(Script)
	if err != nil || json.Unmarshal(text, s) != nil {
		return nil
	}
	return s
}

// Next describes the step from which the script can continue.
func (s *Script) Next() string {
	if s.Saved == nil {
		return "the script has reported no checkpoint (balancer.saved)"
	}
	return fmt.Sprintf("the newest checkpoint that the script has reported is of step %d", *s.Saved)
}

// outcome returns the state of a run that a script ended.
func (s *Script) outcome(r *Result) (state State, why string) {
	switch {
	case r.Exit == 0 && s.Closed:
		return Finished, ""
	case r.Exit == 0:
		return Stopped, fmt.Sprintf("the script ended after step %d without balancer.close(); %s", r.Steps, s.Next())
	case r.Exit == exitTerminated || r.Exit == exitInterrupted || r.Exit == exitUnsaved:
		return Stopped, fmt.Sprintf("the user stopped the script after step %d; %s", r.Steps, s.Next())
	}
	return Failed, fmt.Sprintf("exit code %d: %s; %s", r.Exit, r.Error, s.Next())
}
