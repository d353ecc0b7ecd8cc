package rendezvous

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/handshake"
)

// tap records the outgoing bytes of a connection.
type tap struct {
	net.Conn
	sent bytes.Buffer
}

func (t *tap) Write(p []byte) (int, error) {
	t.sent.Write(p)
	return t.Conn.Write(p)
}

// shakeHands connects both ends of a pipe.
func shakeHands(t *testing.T, rank, server Token) (rankLink, serverLink *link, rankErr, serverErr error) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() {
		near.Close()
		far.Close()
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		if serverLink, serverErr = welcome(far, server, &handshake.TLS{}, func() {}); serverErr != nil {
			far.Close()
		}
	}()
	rankLink, rankErr = greet(near, rank, &handshake.TLS{Client: true})
	<-done
	return rankLink, serverLink, rankErr, serverErr
}

func TestBothSidesProveThatTheyHaveTheToken(t *testing.T) {
	a, b := newToken(), newToken()
	tests := []struct {
		name         string
		rank, server Token
		want         error
	}{
		{"the same", a, a, nil},
		{"none", "", "", nil},
		{"another", a, b, ErrToken},
		{"only the server's", "", b, ErrToken},
		{"only the rank's", a, "", ErrToken},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, _, rankErr, serverErr := shakeHands(t, test.rank, test.server)
			if !errors.Is(rankErr, test.want) || !errors.Is(serverErr, test.want) {
				t.Errorf("got %v and %v, want %v twice", rankErr, serverErr, test.want)
			}
		})
	}
}

// A server without the token can send a welcome, but the proof in this welcome is wrong.
func TestFalseServerIsFoundOut(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		r := make([]byte, handshake.GreetingBytes)
		io.ReadFull(far, r)
		far.Write(r) // any nonce
		io.ReadFull(far, make([]byte, sha256.Size))
		far.Write(make([]byte, 1+sha256.Size))
		far.Close()
	}()
	if _, err := greet(near, newToken(), nil); !errors.Is(err, ErrToken) {
		t.Errorf("got %v, want ErrToken", err)
	}
}

func TestRecordedHandshakeIsWorthNothing(t *testing.T) {
	token := newToken()
	near, far := net.Pipe()
	recorded := &tap{Conn: near}
	go func() { _, _ = welcome(far, token, nil, func() {}) }()
	l, err := greet(recorded, token, nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, far) }()
	if err := l.write(kindRegister, []byte("payload")); err != nil {
		t.Fatal(err)
	}
	near.Close()

	attacker, server := net.Pipe()
	defer attacker.Close()
	go func() { _, _ = io.Copy(io.Discard, attacker) }()
	go func() { _, _ = attacker.Write(recorded.sent.Bytes()) }()
	if _, err := welcome(server, token, nil, func() {}); !errors.Is(err, ErrToken) {
		t.Errorf("got %v, want ErrToken", err)
	}
}

func TestFramesArriveAsTheyWereSent(t *testing.T) {
	rank, server, err, _ := shakeHands(t, "", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 1, 100, 4 << 10, 100 << 10, maxFrame - 1} {
		payload := bytes.Repeat([]byte{7}, size)
		written := make(chan error)
		go func() { written <- rank.write(kindSet, payload) }()
		k, got, err := server.read()
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		if err != nil || k != kindSet || !bytes.Equal(got, payload) {
			t.Fatalf("%d bytes: got kind %d, %d bytes, error %v", size, k, len(got), err)
		}
	}
	if err := rank.write(kindSet, make([]byte, maxFrame)); !errors.Is(err, errTooLong) {
		t.Errorf("got %v, want errTooLong", err)
	}
}

func TestFramesThatWereTouchedAreRefused(t *testing.T) {
	tests := []struct {
		name  string
		touch func(frames [][]byte) []byte
		want  error
	}{
		{"as they were", func(f [][]byte) []byte { return bytes.Join(f, nil) }, io.EOF},
		{"a bit of the payload", func(f [][]byte) []byte { f[0][6] ^= 1; return f[0] }, errForged},
		{"another kind", func(f [][]byte) []byte { f[0][4]++; return f[0] }, errForged},
		{"a bit of the tag", func(f [][]byte) []byte { f[0][len(f[0])-1] ^= 128; return f[0] }, errForged},
		{"the second first", func(f [][]byte) []byte { return f[1] }, errForged},
		{"the first twice", func(f [][]byte) []byte { return append(f[0], f[0]...) }, errForged},
		{"cut in the length", func(f [][]byte) []byte { return f[0][:2] }, io.ErrUnexpectedEOF},
		{"cut in the payload", func(f [][]byte) []byte { return f[0][:7] }, io.ErrUnexpectedEOF},
		{"cut in the tag", func(f [][]byte) []byte { return f[0][:len(f[0])-3] }, io.ErrUnexpectedEOF},
		{"length 0", func([][]byte) []byte { return make([]byte, 40) }, errShort},
		{"length 2^32-1", func([][]byte) []byte { return bytes.Repeat([]byte{255}, 40) }, errTooLong},
		{"one byte too long", func([][]byte) []byte { return binary.BigEndian.AppendUint32(nil, maxFrame+1) },
			errTooLong},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			rank, server, err, _ := shakeHands(t, "", "")
			if err != nil {
				t.Fatal(err)
			}
			var frames [][]byte
			raw := rank.w // the frames are inside TLS, which detects changes on the network
			for _, payload := range []string{"first", "second"} {
				recorded := &tap{Conn: discard{}}
				rank.w = recorded
				if err := rank.write(kindSet, []byte(payload)); err != nil {
					t.Fatal(err)
				}
				frames = append(frames, recorded.sent.Bytes())
			}
			go func() {
				raw.Write(test.touch(frames))
				rank.conn.Close()
			}()
			for err == nil {
				_, _, err = server.read()
			}
			if !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// discard is a connection that accepts all bytes.
type discard struct{ net.Conn }

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func TestLongFramesTakeMemoryOnlyAsBytesArrive(t *testing.T) {
	head := binary.BigEndian.AppendUint32(nil, maxFrame)
	bytesPerRun := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if _, err := readBody(io.MultiReader(bytes.NewReader(head),
				bytes.NewReader(make([]byte, 100)))); !errors.Is(err, io.ErrUnexpectedEOF) {
				b.Fatalf("got %v, want an unexpected end", err)
			}
		}
	}).AllocedBytesPerOp()
	if bytesPerRun > 64<<10 {
		t.Errorf("a frame of which 100 bytes came took %d bytes", bytesPerRun)
	}
}

func TestErrorsKeepTheirTypeOnTheWire(t *testing.T) {
	tests := []error{
		errors.New("any"),
		&DisagreeError{Rank: 3, Who: "h, process 1", Differences: []Difference{{"a", "1", "2"}, {"b", "", "x"}}},
		&DuplicateError{Rank: 1, First: "x", Second: "y"},
		&MissingError{What: "w", Missing: []int{1, 2, 5}, Count: 9, WorldSize: 12, Waited: 3 * time.Second},
		&LostError{Rank: 2, Cause: "killed"},
	}
	for _, want := range tests {
		var e encoder
		encodeError(&e, want)
		d := decoder{b: e.b}
		got := decodeError(&d)
		if err := d.end(); err != nil || got.Error() != want.Error() {
			t.Errorf("got %v (%v), want %v", got, err, want)
		}
	}
}

// newToken returns a token of 32 random bytes, as 64 hexadecimal digits.
func newToken() Token {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	return Token(hex.EncodeToString(random[:]))
}
