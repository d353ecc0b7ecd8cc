package rendezvous

import (
	"fmt"
	"time"
)

// start starts the goroutines that send frames, receive frames, and watch rank 0.
func (g *Group) start() {
	g.heard.Store(int64(time.Since(g.started)))
	g.running.Go(func() { g.outbox.run(g.link) })
	g.running.Go(g.receive)
	g.running.Go(g.watch)
}

// receive handles the server's frames until the connection ends.
func (g *Group) receive() {
	defer close(g.ended)
	defer g.link.conn.Close()
	defer g.outbox.close()
	for {
		k, payload, err := g.link.read()
		if err == nil {
			g.heard.Store(int64(time.Since(g.started)))
			err = g.handle(k, payload)
		}
		if err == nil {
			continue
		}
		if !g.saidBye() || !g.isFormed() {
			g.fail(&LostError{Rank: 0, Cause: causeOf(err)})
		}
		return
	}
}

func (g *Group) saidBye() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.bye
}

func (g *Group) handle(k kind, payload []byte) error {
	d := &decoder{b: payload}
	switch k {
	case kindBeat:
	case kindWaiting:
		absent := decodeMissing(d)
		g.mu.Lock()
		g.absent = absent
		g.mu.Unlock()
	case kindMember:
		return g.addMembers(d)
	case kindFormed:
		return g.complete()
	case kindReply:
		return g.answer(d)
	case kindFailed:
		id, err := d.u32(), decodeError(d)
		if d.end() == nil {
			g.finish(id, err)
		}
	case kindBroken:
		err := decodeError(d)
		if d.end() == nil {
			g.refuse(err)
		}
	case kindAsk:
		number := d.u32()
		if d.end() == nil {
			go g.answerSurvey(number) // in a goroutine, because Options.Status may be slow or never return
		}
	case kindBye:
		g.sayBye()
	default:
		return errMalformed
	}
	return d.end()
}

// refuse records an error of the server as final: another attempt would not help.
func (g *Group) refuse(err error) {
	g.mu.Lock()
	g.refused = true
	g.mu.Unlock()
	g.fail(err)
}

// addMembers decodes one part of the roster.
func (g *Group) addMembers(d *decoder) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(d.b) > 0 && !d.bad {
		m := decodeMember(d)
		if d.bad || m.Rank != len(g.members) || m.Rank >= g.Size() || g.isFormed() {
			return errMalformed
		}
		g.members = append(g.members, m)
	}
	return d.end()
}

func (g *Group) complete() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.members) != g.Size() || g.isFormed() {
		return fmt.Errorf("%w: got a list of %d members, want one list of %d", errMalformed, len(g.members), g.Size())
	}
	close(g.formed)
	return nil
}

func (g *Group) isFormed() bool {
	select {
	case <-g.formed:
		return true
	default:
		return false
	}
}

// answer decodes one frame of a reply.
func (g *Group) answer(d *decoder) error {
	id, more := d.u32(), d.u8()
	values := make([][]byte, d.count(g.Size(), 4))
	for i := range values {
		values[i] = d.bytes(maxFrame)
	}
	if err := d.end(); err != nil || more > 1 {
		return errMalformed
	}
	g.mu.Lock()
	c := g.calls[id]
	if c != nil {
		c.values = append(c.values, values...)
	}
	g.mu.Unlock()
	if more == 0 {
		g.finish(id, nil)
	}
	return nil
}

// finish ends the call with this id. It does nothing if the call has already ended.
func (g *Group) finish(id uint32, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.calls[id]; c != nil {
		c.done <- err
		delete(g.calls, id)
	}
}

// sayBye records that rank 0 has left or released this rank. From then on the end of the connection is not a failure.
func (g *Group) sayBye() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bye = true
	for id, c := range g.calls {
		c.done <- errRank0Left
		delete(g.calls, id)
	}
}

// watch sends heartbeats and checks that rank 0's frames arrive.
func (g *Group) watch() {
	beat := newPulse(g.options.HeartbeatTimeout)
	defer beat.stop()
	for {
		slept, ok := beat.next(g.ended)
		if !ok {
			return
		}
		now := time.Since(g.started)
		if slept {
			g.heard.Store(int64(now))
		}
		if silent := now - time.Duration(g.heard.Load()); silent > g.options.HeartbeatTimeout {
			g.fail(&LostError{Rank: 0, Cause: silence(silent)})
			_ = g.link.conn.Close() // so that receive ends
			return
		}
		g.outbox.push(kindBeat, nil)
	}
}
