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

// beatEvery is the interval of beats while a Lifeline is held. The supervisor ignores beats after mostHeld, because a process can send beats
// although its save never ends.
const (
	beatEvery = 500 * time.Millisecond
	mostHeld  = 30 * time.Minute
)

// Lifeline tells the supervisor not to end a rank yet, because the rank is saving. A frozen process sends no beats.
type Lifeline struct {
	hold sync.Once
	file *os.File
}

// OpenLifeline opens the pipe that the environment (in the form of os.Environ) names. Without one the Lifeline does nothing. Call it once in a process.
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
		syscall.CloseOnExec(int(number)) // a child process would keep the pipe open
		return &Lifeline{file: os.NewFile(uintptr(number), "lifeline")}, nil
	}
	return &Lifeline{}, nil
}

// Hold sends beats from now on, until the process ends. It is safe for concurrent use, and further calls do nothing.
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

// openLifeline makes the pipe of a rank. Its beats arrive on the channel, which has a capacity of one.
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
