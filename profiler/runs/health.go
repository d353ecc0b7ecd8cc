package runs

import (
	"fmt"
	"time"
)

// Health contains the facts about a run on which a health check depends.
type Health struct {
	Name  string
	State State
	// Step is the iteration of the newest record of rank 0; 0: there is no record.
	Step int64
	// Age is the time since the newest record or since the newest start of a process, whichever is later. It is
	// therefore also correct after a resume, and while a start hangs.
	Age time.Duration
	// Recorded is false for a run that writes no records (profile.enabled).
	Recorded bool
	begun    bool // at least the start of a process or a record is known
}

// Health returns the health of a run. It reads only the last record, so its time does not depend on the number of
// steps.
func (f *Folder) Health(name string) (Health, error) {
	f.refresh()
	f.mu.RLock()
	root, err := f.openRoot(name)
	f.mu.RUnlock()
	if err != nil {
		return Health{}, err
	}
	defer root.Close() // read only
	settings, _ := readSettings(root)
	e := gather(root, settings)
	logs, err := openLogs(root, settings)
	if err != nil {
		e.logsErr = err
	} else {
		defer logs.Close() // read only
		if r, found, modified := readLastRecord(logs, 0); found {
			e.noteRecord(&r, modified)
		}
	}
	h := Health{Name: name, State: e.judge(), Step: e.steps, Recorded: settings.recorded()}
	h.Age, h.begun = e.quiet()
	return h, nil
}

// quiet returns the time since the newest record or the newest start, whichever is later. known is false if neither a
// record nor a start exists.
func (e evidence) quiet() (age time.Duration, known bool) {
	since := e.holder.Since // a process that has locked the folder, but has not begun to train
	if e.start != nil {
		since = e.start.Since
	}
	switch {
	case since.IsZero():
		return e.age, e.steps > 0
	case e.steps > 0:
		return min(e.age, time.Since(since).Abs()), true
	}
	return time.Since(since).Abs(), true // the clock of another machine may be ahead
}

// Unhealthy returns why the run is not healthy, or "" if it is. A run is healthy if it is finished. A run is also
// healthy if its Age is at most oldest, and its process is running or cannot be checked from this machine or container.
// Age is ignored if the process is running and writes no records.
func (h Health) Unhealthy(oldest time.Duration) string {
	switch {
	case h.State.Kind == Finished:
		return ""
	case h.State.Kind != Running && h.State.Kind != Unknown:
		return fmt.Sprintf("its state is %s, want %s or %s", h.State.Kind, Running, Finished)
	case !h.Recorded && h.State.Kind == Running:
		return "" // the state alone counts
	case !h.Recorded:
		return "this machine cannot check its process, and it writes no records, because profile.enabled is false"
	case !h.begun:
		return "it has neither a record nor the start of a process"
	case h.Age <= oldest:
		return ""
	case h.Step == 0:
		return fmt.Sprintf("its process began %v ago and has no record yet, want one after at most %v",
			h.Age.Round(time.Second), oldest)
	}
	return fmt.Sprintf("its newest record, or the start after it, is %v old, want at most %v", h.Age.Round(time.Second),
		oldest)
}
