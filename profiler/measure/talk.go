package measure

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// Requests of the measuring rank. A request has 9 bytes: one byte for its kind, then a number of bytes as a
// little-endian uint64. Both sides know the reply.
const (
	ping    = 'p' // the partner returns the request
	send    = 's' // this number of bytes follows; after the last byte, the partner returns the request
	receive = 'r' // the partner returns this number of bytes
	bye     = 'b'
)

const (
	requestBytes = 9
	pieceBytes   = 256 << 10 // size of one write of a transfer in bytes
	firstBytes   = 64 << 10  // size of the first transfer in bytes
	mostBytes    = 256 << 20 // size of the largest transfer in bytes
	mostPings    = 200
)

func request(what byte, n int) []byte {
	b := make([]byte, requestBytes)
	b[0] = what
	binary.LittleEndian.PutUint64(b[1:], uint64(n))
	return b
}

// roundTrip returns the median round-trip time of small messages.
func roundTrip(conn net.Conn, budget time.Duration) (time.Duration, error) {
	var times []time.Duration
	message, echo := request(ping, 0), make([]byte, requestBytes)
	for began := time.Now(); len(times) < 3 || len(times) < mostPings && time.Since(began) < budget; {
		start := time.Now()
		if _, err := conn.Write(message); err != nil {
			return 0, err
		}
		if err := readFull(conn, echo); err != nil {
			return 0, err
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	return max(times[len(times)/2], 1), nil
}

// throughput returns the rate of the largest transfer in MB/s. It increases the size until a transfer takes a quarter
// of the budget.
func throughput(conn net.Conn, what byte, budget time.Duration) (float64, error) {
	piece, echo := make([]byte, pieceBytes), make([]byte, requestBytes)
	began := time.Now()
	for n := firstBytes; ; {
		start := time.Now()
		if _, err := conn.Write(request(what, n)); err != nil {
			return 0, err
		}
		var err error
		if what == send {
			if err = write(conn, piece, n); err == nil {
				err = readFull(conn, echo)
			}
		} else {
			err = discard(conn, piece, n)
		}
		if err != nil {
			return 0, err
		}
		took := max(time.Since(start), 1)
		if n >= mostBytes || took >= budget/4 || time.Since(began)+2*took > budget {
			return float64(n) / took.Seconds() / 1e6, nil
		}
		// On a fast link, the sizes grow by larger factors. No transfer is expected to take more than half of the
		// budget.
		n = min(n*int(max(min(budget/(2*took), 16), 2)), mostBytes)
	}
}

func leave(conn net.Conn) error {
	_, err := conn.Write(request(bye, 0))
	return err
}

// answer serves a measuring rank until it sends bye. It also returns after an error and at the deadline.
func answer(conn net.Conn, deadline time.Time) error {
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	piece, head := make([]byte, pieceBytes), make([]byte, requestBytes)
	for {
		if err := readFull(conn, head); err != nil {
			return err
		}
		n := binary.LittleEndian.Uint64(head[1:])
		if n > mostBytes {
			return fmt.Errorf("got a transfer of %d bytes, want at most %d", n, mostBytes)
		}
		var err error
		switch head[0] {
		case ping:
			_, err = conn.Write(head)
		case send:
			if err = discard(conn, piece, int(n)); err == nil {
				_, err = conn.Write(head)
			}
		case receive:
			err = write(conn, piece, int(n))
		case bye:
			return nil
		default:
			err = fmt.Errorf("got request %q, want p, s, r or b", head[0])
		}
		if err != nil {
			return err
		}
	}
}

func write(conn net.Conn, piece []byte, n int) error {
	for n > 0 {
		m, err := conn.Write(piece[:min(n, len(piece))])
		if err != nil {
			return err
		}
		n -= m
	}
	return nil
}

func discard(conn net.Conn, piece []byte, n int) error {
	for n > 0 {
		m := min(n, len(piece))
		if err := readFull(conn, piece[:m]); err != nil {
			return err
		}
		n -= m
	}
	return nil
}

func readFull(r io.Reader, b []byte) error {
	_, err := io.ReadFull(r, b)
	return err
}
