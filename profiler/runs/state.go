package runs

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// Kind is the kind of a run's state.
type Kind = experiment.State

// The kinds of states.
const (
	Running  = experiment.Running
	Finished = experiment.Finished
	Stopped  = experiment.Stopped
	Failed   = experiment.Failed
	Crashed  = experiment.Crashed
	Unknown  = experiment.Unknown
)

// State is the state of a run.
type State struct {
	Kind  Kind   `json:"kind"`
	Why   string `json:"why"`   // reason for Kind, or why the run has no records; "" if there is nothing to explain
	Saved bool   `json:"saved"` // the run has a checkpoint
}

// Limit of the age of records: younger records show that a process on another machine is still running. The limit is
// recentSteps times the step time, but at least recentMinimum, which covers evaluations and checkpoints.
const (
	recentSteps   = 20
	recentMinimum = 2 * time.Minute
)

// evidence contains the facts in the files of a run that determine its state.
type evidence struct {
	use
	settings Settings
	result   *experiment.Result
	logsErr  error  // error that opening the folder of logs returned
	lacking  string // describes the ranks without records
	saved    bool   // the run has a checkpoint
	unloaded string // why the newest checkpoint of a run with a result is not complete; "": it is complete

	resultErr error              // error of reading the result
	script    *experiment.Script // nil: hetero-train computed the steps

	steps    int64         // iteration of the newest record; 0 if there are no records
	age      time.Duration // time since the newest record, by the file's time or the record's time, whichever is longer
	stepTime time.Duration
}

// use identifies the processes that use the folder of a run.
type use struct {
	start  *experiment.Start // newest process that began to train; nil if unknown
	holder experiment.Holder // process that locked the folder last; any command may have locked it
	held   *bool             // result of experiment.HeldBy: whether holder still holds the lock; nil if unknown
	locked bool              // the lock file exists
}

// useOf returns the present use of a folder.
func useOf(root *os.Root) (u use) {
	holder, held, err := experiment.HeldBy(root)
	u.holder, u.held, u.locked = holder, held, err == nil
	if start, err := experiment.ReadStart(root); err == nil {
		u.start = &start
	}
	return u
}

// id returns the ID of the newest process that began to train, or "" if it is unknown.
func (u use) id() string {
	if u.start == nil {
		return ""
	}
	return u.start.ID
}

// same reports whether u and v show that no process has begun or ended in between.
func (u use) same(v use) bool {
	holds := func(u use) bool { return u.held != nil && *u.held }
	return u.id() == v.id() && u.holder.Is(v.holder) && holds(u) == holds(v) && u.locked == v.locked
}

// judge determines the state. Only a process that trains writes its start and its result, so later commands in the
// folder do not change the state.
func (e evidence) judge() State {
	kind, why := e.kind()
	return State{kind, why, e.saved}
}

// kind returns the kind of the state, and its reason.
func (e evidence) kind() (kind Kind, why string) {
	switch {
	case e.training():
		return Running, e.whyEmpty()
	case e.ended():
		return e.outcome()
	case e.elsewhere():
		patience := max(recentMinimum, recentSteps*e.stepTime)
		if e.steps > 0 && e.age < patience {
			return Running, ""
		}
		last := e.holder
		if e.start != nil {
			last = e.start.Holder
		}
		return Unknown, fmt.Sprintf(
			"process %d on %s has written nothing for %v; this machine cannot check whether the process still runs",
			last.PID, last.Host, e.age.Round(time.Second))
	case e.steps == 0:
		return Crashed, e.whyEmpty()
	}
	next := "there is no checkpoint, so the same command starts again"
	switch {
	case e.script != nil:
		next = e.script.Next()
	case e.saved:
		next = "the same command resumes from the newest checkpoint"
	}
	return Crashed, fmt.Sprintf(
		"the process ended without a result after step %d; %s; logs/train.log has its last messages", e.steps, next)
}

// training reports whether the process that began last still holds the lock of the folder.
func (e evidence) training() bool {
	return e.held != nil && *e.held && (e.start == nil || e.start.Is(e.holder))
}

// elsewhere reports whether this machine cannot find out if the process that began last is still running. If a later
// command has locked the folder, that process has ended.
func (e evidence) elsewhere() bool {
	return e.locked && e.held == nil && (e.start == nil || e.start.Is(e.holder))
}

// ended reports whether the newest process has written the result. An earlier process of a resumed run may have left an
// older result. If the start is unknown, as in an incomplete copy of the folder, a result counts as older if there are
// later records.
func (e evidence) ended() bool {
	switch {
	case e.result == nil:
		return false
	case e.start == nil:
		return e.result.Steps >= e.steps
	}
	return e.result.Start == e.start.ID
}

// outcome determines the state of a run that has ended.
func (e evidence) outcome() (kind Kind, why string) {
	kind, why = e.result.Outcome()
	if why == "" {
		why = e.whyEmpty()
	}
	if e.unloaded != "" {
		why = strings.TrimPrefix(why+"; "+e.unloaded, "; ")
	}
	return kind, why
}

// whyEmpty returns why a run has no records, or "" if it has records.
func (e evidence) whyEmpty() string {
	if reason := e.missing(); reason != "" {
		return "No metrics found: " + reason // the words that users search for
	}
	return ""
}

// missing returns the reason why a run has no records, or "" if it has records.
func (e evidence) missing() string {
	running := e.held != nil && *e.held
	switch {
	case e.steps > 0, e.lacking != "":
		return ""
	case !e.settings.recorded():
		return "the run writes no metrics, because profile.enabled is false"
	case e.logsErr != nil && e.settings.Experiment.LogDir != "":
		return fmt.Sprintf("the folder of logs (experiment.log_dir) cannot be read: %v", e.logsErr)
	case running:
		return "the run has started, and no step is recorded yet; wait"
	case e.result == nil:
		return "the process ended before its first step was complete; logs/train.log has the reason"
	}
	return "the run has no metric records"
}

// Summary contains one row of a list of runs. Unknown numbers are null.
type Summary struct {
	Name  string `json:"name"`
	State State  `json:"state"`

	Model   string `json:"model"`
	Dataset string `json:"dataset"`
	Policy  string `json:"policy"`
	Ranks   int    `json:"ranks"`
	Lacking string `json:"lacking,omitempty"` // describes the ranks without records, and how to fix this
	// Cut describes a file of records whose end is missing, and how to fix this. Only the files of the first
	// mostCutChecks ranks are checked.
	Cut string `json:"cut,omitempty"`
	// Damaged states why the newest checkpoint is not complete. It is set only if the run has ended.
	Damaged string `json:"damaged,omitempty"`

	Steps int64 `json:"steps"`
	// Throughput of all ranks; null after a crash. While the run trains, it is that of the last decision's window or,
	// without a decision, of the last step. After the end, it is that of the whole run.
	SamplesPerSecond experiment.Number `json:"samples_per_second"`
	ShareOfOracle    experiment.Number `json:"share_of_oracle"` // last estimate of the balancer
	Loss             experiment.Number `json:"loss"`
	BestEval         experiment.Number `json:"best_eval"` // best value of BestEvalMetric, once the run has ended
	BestEvalMetric   string            `json:"best_eval_metric,omitempty"`
	Updated          int64             `json:"updated"` // time of the newest record or of the end, ms since 1970 UTC
}

// summarize reads the summary of a run.
func summarize(name string, root *os.Root) Summary {
	unknown := experiment.Number(math.NaN())
	s := Summary{Name: name, SamplesPerSecond: unknown, ShareOfOracle: unknown, Loss: unknown, BestEval: unknown}
	settings, _ := readSettings(root)
	s.Model, s.Dataset, s.Policy = settings.Model.Name, settings.Data.Dataset, settings.Balance.Policy
	e := gather(root, settings)
	if info, err := root.Stat("."); err == nil {
		s.Updated = info.ModTime().UnixMilli()
	}
	if e.start != nil { // not the time of the folder, which later commands change
		s.Updated = e.start.Since.UnixMilli()
	}
	logs, err := openLogs(root, settings)
	if err != nil {
		e.logsErr = err
	} else {
		defer logs.Close() // read only
		s.fromLogs(logs, settings, &e)
	}
	if r := e.result; r != nil && e.ended() {
		s.Model, s.Dataset, s.Ranks, s.Steps = r.Model, r.Dataset, max(r.Ranks, 1), r.Steps
		s.SamplesPerSecond, s.Loss = r.SamplesPerSecond, r.FinalTrainLoss
		s.BestEval, s.BestEvalMetric = r.BestEval, r.BestEvalMetric
		s.Updated = r.Ended.UnixMilli()
	}
	s.State, s.Damaged = e.judge(), e.unloaded
	if s.State.Kind == Crashed { // the throughput of the run is unknown: only the result states it
		s.SamplesPerSecond = unknown
	}
	if logs != nil && s.State.Kind != Running && s.State.Kind != Unknown { // no process can still be writing
		s.Cut = cutFile(logs, s.Ranks)
	}
	return s
}

// mostCutChecks limits the number of files that a summary opens.
const mostCutChecks = 64

// cutFile returns the name of the first file of records whose end is missing, and how to fix this. It returns "" if
// there is no such file.
func cutFile(logs *os.Root, ranks int) string {
	for rank := range min(ranks, mostCutChecks) {
		name := runtime.FileName(rank)
		file, info, err := regular.OpenIn(logs, name)
		if err != nil {
			continue // Lacking already names this rank
		}
		const end = "]\n"
		text := make([]byte, min(info.Size(), int64(len(end))))
		_, err = file.ReadAt(text, info.Size()-int64(len(text)))
		file.Close() // read only
		if err == nil && len(text) > 0 && string(text) != end {
			return name + ": " + lacksEnd
		}
	}
	return ""
}

// mostLooks limits how often gather reads a folder in which processes begin and end all the time.
const mostLooks = 5

// look is useOf, except in tests.
var look = useOf

// gather returns the evidence, without the part that comes from records. If a process begins or ends meanwhile, gather
// reads the files again. Otherwise a lock from before the end of a process, together with a result from after it, would
// give a state that the run never had.
func gather(root *os.Root, settings Settings) evidence {
	e := evidence{settings: settings, use: look(root)}
	for range mostLooks {
		e.result, e.resultErr = readResult(root)
		now := look(root)
		if e.use.same(now) {
			break
		}
		e.use = now
	}
	saved, _ := fs.Glob(root.FS(), checkpointsFolder+"/step-*") // the pattern is valid, so there is no error
	e.saved = slices.ContainsFunc(saved, func(name string) bool { return !strings.HasSuffix(name, ".tmp") })
	e.script = experiment.ReadScript(root)
	if e.saved && e.result != nil {
		if err := experiment.CheckEnd(root); err != nil {
			e.unloaded = fmt.Sprintf("the newest checkpoint is damaged: %v; hetero-train checkpoint verify checks all",
				err)
		}
	}
	return e
}

// fromLogs adds values from the newest records.
func (s *Summary) fromLogs(logs *os.Root, settings Settings, e *evidence) {
	r, found, modified := readLastRecord(logs, 0)
	if found {
		e.noteRecord(&r, modified)
	}
	decision, start := newestDecision(logs), newestStart(logs)
	if start.dataset != "" { // the settings may name another data set, because the run may use a fallback
		s.Dataset = start.dataset
	}
	var missing []int
	of := ranksOfRun(*e, start, decision.recorded())
	s.Ranks, missing = lackOf(logs, 0, of)
	if of > 0 && len(missing) == 0 { // an earlier process may have had more ranks
		s.Ranks = min(s.Ranks, of)
	}
	s.Lacking = lackText(missing, s.Ranks)
	e.lacking = s.Lacking
	if !found {
		return
	}
	s.Steps, s.Loss, s.Updated = r.Iteration, experiment.Number(r.Values[telemetry.Loss]), modified
	if !r.Timestamp.IsZero() { // the times of files are wrong in a copied folder
		s.Updated = r.Timestamp.UnixMilli()
	}
	if t := r.Took(); t > 0 && settings.Data.BatchSize > 0 && s.Lacking == "" {
		// the record of rank 0 contains only its own samples
		s.SamplesPerSecond = experiment.Number(float64(samplesOf(logs, &r, s.Ranks, settings)) / t.Seconds())
	}
	if decision != nil && (of == 0 || len(decision.Shares) == of) { // else it is one of an earlier segment
		s.ShareOfOracle = decision.ShareOfOracle
		if d := decision.Seconds; d != nil && *d > 0 && !math.IsNaN(float64(s.SamplesPerSecond)) {
			s.SamplesPerSecond = experiment.Number(float64(settings.Data.BatchSize) / *d) // of the window, as in a View
		}
	}
}

// samplesOf returns the number of samples of all ranks in the step of r, the newest record of rank 0. The last step of
// an epoch may have fewer samples than data.batch_size, unless data.drop_last is set. If the newest record of another
// rank belongs to another step, samplesOf returns data.batch_size.
func samplesOf(logs *os.Root, r *runtime.Record, ranks int, settings Settings) int64 {
	usual, sum := int64(settings.Data.BatchSize), r.BatchSize
	for rank := 1; rank < ranks; rank++ {
		other, found, _ := readLastRecord(logs, rank)
		if !found || other.Iteration != r.Iteration {
			return usual
		}
		sum += other.BatchSize
	}
	if sum <= 0 || sum > usual {
		return usual
	}
	return sum
}

// noteRecord adds the newest record of rank 0 to the evidence.
func (e *evidence) noteRecord(r *runtime.Record, modified int64) {
	e.steps, e.stepTime = r.Iteration, r.Took()
	e.age = time.Since(time.UnixMilli(modified))
	if !r.Timestamp.IsZero() { // the files of a copied folder are recent, but their records are not
		e.age = max(e.age, time.Since(r.Timestamp).Abs())
	}
}
