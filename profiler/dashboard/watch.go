package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/profiler/runs"
)

const (
	// sliceBytes is the number of bytes that are read at a time. It is so small that clients wait at most a fraction of
	// a second.
	sliceBytes = 8 << 20
	// keepTime is the time for which a run is followed after the last request for this run.
	keepTime = 60 * time.Second
	// For graceTime after the end of a follower's last stream, no other run replaces the follower. A browser that opens
	// or closes a page ends its stream and starts another one with nearly the same runs.
	graceTime = 5 * time.Second
	// firstLook is the time for which the first request for a run waits until records are read.
	firstLook = 300 * time.Millisecond
	// The pause between two events of a run is at least streamPause times the number of streams of this run. On a CPU
	// that a training run keeps busy, an event costs the server about 35 µs of CPU time per stream, so 1,000 streams
	// take 0.35 % of this CPU. Measured by scripts/dashboard_clients.py --train-cpus 0 --client-cpus 1 --load stream
	streamPause = 10 * time.Millisecond
	// mostPause limits this pause. It is reached with 3,000 streams.
	mostPause = 30 * time.Second
	// mostFollowers is the largest number of runs that are followed at a time. Each run needs up to about 16 MiB.
	mostFollowers = 8
	// mostVisits is the largest number of runs that are open at a time for a single request each.
	mostVisits = 2
)

// errBusy means that all followers are in use.
var errBusy = fmt.Errorf("%d runs are being watched, and more are not allowed", mostFollowers)

// errGone means that the folder of a run was deleted or renamed while the run was followed.
var errGone = fmt.Errorf("the folder of the run no longer exists: %w", fs.ErrNotExist)

// follower reads the files of one run while clients watch this run.
type follower struct {
	run    *runs.Run
	cancel context.CancelFunc
	ready  chan struct{} // closed after the files were read for the first time
	done   chan struct{}

	streams atomic.Int64 // streams that send the versions of the run
	gone    atomic.Bool  // the follower has ended because the folder of the run was deleted, renamed or replaced

	// Server.mu guards users, used and left.
	users int       // requests and streams that use the follower
	used  time.Time // end of the last use
	left  time.Time // end of the last stream; zero before the first end

	mu      sync.Mutex
	changed chan struct{} // closed at the next change, then replaced
}

// join returns the follower of a run for a stream. The caller calls leave at the end of the stream.
func (s *Server) join(ctx context.Context, name string) (f *follower, leave func(), err error) {
	f, release, err := s.follow(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	f.streams.Add(1)
	return f, sync.OnceFunc(func() {
		f.streams.Add(-1)
		s.mu.Lock()
		f.left = time.Now()
		s.mu.Unlock()
		release()
	}), nil
}

// follow returns the follower of a run. If there is none, it starts one, or returns errBusy if there are too many. The
// follower reads at least until the caller calls release, or until the folder of the run is gone.
func (s *Server) follow(ctx context.Context, name string) (f *follower, release func(), err error) {
	var run *runs.Run
	for {
		s.mu.Lock()
		if f = s.followers[name]; f != nil || run != nil {
			break
		}
		s.mu.Unlock() // a slow folder must not block other runs
		// Call Open before room, so that a missing run never gives errBusy.
		if run, err = s.options.Folder.Open(name); err != nil {
			return nil, nil, err
		}
	}
	if f != nil {
		if run != nil { // meanwhile, another request has started the follower
			run.Close() // read only
		}
	} else {
		oldest, room := s.room()
		if !room {
			s.mu.Unlock()
			return nil, nil, errors.Join(errBusy, run.Close())
		}
		if oldest != "" {
			s.followers[oldest].cancel()
			delete(s.followers, oldest)
		}
		ctx, cancel := context.WithCancel(s.over)
		f = &follower{run: run, cancel: cancel, ready: make(chan struct{}), done: make(chan struct{}),
			changed: make(chan struct{})}
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

// visit returns the follower of a run. If the server can follow no further run, visit opens the run for this request
// alone and reads all its files. A comparison needs the records only once, so the run need not be followed.
func (s *Server) visit(ctx context.Context, name string) (f *follower, release func(), err error) {
	if f, release, err = s.follow(ctx, name); !errors.Is(err, errBusy) {
		return f, release, err
	}
	select {
	case s.visits <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	run, err := s.options.Folder.Open(name)
	if err != nil {
		<-s.visits
		return nil, nil, err
	}
	for run.Update(sliceBytes) && ctx.Err() == nil && s.over.Err() == nil {
	}
	return &follower{run: run}, sync.OnceFunc(func() {
		run.Close() // read only
		<-s.visits
	}), nil
}

// isVisit reports whether the follower serves only one request.
func (f *follower) isVisit() bool { return f.done == nil }

// room reports whether another follower may start. If an existing follower must end first, oldest is the run of the
// least recently used one. A follower in use, or within graceTime after its last stream, does not end, because its
// records would soon have to be read again. The caller must hold s.mu.
func (s *Server) room() (oldest string, ok bool) {
	if len(s.followers) < mostFollowers {
		return "", true
	}
	for name, f := range s.followers {
		if f.users == 0 && time.Since(f.left) >= s.graceTime &&
			(oldest == "" || f.used.Before(s.followers[oldest].used)) {
			oldest = name
		}
	}
	return oldest, oldest != ""
}

// due reports whether streams may get the next event. told is the time of the last event. more is true while the files
// contain records that are not read yet.
func due(told, now time.Time, streams int64, more bool, interval time.Duration) bool {
	pause := min(time.Duration(streams)*streamPause, mostPause)
	if more {
		pause = max(pause, interval)
	}
	return now.Sub(told) >= pause
}

// retire removes a follower if no request has used it for keepTime. It reports whether it has removed the follower.
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

// read reads the files of a run until no request has used the follower for keepTime, or until the folder of the run is
// gone.
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
		v, now := f.run.Version(), time.Now()
		if !looked && (!more || now.Sub(begin) > firstLook) {
			looked, version, told = true, v, now // clients get this version as soon as the follower is ready
			close(f.ready)
		}
		if looked && v != version && due(told, now, f.streams.Load(), more, interval) {
			version, told = v, now
			f.mu.Lock()
			close(f.changed)
			f.changed = make(chan struct{})
			f.mu.Unlock()
		}
		if more && ctx.Err() == nil {
			continue
		}
		if err := f.run.SaveIndex(); err != nil {
			s.unindexed.Do(func() {
				s.options.Log.Warn("an index of records could not be written: the next start of the dashboard may read them again",
					"error", err)
			})
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
		if !s.options.Folder.Holds(f.run) {
			f.gone.Store(true)
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
