package handshake

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
)

const (
	// NonceBytes is the length of the random number in a greeting, the first message of each side.
	NonceBytes = 32
	nameBytes  = 8

	// GreetingBytes is the length of a greeting.
	GreetingBytes = nameBytes + NonceBytes
)

// Verdicts that the listener sends about the caller's proof.
const (
	verdictWelcome byte = iota
	verdictSecret
)

// Purposes of the HMACs with which both sides prove the secret.
const (
	purposeCaller   = "caller"
	purposeListener = "listener"
)

// ErrSecret means that the two sides have different secrets.
var ErrSecret = errors.New("the other side has another secret, or none")

// StrangerError reports that the other side does not use the protocol, or uses another version of it.
type StrangerError struct {
	Got  []byte // the first bytes that the other side sent
	Want [nameBytes]byte
}

func (e *StrangerError) Error() string {
	const last = nameBytes - 1
	if len(e.Got) == nameBytes && bytes.Equal(e.Got[:last], e.Want[:last]) {
		return fmt.Sprintf("the other side uses version %d of protocol %s, want version %d", e.Got[last], e.Want[:last],
			e.Want[last])
	}
	return fmt.Sprintf("the other side does not use protocol %s (got %q)", e.Want[:last], e.Got)
}

// Version returns the version of the protocol that the other side uses. The result ok is false if it uses another
// protocol.
func (e *StrangerError) Version() (version byte, ok bool) {
	const last = nameBytes - 1
	if len(e.Got) != nameBytes || !bytes.Equal(e.Got[:last], e.Want[:last]) {
		return 0, false
	}
	return e.Got[last], true
}

// Protocol contains the settings that both sides must have in common.
type Protocol struct {
	Name   [nameBytes]byte // first bytes of each connection; the last byte is the version
	Secret []byte          // empty: every caller is accepted
	Claim  int             // length of the caller's claim, in bytes
}

// Session is the result of a completed handshake.
type Session struct {
	secret     []byte
	transcript []byte // name of the protocol, random numbers of both sides, and claim
	binding    []byte // key of the TLS session; nil: the connection is not encrypted
}

// Key returns the key of this session for a purpose (32 bytes). Both sides get the same key.
func (s *Session) Key(purpose string) []byte {
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte(purpose))
	mac.Write([]byte{0}) // end of the purpose, so that no purpose can continue with bytes of the transcript
	mac.Write(s.transcript)
	mac.Write(s.binding)
	return mac.Sum(nil)
}

// begin returns the session for the random numbers of both sides and a claim.
func (p Protocol) begin(caller, listener, claim []byte) *Session {
	return &Session{secret: p.Secret, transcript: bytes.Join([][]byte{p.Name[:], caller, listener, claim}, nil)}
}

// Call performs the handshake on the side that connects. The claim is a statement of this side about itself, such as
// its rank. The proof covers the claim.
func (p Protocol) Call(conn io.ReadWriter, claim []byte) (*Session, error) {
	if len(claim) != p.Claim {
		return nil, fmt.Errorf("handshake: got a claim of %d bytes, want %d", len(claim), p.Claim)
	}
	caller, err := p.greet(conn)
	if err != nil {
		return nil, err
	}
	listener, err := p.ReadGreeting(conn)
	if err != nil {
		return nil, err
	}
	s := p.begin(caller, listener, claim)
	if _, err := conn.Write(append(bytes.Clone(claim), s.Key(purposeCaller)...)); err != nil {
		return nil, err
	}
	return s, s.await(conn, purposeListener)
}

// await reads the verdict of the other side and its proof.
func (s *Session) await(conn io.Reader, purpose string) error {
	var verdict [1]byte
	if _, err := io.ReadFull(conn, verdict[:]); err != nil {
		return fmt.Errorf("read the reply to the secret of this side: %w", err)
	}
	if verdict[0] != verdictWelcome {
		return ErrSecret
	}
	return s.verify(conn, purpose)
}

// verify reads and checks the proof of the other side.
func (s *Session) verify(conn io.Reader, purpose string) error {
	var proof [sha256.Size]byte
	if _, err := io.ReadFull(conn, proof[:]); err != nil {
		return noEOF(err)
	}
	if !hmac.Equal(proof[:], s.Key(purpose)) {
		return ErrSecret
	}
	return nil
}

// Answer performs the handshake on the side that listens. When the caller has proved the secret, Answer calls accept
// with the caller's claim. If accept returns an error, Answer returns this error and sends nothing more. If the caller
// uses another version of the protocol, Answer sends p.Name.
func (p Protocol) Answer(conn io.ReadWriter, accept func(claim []byte) error) (*Session, error) {
	caller, err := p.ReadGreeting(conn)
	if err != nil {
		var stranger *StrangerError
		if errors.As(err, &stranger) {
			if _, ok := stranger.Version(); ok {
				_, _ = conn.Write(p.Name[:]) // best effort: the connection is refused anyway
				// Read the rest: unread bytes would reset the connection at its end, and the caller might not receive
				// the name.
				_, _ = io.CopyN(io.Discard, conn, NonceBytes)
			}
		}
		return nil, err
	}
	listener, err := p.greet(conn)
	if err != nil {
		return nil, err
	}
	claim := make([]byte, p.Claim)
	if _, err := io.ReadFull(conn, claim); err != nil {
		return nil, err
	}
	s := p.begin(caller, listener, claim)
	if err := s.verify(conn, purposeCaller); err != nil {
		if errors.Is(err, ErrSecret) {
			_, _ = conn.Write([]byte{verdictSecret}) // best effort: the connection is refused anyway
		}
		return nil, err
	}
	if err := accept(claim); err != nil {
		return nil, err
	}
	_, err = conn.Write(append([]byte{verdictWelcome}, s.Key(purposeListener)...))
	return s, err
}

// greet sends the name of the protocol and a random number, and returns the number.
func (p Protocol) greet(conn io.Writer) (nonce []byte, err error) {
	greeting := make([]byte, GreetingBytes)
	copy(greeting, p.Name[:])
	_, _ = rand.Read(greeting[nameBytes:]) // never fails
	_, err = conn.Write(greeting)
	return greeting[nameBytes:], err
}

// ReadGreeting reads the first message of the other side and returns its random number.
func (p Protocol) ReadGreeting(conn io.Reader) (nonce []byte, err error) {
	greeting := make([]byte, GreetingBytes)
	// Read the name first, which is sufficient to detect another program. Such a program may send less than a greeting
	// and then wait.
	if _, err := io.ReadFull(conn, greeting[:nameBytes]); err != nil {
		return nil, err
	}
	if !bytes.Equal(greeting[:nameBytes], p.Name[:]) {
		return nil, &StrangerError{Got: greeting[:nameBytes], Want: p.Name}
	}
	_, err = io.ReadFull(conn, greeting[nameBytes:])
	return greeting[nameBytes:], err
}

// noEOF returns io.ErrUnexpectedEOF if the input ended within a message.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
