package plan

import (
	"sync/atomic"
	"time"
)

// Times of the progress messages. To plan a large model can take tens of seconds, because kernels that are not in the
// cache must be compiled.
const (
	firstProgress = 2 * time.Second
	nextProgress  = 10 * time.Second
)

// progress prints the current action of the command: first after firstProgress, then at intervals of nextProgress.
type progress struct {
	doing atomic.Value // current action, a string
	ended chan struct{}
	gone  chan struct{}
}

func startProgress(doing string, say func(text string)) *progress {
	p := &progress{ended: make(chan struct{}), gone: make(chan struct{})}
	p.doing.Store(doing)
	go func() {
		defer close(p.gone)
		timer := time.NewTimer(firstProgress)
		defer timer.Stop()
		for {
			select {
			case <-p.ended:
				return
			case <-timer.C:
				say(p.doing.Load().(string))
				timer.Reset(nextProgress)
			}
		}
	}()
	return p
}

func (p *progress) set(doing string) { p.doing.Store(doing) }

// end stops the messages. It returns after the last message was printed.
func (p *progress) end() {
	close(p.ended)
	<-p.gone
}
