package rendezvous

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"time"
)

const (
	nonceBytes = 32
	tagBytes   = 16

	handshakeTime = 5 * time.Second
)

// magic starts every connection; its last byte is the version of the protocol.
var magic = [8]byte{'h', 't', 'r', 'e', 'n', 'd', 'z', 1}

// Replies to a proof.
const (
	verdictWelcome byte = iota
	verdictToken
)

var (
	errStranger = errors.New("the program at this address does not use the rendezvous protocol")
	errForged   = errors.New("a message has a wrong authentication tag")
	errTooLong  = fmt.Errorf("a message is longer than %d bytes", maxFrame)
	errShort    = errors.New("a message has no type")
)

// link is an authenticated connection. One goroutine may read while another one writes.
type link struct {
	conn      net.Conn
	r         *bufio.Reader
	in, out   hash.Hash // HMAC under the key of each direction
	inN, outN uint64    // number of the next frame
	frame     []byte    // buffer of the writer
}

// hmacOf returns the HMAC-SHA256 of a purpose and both nonces.
func hmacOf(token Token, purpose string, client, server []byte) []byte {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte(purpose))
	mac.Write(client)
	mac.Write(server)
	return mac.Sum(nil)
}

func newLink(conn net.Conn, r *bufio.Reader, inKey, outKey []byte) *link {
	return &link{conn: conn, r: r, in: hmac.New(sha256.New, inKey), out: hmac.New(sha256.New, outKey)}
}

const (
	purposeRank       = "rank"
	purposeServer     = "server"
	purposeFromRank   = "frames from rank"
	purposeFromServer = "frames from server"
)

// greet performs the rank's half of the handshake: both sides prove that they have the token. The rank sends its proof
// first, so that a port scanner receives nothing that depends on the token. The caller must set the deadline.
func greet(conn net.Conn, token Token) (*link, error) {
	var client [nonceBytes]byte
	_, _ = rand.Read(client[:]) // never fails
	if _, err := conn.Write(append(magic[:], client[:]...)); err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	server, err := readGreeting(r)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(hmacOf(token, purposeRank, client[:], server)); err != nil {
		return nil, err
	}
	var verdict [1]byte
	if _, err := io.ReadFull(r, verdict[:]); err != nil {
		return nil, fmt.Errorf("read the reply to the token of this rank: %w", err)
	}
	if verdict[0] == verdictToken {
		return nil, ErrToken
	}
	var proof [sha256.Size]byte
	if _, err := io.ReadFull(r, proof[:]); err != nil {
		return nil, fmt.Errorf("check the token of rank 0: %w", err)
	}
	if !hmac.Equal(proof[:], hmacOf(token, purposeServer, client[:], server)) {
		return nil, ErrToken
	}
	return newLink(conn, r, hmacOf(token, purposeFromServer, client[:], server),
		hmacOf(token, purposeFromRank, client[:], server)), nil
}

// welcome performs the server's half of the handshake. It calls proved when the other side has proved that it has the
// token.
func welcome(conn net.Conn, token Token, proved func()) (*link, error) {
	r := bufio.NewReader(conn)
	client, err := readGreeting(r)
	if err != nil {
		return nil, err
	}
	var server [nonceBytes]byte
	_, _ = rand.Read(server[:]) // never fails
	if _, err := conn.Write(append(magic[:], server[:]...)); err != nil {
		return nil, err
	}
	var proof [sha256.Size]byte
	if _, err := io.ReadFull(r, proof[:]); err != nil {
		return nil, err
	}
	if !hmac.Equal(proof[:], hmacOf(token, purposeRank, client, server[:])) {
		_, _ = conn.Write([]byte{verdictToken}) // best effort: the connection is refused anyway
		return nil, ErrToken
	}
	proved()
	answer := append([]byte{verdictWelcome}, hmacOf(token, purposeServer, client, server[:])...)
	if _, err := conn.Write(answer); err != nil {
		return nil, err
	}
	return newLink(conn, r, hmacOf(token, purposeFromRank, client, server[:]),
		hmacOf(token, purposeFromServer, client, server[:])), nil
}

// readGreeting reads magic and nonce.
func readGreeting(r io.Reader) (nonce []byte, err error) {
	var greeting [len(magic) + nonceBytes]byte
	// An unknown client may send less than a greeting and then wait. The magic bytes suffice to detect such a client.
	if _, err := io.ReadFull(r, greeting[:len(magic)]); err != nil {
		return nil, err
	}
	if name := len(magic) - 1; !bytes.Equal(greeting[:name], magic[:name]) {
		return nil, fmt.Errorf("%w (got %q)", errStranger, greeting[:len(magic)])
	}
	if got, want := greeting[len(magic)-1], magic[len(magic)-1]; got != want {
		return nil, fmt.Errorf("%w (got version %d of the rendezvous protocol, want %d)", errStranger, got, want)
	}
	_, err = io.ReadFull(r, greeting[len(magic):])
	return greeting[len(magic):], err
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
	_, err := l.conn.Write(l.frame)
	if cap(l.frame) > 64<<10 {
		l.frame = nil // frees the buffer after a long frame, because a server may have a thousand links
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

// noEOF returns io.ErrUnexpectedEOF for an end within a frame.
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
