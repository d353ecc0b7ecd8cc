package rendezvous

import (
	"encoding/binary"
	"errors"
	"time"
)

// kind is the first byte of a frame.
type kind byte

const (
	// Frames that a rank sends, with the fields of their payloads.
	kindRegister kind = iota + 1
	kindSet           // id, key, value
	kindGet           // id, key
	kindGather        // id, name, value
	kindCancel        // id
	kindSurvey        // id
	kindAnswer        // number of the survey, status
	kindAbort         // cause
	kindLeave

	// Frames that the server sends.
	kindWaiting // ranks that have not registered
	kindMember  // part of the roster
	kindFormed
	kindReply  // id, more, values
	kindFailed // id, error
	kindAsk    // number of the survey
	kindBroken // error: the group has ended, or the rank cannot join it
	kindBye    // rank 0 has left, or releases this rank

	// Frames that ranks and the server send.
	kindBeat
)

const (
	maxFrame    = 1 << 20
	maxKey      = 1 << 10
	maxText     = 1 << 12          // maximum length of causes and endpoints, bytes
	maxFacts    = 1 << 12          // maximum number of facts of one rank
	maxValue    = maxFrame - 4<<10 // bytes; the difference is for the rest of the frame
	maxRosterAt = maxFrame / 2     // length from which a frame of the roster is sent, bytes
)

var errMalformed = errors.New("malformed message")

// encoder appends to a payload.
type encoder struct{ b []byte }

func (e *encoder) u8(v byte)     { e.b = append(e.b, v) }
func (e *encoder) u32(v uint32)  { e.b = binary.BigEndian.AppendUint32(e.b, v) }
func (e *encoder) u64(v uint64)  { e.b = binary.BigEndian.AppendUint64(e.b, v) }
func (e *encoder) int(v int)     { e.u32(uint32(int32(v))) }
func (e *encoder) text(v string) { e.u32(uint32(len(v))); e.b = append(e.b, v...) }
func (e *encoder) bytes(v []byte) {
	e.u32(uint32(len(v)))
	e.b = append(e.b, v...)
}

// decoder decodes a payload. Missing values read as zero and make end fail.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.bad, d.b = true, nil
		return nil
	}
	head := d.b[:n]
	d.b = d.b[n:]
	return head
}

func (d *decoder) u8() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) int() int { return int(int32(d.u32())) }

// bytes reads a length and at most limit bytes. The result is part of the frame.
func (d *decoder) bytes(limit int) []byte {
	n := d.u32()
	if uint64(n) > uint64(limit) {
		d.bad, d.b = true, nil
		return nil
	}
	return d.take(int(n))
}

func (d *decoder) text(most int) string { return string(d.bytes(most)) }

// count reads the number of the following entries. Each entry has at least size bytes.
func (d *decoder) count(most, size int) int {
	n := d.u32()
	if uint64(n) > uint64(most) || int(n)*size > len(d.b) {
		d.bad, d.b = true, nil
		return 0
	}
	return int(n)
}

// end returns an error if the payload was too short or has unread bytes.
func (d *decoder) end() error {
	if d.bad || len(d.b) > 0 {
		return errMalformed
	}
	return nil
}

// registration is the first message that a rank sends.
type registration struct {
	member     Member
	worldSize  int
	generation uint64
	facts      []Fact
}

func (r *registration) encode() []byte {
	var e encoder
	r.member.encode(&e)
	e.int(r.worldSize)
	e.u64(r.generation)
	encodeFacts(&e, r.facts)
	return e.b
}

func decodeRegistration(payload []byte) (registration, error) {
	d := decoder{b: payload}
	r := registration{member: decodeMember(&d), worldSize: d.int(), generation: d.u64(), facts: decodeFacts(&d)}
	return r, d.end()
}

func (m *Member) encode(e *encoder) {
	e.int(m.Rank)
	e.int(m.LocalRank)
	e.int(m.PID)
	e.text(m.Host)
	e.text(m.Name)
	e.text(m.Endpoint)
}

func decodeMember(d *decoder) Member {
	return Member{Rank: d.int(), LocalRank: d.int(), PID: d.int(), Host: d.text(maxText), Name: d.text(maxText),
		Endpoint: d.text(maxText)}
}

func encodeFacts(e *encoder, facts []Fact) {
	e.u32(uint32(len(facts)))
	for _, fact := range facts {
		e.text(fact.Name)
		e.text(fact.Value)
	}
}

func decodeFacts(d *decoder) []Fact {
	facts := make([]Fact, d.count(maxFacts, 8))
	for i := range facts {
		facts[i] = Fact{d.text(maxFrame), d.text(maxFrame)}
	}
	return facts
}

// Kinds of errors on the wire.
const (
	wireText byte = iota
	wireDisagree
	wireDuplicate
	wireMissing
	wireLost
)

// encodeError encodes an error so that the other side gets an error of the same type.
func encodeError(e *encoder, err error) {
	var disagree *DisagreeError
	var duplicate *DuplicateError
	var missing *MissingError
	var lost *LostError
	switch {
	case errors.As(err, &disagree):
		e.u8(wireDisagree)
		e.int(disagree.Rank)
		e.text(cut(disagree.Who, maxText))
		shown := disagree.Differences[:min(len(disagree.Differences), maxListed)]
		e.u32(uint32(len(shown)))
		for _, d := range shown {
			e.text(cut(d.Name, maxText))
			e.text(cut(d.Value, maxText))
			e.text(cut(d.Rank0, maxText))
		}
	case errors.As(err, &duplicate):
		e.u8(wireDuplicate)
		e.int(duplicate.Rank)
		e.text(cut(duplicate.First, maxText))
		e.text(cut(duplicate.Second, maxText))
	case errors.As(err, &missing):
		e.u8(wireMissing)
		encodeMissing(e, missing)
	case errors.As(err, &lost):
		e.u8(wireLost)
		e.int(lost.Rank)
		e.text(cut(lost.Cause, maxText))
	default:
		e.u8(wireText)
		e.text(cut(err.Error(), maxText))
	}
}

func decodeError(d *decoder) error {
	switch d.u8() {
	case wireDisagree:
		err := &DisagreeError{Rank: d.int(), Who: d.text(maxText)}
		err.Differences = make([]Difference, d.count(maxListed, 12))
		for i := range err.Differences {
			err.Differences[i] = Difference{d.text(maxText), d.text(maxText), d.text(maxText)}
		}
		return err
	case wireDuplicate:
		return &DuplicateError{Rank: d.int(), First: d.text(maxText), Second: d.text(maxText)}
	case wireMissing:
		return decodeMissing(d)
	case wireLost:
		return &LostError{Rank: d.int(), Cause: d.text(maxText)}
	case wireText:
		return errors.New(d.text(maxText))
	}
	d.bad = true
	return errMalformed
}

func encodeMissing(e *encoder, m *MissingError) {
	e.text(cut(m.What, maxText))
	shown := m.Missing[:min(len(m.Missing), maxListed)]
	e.u32(uint32(len(shown)))
	for _, rank := range shown {
		e.int(rank)
	}
	e.int(m.Count)
	e.int(m.WorldSize)
	e.u64(uint64(m.Waited))
}

func decodeMissing(d *decoder) *MissingError {
	m := &MissingError{What: d.text(maxText), Missing: make([]int, d.count(maxListed, 4))}
	for i := range m.Missing {
		m.Missing[i] = d.int()
	}
	m.Count, m.WorldSize, m.Waited = d.int(), d.int(), time.Duration(d.u64())
	return m
}

func cut(text string, most int) string { return text[:min(len(text), most)] }
