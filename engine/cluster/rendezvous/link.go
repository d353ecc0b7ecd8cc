package rendezvous

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"time"

	"github.com/hetero-train/hetero-train/engine/handshake"
)

const (
	tagBytes = 16

	handshakeTime = 5 * time.Second
)

// magic starts every connection; its last byte is the version of the protocol.
var magic = [8]byte{'h', 't', 'r', 'e', 'n', 'd', 'z', 2}

var (
	errStranger = errors.New("the program at this address does not use the rendezvous protocol")
	errForged   = errors.New("a message has a wrong authentication tag")
	errTooLong  = fmt.Errorf("a message is longer than %d bytes", maxFrame)
	errShort    = errors.New("a message has no type")
)

// link is an authenticated connection. One goroutine may read while another one writes.
type link struct {
	conn      net.Conn // only for deadlines and for closing; its bytes are encrypted
	w         io.Writer
	r         *bufio.Reader
	in, out   hash.Hash // HMAC under the key of each direction
	inN, outN uint64    // number of the next frame
	frame     []byte    // write buffer
}

const (
	purposeFromRank   = "frames from rank"
	purposeFromServer = "frames from server"
)

// protocol returns the parameters of package handshake for a group.
func protocol(token Token) handshake.Protocol {
	return handshake.Protocol{Name: magic, Secret: []byte(token)}
}

// greet performs the rank's half of the handshake, in which both sides prove that they have the token. The parameter
// secure configures the encryption; nil, for a connection within a process, means none. The caller must set the
// deadline.
func greet(conn net.Conn, token Token, secure *handshake.TLS) (*link, error) {
	session, err := protocol(token).Call(conn, nil)
	if err != nil {
		return nil, explainedHandshake(err)
	}
	return newLink(conn, session, secure, purposeFromServer, purposeFromRank)
}

// welcome performs the server's half of the handshake. It calls proved as soon as the other side has proved that it has
// the token.
func welcome(conn net.Conn, token Token, secure *handshake.TLS, proved func()) (*link, error) {
	session, err := protocol(token).Answer(conn, func([]byte) error { proved(); return nil })
	if err != nil {
		return nil, explainedHandshake(err)
	}
	return newLink(conn, session, secure, purposeFromRank, purposeFromServer)
}

// newLink encrypts the connection, and derives the HMAC keys of both directions.
func newLink(conn net.Conn, session *handshake.Session, secure *handshake.TLS, in, out string) (*link, error) {
	l := &link{conn: conn, w: conn}
	var r io.Reader = conn
	if secure != nil {
		sealed, err := session.Encrypt(conn, *secure)
		if err != nil {
			return nil, err
		}
		r, l.w = sealed, sealed
	}
	l.r = bufio.NewReader(r)
	l.in, l.out = hmac.New(sha256.New, session.Key(in)), hmac.New(sha256.New, session.Key(out))
	return l, nil
}

// explainedHandshake converts an error of package handshake to an error of this package.
func explainedHandshake(err error) error {
	var stranger *handshake.StrangerError
	switch {
	case errors.Is(err, handshake.ErrSecret):
		return ErrToken
	case errors.As(err, &stranger):
		if version, ok := stranger.Version(); ok {
			return fmt.Errorf("%w: got version %d, want %d: use the same version of hetero-train on all machines",
				ErrVersion, version, magic[len(magic)-1])
		}
		return fmt.Errorf("%w (got %q)", errStranger, stranger.Got)
	}
	return err
}

// write sends one frame.
func (l *link) write(k kind, payload []byte) error {
	length := 1 + len(payload)
	if length > maxFrame {
		return errTooLong
	}
	l.frame = binary.BigEndian.AppendUint32(l.frame[:0], uint32(length))
	l.frame = append(l.frame, byte(k))
	l.frame = append(l.frame, payload...)
	l.frame = append(l.frame, sum(l.out, l.outN, l.frame[4:])[:tagBytes]...)
	l.outN++
	_, err := l.w.Write(l.frame)
	if cap(l.frame) > 64<<10 {
		l.frame = nil // free a long buffer, because a server may have a thousand links
	}
	return err
}

// read receives one frame. The caller owns the payload.
func (l *link) read() (kind, []byte, error) {
	body, err := readBody(l.r)
	if err != nil {
		return 0, nil, err
	}
	var tag [tagBytes]byte
	if _, err := io.ReadFull(l.r, tag[:]); err != nil {
		return 0, nil, noEOF(err)
	}
	if !hmac.Equal(tag[:], sum(l.in, l.inN, body)[:tagBytes]) {
		return 0, nil, errForged
	}
	l.inN++
	return kind(body[0]), body[1:], nil
}

// readBody reads the length and the body of a frame. It allocates memory only as bytes arrive.
func readBody(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head[:])
	switch {
	case length == 0:
		return nil, errShort
	case length > maxFrame:
		return nil, errTooLong
	case length <= 4<<10:
		body := make([]byte, length)
		_, err := io.ReadFull(r, body)
		return body, noEOF(err)
	}
	var body bytes.Buffer
	_, err := io.CopyN(&body, r, int64(length))
	return body.Bytes(), noEOF(err)
}

// noEOF replaces io.EOF by io.ErrUnexpectedEOF, because the connection ended within a frame.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func sum(mac hash.Hash, number uint64, body []byte) []byte {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], number)
	mac.Reset()
	mac.Write(n[:])
	mac.Write(body)
	return mac.Sum(nil)
}
