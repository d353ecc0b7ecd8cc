package rendezvous

import (
	"fmt"
	"time"
)

// missing returns the ranks that have not registered, as the error for the event what.
func (s *server) missing(what string) *MissingError {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.absent(what)
}

// absent is like missing, for callers that hold s.mu. Rank 0 is never missing, even before its registration arrives,
// because the server runs in its process.
func (s *server) absent(what string) *MissingError {
	m := missingOf(what, s.peers[1:], func(p *peer) bool { return p != nil }, time.Since(s.started))
	m.WorldSize = len(s.peers)
	for i := range m.Missing {
		m.Missing[i]++
	}
	return m
}

func missingOf[T any](what string, all []T, here func(T) bool, waited time.Duration) *MissingError {
	m := &MissingError{What: what, WorldSize: len(all), Waited: waited}
	for rank, one := range all {
		if here(one) {
			continue
		}
		m.Count++
		if len(m.Missing) < maxListed {
			m.Missing = append(m.Missing, rank)
		}
	}
	return m
}

// watch sends heartbeats and checks that the ranks' heartbeats arrive.
func (s *server) watch() {
	beat := newPulse(s.options.HeartbeatTimeout)
	defer beat.stop()
	lastSaid := time.Now()
	for {
		slept, ok := beat.next(s.stop)
		if !ok {
			return
		}
		if say := time.Since(lastSaid) >= sayEvery; say {
			lastSaid = time.Now()
			s.sayWhoIsMissing()
		}
		s.beat(slept)
	}
}

const sayEvery = 10 * time.Second // interval at which rank 0 logs the missing ranks

func (s *server) sayWhoIsMissing() {
	if missing := s.missing("waiting for the ranks"); missing.Count > 0 {
		s.log.Info("waiting", "for", RankList(missing.Missing, missing.Count), "of", missing.WorldSize, "since",
			round(missing.Waited))
	}
}

// beat sends a heartbeat to all ranks, and disconnects ranks that were silent for too long. If this process was stopped
// (slept), all time limits start again, because received heartbeats may still be unread.
func (s *server) beat(slept bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil || s.closing {
		return
	}
	k, payload := kindBeat, []byte(nil)
	if !s.formed {
		var e encoder
		encodeMissing(&e, s.absent(""))
		k, payload = kindWaiting, e.b
	}
	now := time.Since(s.started)
	for rank, p := range s.peers {
		if p == nil || p.left {
			continue
		}
		if slept {
			p.heard.Store(int64(now))
		}
		silent := now - time.Duration(p.heard.Load())
		if silent <= s.options.HeartbeatTimeout {
			s.send(p, k, payload)
			continue
		}
		cause := silence(silent)
		if s.formed {
			s.fail(&LostError{Rank: rank, Cause: cause})
			return
		}
		s.peers[rank] = nil // the rank may reconnect when it resumes
		s.present--
		_ = p.link.conn.Close()
	}
}

func silence(d time.Duration) string {
	return fmt.Sprintf("no message for %v (the process is frozen, or its network connection is down)", round(d))
}
