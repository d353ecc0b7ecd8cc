package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// FuzzReadBody checks that any bytes are a frame of at most the permitted length, or an error.
func FuzzReadBody(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 7})
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{255, 255, 255, 255, 1})
	f.Add([]byte{0, 16, 0, 0, 1, 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		body, err := readBody(bytes.NewReader(data))
		if err == nil && (len(body) == 0 || len(body) > maxFrame) {
			t.Errorf("got a frame of %d bytes", len(body))
		}
	})
}

// If a registration can be parsed, encoding it again must give the same bytes.
func FuzzRegistration(f *testing.F) {
	r := registration{member: Member{Rank: 1, LocalRank: -1, PID: 7, Host: "h", Name: "n", Endpoint: "e"}, worldSize: 2,
		generation: 3, facts: []Fact{{"config", "x"}}}
	f.Add(r.encode())
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{255}, 64))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeRegistration(data)
		if err == nil && !bytes.Equal(r.encode(), data) {
			t.Errorf("got %+v of %x", r, data)
		}
	})
}

// Every error that a peer sends must have a printable text.
func FuzzWireError(f *testing.F) {
	for _, err := range []error{io.EOF, &DisagreeError{Differences: []Difference{{"a", "b", "c"}}}, &DuplicateError{},
		&MissingError{Missing: []int{1}, Count: 3}, &LostError{Rank: 1}} {
		var e encoder
		encodeError(&e, err)
		f.Add(e.b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := decoder{b: data}
		if err := decodeError(&d); err == nil {
			t.Error("no error")
		} else {
			_ = err.Error()
		}
	})
}

// FuzzStranger sends any bytes to the port of a group whose ranks wait. The bytes must not affect the group.
func FuzzStranger(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(append(magic[:], make([]byte, 100)...))
	f.Add([]byte{0x16, 3, 1, 2, 0, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		n := newNetwork()
		s := newServer(optionsOf(n), n)
		s.start()
		near, far := net.Pipe()
		go s.serve(far, s.door.Enter(far))
		go func() { _, _ = io.Copy(io.Discard, near) }()
		near.SetDeadline(time.Now().Add(time.Second))
		_, _ = near.Write(data)
		near.Close()
		s.mu.Lock()
		if s.present != 0 || s.failure != nil {
			t.Errorf("%x: %d ranks, failure %v", data, s.present, s.failure)
		}
		s.mu.Unlock()
		s.close()
	})
}

func optionsOf(n *network) Options {
	o := n.options(0, 2)
	if err := o.complete(); err != nil {
		panic(err)
	}
	return o
}

// FuzzMember lets an authenticated rank send any frame after it has joined. The server must not crash. The group must
// stay intact, or must break with a reason that names this rank.
func FuzzMember(f *testing.F) {
	var get, gather, abort encoder
	get.u32(1)
	get.text("key")
	gather.u32(2)
	gather.text("name")
	gather.bytes([]byte("value"))
	abort.text("because")
	f.Add(byte(kindGet), get.b, byte(kindCancel), []byte{0, 0, 0, 1})
	f.Add(byte(kindGather), gather.b, byte(kindGather), gather.b)
	f.Add(byte(kindGather), gather.b, byte(kindLeave), []byte{})
	f.Add(byte(kindSet), gather.b, byte(kindAbort), abort.b)
	f.Add(byte(kindSurvey), []byte{0, 0, 0, 1}, byte(kindAnswer), abort.b)
	f.Add(byte(kindFormed), []byte{1}, byte(0), []byte{})
	f.Fuzz(func(t *testing.T, kindA byte, a []byte, kindB byte, b []byte) {
		if len(a) > maxFrame/2 || len(b) > maxFrame/2 {
			return
		}
		n := newNetwork()
		other := make(chan joined)
		go func() {
			g, err := Join(context.Background(), n.options(1, 2))
			other <- joined{g, err}
		}()
		rank0, err := Join(context.Background(), n.options(0, 2))
		if err != nil {
			t.Fatal(err)
		}
		rank1 := (<-other).group
		rank1.outbox.push(kind(kindA), a)
		rank1.outbox.push(kind(kindB), b)
		// The server ends the connection at this malformed message, after it has read all earlier messages.
		rank1.outbox.push(kind(kindSet), get.b[:2])
		<-rank1.ended
		var lost *LostError
		if err := rank0.Err(); err != nil && (!errors.As(err, &lost) || lost.Rank != 1) {
			t.Errorf("got %v, want rank 1 to be named", err)
		}
		rank1.Close()
		rank0.Close()
	})
}
