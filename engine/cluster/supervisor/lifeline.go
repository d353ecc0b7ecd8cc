package supervisor

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// LifelineVariable is the environment variable that tells rank 0 the number of the open file into which its Lifeline writes.
const LifelineVariable = "HETERO_LIFELINE_FD"

// beatEvery is how often a Lifeline that is held gives a sign, and mostHeld how long the supervisor believes it: a process can give signs though what it
// does will never end.
const (
	beatEvery = 500 * time.Millisecond
	mostHeld  = 30 * time.Minute
)

// Lifeline is how a rank says that it must not be ended yet, because it saves. A process that is frozen gives no signs.
type Lifeline struct {
	hold sync.Once
	file *os.File
}

// OpenLifeline is the one that the environment (as os.Environ gives it) names; without one it does nothing. It may be called once in a process.
func OpenLifeline(environment []string) (*Lifeline, error) {
	for _, entry := range environment {
		text, ok := strings.CutPrefix(entry, LifelineVariable+"=")
		if !ok {
			continue
		}
		number, err := strconv.ParseUint(text, 10, 16)
		if err != nil || number < firstExtraFile {
			return nil, fmt.Errorf("%s: got %q, want the number of an open file from %d on", LifelineVariable, text, firstExtraFile)
		}
		syscall.CloseOnExec(int(number)) // a process that this one starts would hold it for longer
		return &Lifeline{file: os.NewFile(uintptr(number), "lifeline")}, nil
	}
	return &Lifeline{}, nil
}

// Hold gives signs from now on, until the process ends. It may be called again, by any goroutine.
func (l *Lifeline) Hold() {
	if l.file == nil {
		return
	}
	l.hold.Do(func() {
		if _, err := l.file.Write([]byte{1}); err != nil {
			return // the supervisor is gone
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

// openLifeline makes the pipe of a rank. What is read from it arrives on beats, which holds one.
func openLifeline(beats chan<- struct{}) (ranks *os.File, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("open the lifeline of rank 0: %w", err)
	}
	go func() { // until the last holder of the other end has ended
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
