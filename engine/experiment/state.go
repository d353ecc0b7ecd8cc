package experiment

import "fmt"

// State is the state of a run in one word. All reports of the program use these words; docs/reports.md defines them.
type State string

// The states of runs. A Result has one of Finished, Stopped and Failed. The other states are derived from the files of
// the run; see profiler/runs.
const (
	Running  State = "running"
	Finished State = "finished"
	Stopped  State = "stopped" // stopped before its end, and can resume
	Failed   State = "failed"  // ended with an error
	Crashed  State = "crashed" // the process ended without a result
	Unknown  State = "unknown" // a process on another machine may be training, but the records are old
)

// Exit codes of a process that a signal has stopped.
const (
	exitTerminated  = 75  // SIGTERM; the state was saved
	exitInterrupted = 130 // SIGINT; the state was saved
	exitUnsaved     = 143 // SIGTERM; nothing was saved
)

// Outcome returns the state of a run that ended with this result. The result why explains the state; it is "" if the
// run has trained all its steps.
func (r *Result) Outcome() (state State, why string) {
	if r.Script != nil {
		return r.Script.outcome(r)
	}
	switch {
	case r.Exit == 0 && r.OutOfTime:
		return Stopped, "train.max_seconds ended the run; the same command resumes"
	case r.Exit == 0 && r.GaveUp != "":
		return Finished, "train.early_stop_patience ended the run: " + r.GaveUp
	case r.Exit == 0:
		return Finished, ""
	case r.Exit == exitUnsaved:
		return Stopped, "SIGTERM ended the run, and nothing was saved; the same command continues from the newest checkpoint, if there is one"
	case (r.Exit == exitTerminated || r.Exit == exitInterrupted) && r.Steps == 0:
		return Stopped, "a signal ended the run before its first step was complete; the same command starts it again"
	case r.Exit == exitTerminated || r.Exit == exitInterrupted:
		return Stopped,
			fmt.Sprintf("a signal ended the run after step %d and its state was saved; the same command resumes",
				r.Steps)
	}
	return Failed, fmt.Sprintf("exit code %d: %s", r.Exit, r.Error)
}
