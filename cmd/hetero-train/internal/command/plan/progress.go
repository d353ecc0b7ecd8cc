package plan

import (
	"sync/atomic"
	"time"
)

// A plan of a large model compiles kernels for tens of seconds if none of them are in the cache.
const (
	firstProgress = 2 * time.Second
	nextProgress  = 10 * time.Second
)

// progress prints the current action of the command, after firstProgress and then every nextProgress.
type progress struct {
	doing atomic.Value // string
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

// end returns after the last line was printed.
func (p *progress) end() {
	close(p.ended)
	<-p.gone
}
