package dashboard

import (
	"context"
	"errors"
	"fmt"
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
	// graceTime is the time after the last use in which no other run replaces a follower: a browser that opens or closes a
	// page ends its stream and starts another one with nearly the same runs.
	graceTime = 5 * time.Second
	// firstLook is the time for which the first request for a run waits for records.
	firstLook = 300 * time.Millisecond
	// streamPause is the time between two events per stream of the server. An event costs the server about 60 µs of CPU
	// time per stream, so any number of streams takes less than 1 % of a CPU from a training on the same machine.
	streamPause = 8 * time.Millisecond
	// mostFollowers is the largest number of runs that are open at a time. Each run needs up to about 16 MiB.
	mostFollowers = 8
)

// errBusy means that all followers are in use.
var errBusy = fmt.Errorf("%d runs are being watched, and more are not allowed", mostFollowers)

// follower reads the files of one run while clients watch this run.
type follower struct {
	run    *runs.Run
	cancel context.CancelFunc
	ready  chan struct{} // closed after the files were read for the first time
	done   chan struct{}

	// Server.mu guards users and used.
	users int       // requests and streams that use the follower
	used  time.Time // end of the last use

	mu      sync.Mutex
	changed chan struct{} // closed at the next change, then replaced
}

// follow returns the follower of a run. If there is none, it starts one, or returns errBusy. The follower reads at
// least until the caller calls release.
func (s *Server) follow(ctx context.Context, name string) (f *follower, release func(), err error) {
	s.mu.Lock()
	f = s.followers[name]
	if f == nil {
		run, err := s.options.Folder.Open(name)
		if err == nil && !s.makeRoom() {
			err = errors.Join(errBusy, run.Close())
		}
		if err != nil {
			s.mu.Unlock()
			return nil, nil, err
		}
		ctx, cancel := context.WithCancel(s.over)
		f = &follower{run: run, cancel: cancel, ready: make(chan struct{}), done: make(chan struct{}), changed: make(chan struct{})}
		s.followers[name] = f
		go s.read(ctx, name, f)
	}
	f.users++
	s.mu.Unlock()
	release = sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		f.users, f.used = f.users-1, time.Now()
	})
	select {
	case <-f.ready:
	case <-ctx.Done():
		release()
		return nil, nil, ctx.Err()
	}
	return f, release, nil
}

// makeRoom ends the least recently used follower if there are too many. It reports whether there is room for another
// one: a follower that is in use, or was a moment ago, does not end, because its records would have to be read again. The
// caller must hold s.mu.
func (s *Server) makeRoom() bool {
	if len(s.followers) < mostFollowers {
		return true
	}
	var oldest string
	for name, f := range s.followers {
		if f.users == 0 && time.Since(f.used) >= s.graceTime && (oldest == "" || f.used.Before(s.followers[oldest].used)) {
			oldest = name
		}
	}
	if oldest == "" {
		return false
	}
	s.followers[oldest].cancel()
	delete(s.followers, oldest)
	return true
}

// retire removes a follower that no request has used for keepTime. It reports whether it did.
func (s *Server) retire(name string, f *follower) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.users > 0 || time.Since(f.used) <= keepTime {
		return false
	}
	if s.followers[name] == f {
		delete(s.followers, name)
	}
	return true
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
		pause := time.Duration(s.streams.Load()) * streamPause
		if more {
			pause = max(pause, interval)
		}
		if v := f.run.Version(); v != version && looked && time.Since(told) >= pause {
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
		if s.retire(name, f) {
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

// wait returns a channel that the next change closes, or nil if the follower has ended.
func (f *follower) wait() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
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
