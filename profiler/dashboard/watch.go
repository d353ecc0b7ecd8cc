package dashboard

import (
	"context"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/profiler/runs"
)

const (
	// sliceBytes is the number of bytes that are read at a time. Clients therefore wait at most a fraction of a
	// second.
	sliceBytes = 8 << 20
	// keepTime is the time for which a run is followed after the last request for this run.
	keepTime = 60 * time.Second
	// firstLook is the time for which the first request for a run waits for records.
	firstLook = 300 * time.Millisecond
	// mostFollowers is the largest number of runs that are open at a time. Each run needs up to about 16 MiB.
	mostFollowers = 8
)

// follower reads the files of one run while clients watch this run.
type follower struct {
	run    *runs.Run
	cancel context.CancelFunc
	ready  chan struct{} // closed after the files were read for the first time
	done   chan struct{}

	mu      sync.Mutex
	used    time.Time
	changed chan struct{} // closed at the next change, then replaced
}

// follow returns the follower of a run. If there is none, it starts one.
func (s *Server) follow(ctx context.Context, name string) (*follower, error) {
	s.mu.Lock()
	f := s.followers[name]
	if f == nil {
		run, err := s.options.Folder.Open(name)
		if err != nil {
			s.mu.Unlock()
			return nil, err
		}
		s.dropOldest()
		ctx, cancel := context.WithCancel(s.over)
		f = &follower{run: run, cancel: cancel, ready: make(chan struct{}), done: make(chan struct{}), used: time.Now(), changed: make(chan struct{})}
		s.followers[name] = f
		go s.read(ctx, name, f)
	}
	s.mu.Unlock()
	f.mu.Lock()
	f.used = time.Now()
	f.mu.Unlock()
	select {
	case <-f.ready:
	case <-ctx.Done():
	}
	return f, ctx.Err()
}

// dropOldest ends the least recently used follower if there are too many. The caller must hold s.mu.
func (s *Server) dropOldest() {
	if len(s.followers) < mostFollowers {
		return
	}
	var oldest string
	var since time.Time
	for name, f := range s.followers {
		f.mu.Lock()
		if oldest == "" || f.used.Before(since) {
			oldest, since = name, f.used
		}
		f.mu.Unlock()
	}
	s.followers[oldest].cancel()
	delete(s.followers, oldest)
}

// read reads a run until there was no request for it for keepTime.
func (s *Server) read(ctx context.Context, name string, f *follower) {
	defer close(f.done)
	defer f.run.Close() // read only
	defer s.forget(name, f)
	interval := s.options.Refresh
	if interval == 0 {
		interval = pushInterval
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	begin, looked, told := time.Now(), false, time.Time{}
	version := int64(-1)
	for {
		more := f.run.Update(sliceBytes)
		if !looked && (!more || time.Since(begin) > firstLook) {
			looked = true
			close(f.ready)
		}
		if v := f.run.Version(); v != version && looked && (!more || time.Since(told) > interval) {
			version, told = v, time.Now()
			f.mu.Lock()
			close(f.changed)
			f.changed = make(chan struct{})
			f.mu.Unlock()
		}
		if more && ctx.Err() == nil {
			continue
		}
		select {
		case <-ctx.Done():
			if !looked {
				close(f.ready)
			}
			return
		case <-ticker.C:
		}
		f.mu.Lock()
		idle := time.Since(f.used)
		f.mu.Unlock()
		if idle > keepTime {
			return
		}
	}
}

// forget removes a follower that has ended.
func (s *Server) forget(name string, f *follower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.followers[name] == f {
		delete(s.followers, name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.changed) // tells streams that the follower has ended
	f.changed = nil
}

// wait returns a channel that the next change closes, or nil if the follower has ended. It counts as a request for
// the run.
func (f *follower) wait() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used = time.Now()
	return f.changed
}

// closeFollowers ends all followers and waits for them.
func (s *Server) closeFollowers() {
	s.mu.Lock()
	var all []*follower
	for _, f := range s.followers {
		f.cancel()
		all = append(all, f)
	}
	s.mu.Unlock()
	for _, f := range all {
		<-f.done
	}
}
