package rendezvous

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"
)

const (
	maxStore    = 64 << 20 // maximum size of all keys and values, bytes
	maxGathered = 32 << 20 // maximum size of all values of one exchange, bytes
)

type stored struct {
	value []byte
	by    int
}

// request is a rank's call that waits for the server's reply.
type request struct {
	peer  *peer
	id    uint32
	since time.Time
}

// gathering is an exchange that some ranks have not reached yet.
type gathering struct {
	values   [][]byte
	requests []*request // waiting requests, by rank; nil: the rank has not arrived
	present  int
	bytes    int
}

// handle processes a frame from a peer. An error means that the frame is invalid.
func (s *server) handle(p *peer, k kind, payload []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &decoder{b: payload}
	member := s.formed && s.failure == nil && !p.left && s.peers[p.member.Rank] == p
	switch k {
	case kindBeat:
		return d.end()
	case kindAbort:
		cause := d.text(maxText)
		if d.end() == nil && member {
			s.fail(&LostError{Rank: p.member.Rank, Cause: cause})
		}
		return d.end()
	case kindLeave:
		if d.end() == nil && member {
			s.leave(p)
		}
		return d.end()
	case kindSet, kindGet, kindGather, kindCancel, kindSurvey, kindAnswer:
		if !member {
			return nil // the frame belongs to a group that has ended
		}
		return s.call(p, k, d)
	}
	return errMalformed
}

func (s *server) call(p *peer, k kind, d *decoder) error {
	r := &request{peer: p, id: d.u32(), since: time.Now()}
	switch k {
	case kindCancel, kindSurvey:
		if err := d.end(); err != nil {
			return err
		}
		if k == kindCancel {
			s.cancel(r)
		} else {
			s.startSurvey(r)
		}
		return nil
	case kindAnswer:
		text := d.bytes(maxText)
		if err := d.end(); err != nil {
			return err
		}
		s.answer(p, r.id, text)
		return nil
	}
	key := d.text(maxKey)
	var value []byte
	if k != kindGet {
		value = d.bytes(maxValue)
	}
	if err := d.end(); err != nil {
		return err
	}
	switch k {
	case kindSet:
		s.set(r, key, value)
	case kindGet:
		if entry, ok := s.store[key]; ok {
			s.reply(r, [][]byte{entry.value})
		} else {
			s.gets[key] = append(s.gets[key], *r)
		}
	case kindGather:
		s.gather(r, key, value)
	}
	return nil
}

func (s *server) set(r *request, key string, value []byte) {
	if old, ok := s.store[key]; ok {
		if !bytes.Equal(old.value, value) {
			s.refuse(r, fmt.Errorf("set key %q: rank %d has already set this key to another value", key, old.by))
			return
		}
		s.reply(r, nil)
		return
	}
	size := len(key) + len(value)
	if s.storeBytes+size > maxStore {
		s.refuse(r, fmt.Errorf("set key %q: the store is full: got %d bytes including this key, want at most %d", key,
			s.storeBytes+size, maxStore))
		return
	}
	s.storeBytes += size
	s.store[key] = stored{value, r.peer.member.Rank}
	s.reply(r, nil)
	for _, waiting := range s.gets[key] {
		s.reply(&waiting, [][]byte{value})
	}
	delete(s.gets, key)
}

func (s *server) gather(r *request, name string, value []byte) {
	for _, p := range s.peers {
		if p.left {
			s.refuse(r, &LostError{Rank: p.member.Rank, Cause: "it has left the group"})
			return
		}
	}
	g := s.gathers[name]
	if g == nil {
		g = &gathering{values: make([][]byte, len(s.peers)), requests: make([]*request, len(s.peers))}
		s.gathers[name] = g
	}
	rank := r.peer.member.Rank
	switch {
	case g.requests[rank] != nil:
		s.refuse(r, fmt.Errorf("exchange %q: this rank has already sent a value", name))
		return
	case g.bytes+len(value) > maxGathered:
		s.refuse(r, fmt.Errorf("exchange %q: the values of all ranks together have more than %d bytes", name,
			maxGathered))
		return
	}
	g.values[rank], g.requests[rank] = value, r
	g.present++
	g.bytes += len(value)
	if g.present < len(s.peers) {
		return
	}
	delete(s.gathers, name)
	for _, waiting := range g.requests {
		s.reply(waiting, g.values)
	}
}

// cancel withdraws a call that its rank no longer waits for, and sends a last reply.
func (s *server) cancel(r *request) {
	rank := r.peer.member.Rank
	mine := func(other request) bool { return other.peer == r.peer && other.id == r.id }
	for key, waiting := range s.gets {
		if i := slices.IndexFunc(waiting, mine); i >= 0 {
			since := waiting[i].since
			if s.gets[key] = slices.Delete(waiting, i, i+1); len(s.gets[key]) == 0 {
				delete(s.gets, key)
			}
			s.refuse(r, &MissingError{What: fmt.Sprintf("key %q, which no rank has set%s", key, s.departed()),
				WorldSize: len(s.peers), Waited: time.Since(since)})
			return
		}
	}
	for _, one := range s.surveys {
		if mine(*one.request) {
			s.endSurvey(one)
			return
		}
	}
	for name, g := range s.gathers {
		if own := g.requests[rank]; own != nil && own.id == r.id {
			s.refuse(r, missingOf(fmt.Sprintf("exchange %q", name), g.requests, func(r *request) bool {
				return r != nil
			}, time.Since(own.since)))
			g.bytes -= len(g.values[rank])
			g.values[rank], g.requests[rank] = nil, nil
			if g.present--; g.present == 0 {
				delete(s.gathers, name)
			}
			return
		}
	}
}

// departed returns a text in brackets that lists the ranks that have left and will therefore never arrive.
func (s *server) departed() string {
	var gone []int
	for rank, p := range s.peers {
		if p.left {
			gone = append(gone, rank)
		}
	}
	if len(gone) == 0 {
		return ""
	}
	return fmt.Sprintf(" (left the group: %s)", RankList(gone, len(gone)))
}

// leave removes a rank that has left with Close. Exchanges that wait for it fail.
func (s *server) leave(p *peer) {
	p.left = true
	for name, g := range s.gathers {
		if g.requests[p.member.Rank] != nil {
			continue
		}
		for _, waiting := range g.requests {
			if waiting != nil {
				s.refuse(waiting, &LostError{Rank: p.member.Rank, Cause: "it has left the group"})
			}
		}
		delete(s.gathers, name)
	}
	p.outbox.push(kindBye, nil)
	p.outbox.close()
}

// reply sends the reply to a request. It uses several frames if the values do not fit into one.
func (s *server) reply(r *request, values [][]byte) {
	for first := true; first || len(values) > 0; first = false {
		size, n := 0, 0
		for n < len(values) && (n == 0 || size+4+len(values[n]) <= maxValue) {
			size += 4 + len(values[n])
			n++
		}
		e := encoder{b: make([]byte, 0, size+16)}
		e.u32(r.id)
		e.u8(boolByte(n < len(values)))
		e.u32(uint32(n))
		for _, value := range values[:n] {
			e.bytes(value)
		}
		s.send(r.peer, kindReply, e.b)
		values = values[n:]
	}
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func (s *server) refuse(r *request, err error) {
	var e encoder
	e.u32(r.id)
	encodeError(&e, err)
	s.send(r.peer, kindFailed, e.b)
}

// causeOf describes why a connection ended.
func causeOf(err error) string {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe):
		return "its connection was closed (the process ended or was killed)"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "its connection was reset (the process ended or was killed)"
	}
	return err.Error()
}
