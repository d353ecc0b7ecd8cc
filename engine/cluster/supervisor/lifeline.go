package supervisor

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// LifelineVariable is the environment variable with the file descriptor to which rank 0's Lifeline writes.
const LifelineVariable = "HETERO_LIFELINE_FD"

// beatEvery is the interval of heartbeats after Hold. The supervisor ignores heartbeats after mostHeld, because a
// process may send heartbeats although its save hangs.
const (
	beatEvery = 500 * time.Millisecond
	mostHeld  = 30 * time.Minute
)

// Lifeline asks the supervisor not to kill a rank that is saving. A frozen process sends no heartbeats.
type Lifeline struct {
	hold  sync.Once
	saves atomic.Bool
	file  *os.File
}

// OpenLifeline opens the pipe that environment names; environment has the form of os.Environ. Without a pipe, the
// Lifeline does nothing. Call OpenLifeline once per process.
func OpenLifeline(environment []string) (*Lifeline, error) {
	number, err := inherited(environment, LifelineVariable)
	if err != nil {
		return nil, err
	}
	if number == 0 {
		return &Lifeline{}, nil
	}
	closeOnExec(number) // otherwise a child process would keep the pipe open
	return &Lifeline{file: os.NewFile(uintptr(number), "lifeline")}, nil
}

// Hold sends heartbeats until the process ends. It is safe for concurrent use; further calls do nothing.
func (l *Lifeline) Hold() {
	if l.file == nil {
		return
	}
	l.hold.Do(func() {
		if _, err := l.file.Write([]byte{1}); err != nil {
			return // the supervisor has ended
		}
		go func() {
			for range time.Tick(beatEvery) {
				if _, err := l.file.Write([]byte{1}); err != nil {
					return
				}
			}
		}()
	})
}

// HoldToSave is like Hold, for a rank that has begun to save, or that waits while another rank saves.
func (l *Lifeline) HoldToSave() {
	l.saves.Store(true)
	l.Hold()
}

// starter is the process that started this process: in a rank, its supervisor.
var starter = os.Getppid()

// EndWithSupervisor sends SIGTERM to this process when its supervisor ends; only on Linux does the kernel also do so.
// After the time limit, or after half an hour if HoldToSave was called, it kills the process and its group.
// EndWithSupervisor returns immediately. Only a rank that a supervisor has started may call it.
func (l *Lifeline) EndWithSupervisor(limit time.Duration) {
	go func() {
		for os.Getppid() == starter {
			time.Sleep(orphanedEvery)
		}
		terminateSelf()
		for orphaned := time.Now(); time.Since(orphaned) < limit || l.saves.Load() && time.Since(orphaned) < mostHeld; {
			time.Sleep(min(orphanedEvery, limit))
		}
		killOwnGroup()
	}()
}

// orphanedEvery is the interval at which a rank checks whether its supervisor still runs.
const orphanedEvery = 500 * time.Millisecond

// openLifeline creates the pipe for the heartbeats of a rank. They arrive on beats, whose capacity is one. The result
// is the end of the pipe for the rank.
func openLifeline(beats chan<- struct{}) (ranks *os.File, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("create the pipe for the heartbeats of rank 0: %w", err)
	}
	go func() { // ends when all processes that hold the other end have ended
		defer r.Close()
		b := make([]byte, 16)
		for {
			if _, err := r.Read(b); err != nil {
				return
			}
			select {
			case beats <- struct{}{}:
			default:
			}
		}
	}()
	return w, nil
}
