package experiment

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/engine/regular"
)

const (
	resultFile      = "result.json"
	tableFile       = "results.md"
	mostResultBytes = 16 << 20
)

// Result describes how a run ended. results/result.json contains it.
type Result struct {
	Steps  int64 `json:"steps"`  // number of optimizer steps over all processes of the run
	Epochs int64 `json:"epochs"` // number of complete epochs
	// mean loss of the last step over the global batch; null if it is unknown, for example before the first step
	FinalTrainLoss Number `json:"final_train_loss"`
	BestEval       Number `json:"best_eval"`        // best value of BestEvalMetric; null without an evaluation
	BestEvalMetric string `json:"best_eval_metric"` // metric of the best evaluation: "top1" (fraction 0…1), "loss", …
	BestEvalStep   int64  `json:"best_eval_step"`
	// LastEval is the newest evaluation of the run; nil without one. Its loss and metrics are null if they are not
	// finite.
	LastEval *ResultEvaluation `json:"last_eval,omitempty"`
	// throughput of the run: samples / training time; see train.Trained
	SamplesPerSecond Number `json:"samples_per_second"`
	State            State  `json:"state"` // finished, stopped or failed; set by WriteResult
	Exit             int    `json:"exit"`  // exit code
	Error            string `json:"error,omitempty"`
	// true if train.max_seconds ended the run, which can then resume
	OutOfTime bool `json:"out_of_time,omitempty"`
	// reason why train.early_stop_patience ended the run; with more patience, the run can resume
	GaveUp    string `json:"gave_up,omitempty"`
	EarlyStop string `json:"early_stop,omitempty"` // Options.EarlyStop of the run, if GaveUp is set

	Start        string `json:"start,omitempty"` // ID of the Start of the process; "" if it did not begin to train
	Program      string `json:"program"`         // version of the program
	Model        string `json:"model"`
	Dataset      string `json:"dataset"` // data set that was used, even if it was a fallback
	Device       string `json:"device"`
	Precision    string `json:"precision"`
	BatchSize    int64  `json:"batch_size"` // global batch size
	Ranks        int    `json:"ranks"`
	SamplesSeen  int64  `json:"samples_seen"`
	SkippedSteps int64  `json:"skipped_steps"` // number of steps skipped because of NaN or infinite gradients
	// number of replaced samples of the run on all ranks; a sample counts once per epoch
	Unreadable int64     `json:"unreadable_samples"`
	Seconds    Number    `json:"seconds"` // duration of training in this process, s
	Started    time.Time `json:"started"` // start of this process
	Ended      time.Time `json:"ended"`
	Checkpoint string    `json:"checkpoint"` // newest checkpoint, relative to the folder of the run; "" if none
	Notes      []string  `json:"notes"`      // remarks about the figures, for example about a fallback

	Script *Script `json:"script,omitempty"` // nil: this program computed the steps

	Extra map[string]any `json:"extra,omitempty"` // fields of other parts of the program

	// Superseded means that a later process began to train the run and has not written its result. Current means that
	// this is the result of the process that began last. Both are false if it is unknown which process began last. Only
	// ReadResult sets these fields.
	Superseded, Current bool `json:"-"`
}

// ResultEvaluation is an evaluation in a Result.
type ResultEvaluation struct {
	Step    int64             `json:"step"`
	Samples int               `json:"samples"`
	Loss    Number            `json:"loss"`
	Metrics map[string]Number `json:"metrics"` // keys are names of metrics, such as "top1"
}

// Number is a float64 that is null in JSON if it is NaN or infinite.
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON reads null as NaN.
func (n *Number) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*n = Number(math.NaN())
		return nil
	}
	return json.Unmarshal(text, (*float64)(n))
}

// WriteResult writes results/result.json atomically, and flushes it to disk.
func (r *Run) WriteResult(result Result) error {
	if result.Notes == nil {
		result.Notes = []string{}
	}
	result.Start = r.start
	result.State, _ = result.Outcome()
	path := filepath.Join(resultsFolder, resultFile)
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return folderError("write", filepath.Join(r.Dir, path), err)
	}
	err = r.replace(path, append(text, '\n'))
	r.ended = err == nil
	return err
}

// Start returns the ID of the Start of this process; "" before Begin.
func (r *Run) Start() string { return r.start }

// Owes reports whether this process began to train but has not written a result. Without a result, the run counts as
// crashed.
func (r *Run) Owes() bool { return r.start != "" && !r.ended }

// WriteTable writes results/results.md, which contains the result as Markdown.
func (r *Run) WriteTable(markdown string) error {
	return r.replace(filepath.Join(resultsFolder, tableFile), []byte(markdown))
}

// ReadResult reads results/result.json of the run in the folder dir. The file does not exist if the run has not ended
// or was killed. ReadResult then returns the result of an earlier process, with Superseded set. If no process of the
// run wrote a result, it returns fs.ErrNotExist.
func ReadResult(dir string) (Result, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Result{}, folderError("open", dir, err)
	}
	defer root.Close()
	result, err := readResult(root, dir, resultFile)
	if errors.Is(err, fs.ErrNotExist) {
		if result, previousErr := readResult(root, dir, previousResultFile); previousErr == nil {
			result.Superseded = true
			return result, nil
		}
	}
	if err != nil {
		return Result{}, fmt.Errorf("read the result of %s: %w", dir, err)
	}
	if start, err := ReadStart(root); err == nil {
		result.Current = start.ID == result.Start
		result.Superseded = !result.Current
	}
	return result, nil
}

func readResult(root *os.Root, dir, name string) (Result, error) {
	var result Result
	path := filepath.Join(resultsFolder, name)
	text, err := regular.ReadIn(root, path, mostResultBytes)
	if err != nil {
		return result, err
	}
	if err := json.Unmarshal(text, &result); err != nil {
		return result, fmt.Errorf("%s: %w", filepath.Join(dir, path), err)
	}
	return result, nil
}
