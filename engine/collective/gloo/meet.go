//go:build cgo && linux

package gloo

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/crowd"
)

const (
	keyBytes = 16

	// helloTime limits one handshake. A connection that sends nothing is closed after this time.
	helloTime = 5 * time.Second
	// retryTime is the pause between two attempts to connect.
	retryTime = 50 * time.Millisecond
	// spareGuests is the number of concurrent handshakes in addition to one for each rank. Above this number, package
	// crowd chooses the connection to close.
	spareGuests = 64
)

// endpoint is the address of a rank, with the keys that prove that a connection belongs to the run. Ranks exchange
// endpoints through Control.
type endpoint struct {
	Address string
	Hello   []byte // the first message of a rank that connects
	Answer  []byte // the reply to Hello
}

// meeting is one rank's side of connecting all ranks. Of two ranks, the rank with the higher number connects. The
// handshake has three messages: Hello with the rank's number, Answer, and one byte that commits the rank to this
// connection. Other connections to the port get no reply and are closed.
type meeting struct {
	config   Config
	listener *net.TCPListener
	own      endpoint

	mu      sync.Mutex
	sockets []*net.TCPConn  // connections by rank
	arrived []chan struct{} // closed when the socket of the rank is present, by rank
	refused int             // number of connections that did not come from a rank
	guests  *crowd.Crowd
	fault   crowd.Fault
	over    bool
	doors   sync.WaitGroup
}

// open listens for the other ranks.
func (c Config) open(ctx context.Context) (*meeting, error) {
	host, err := c.listenHost()
	if err != nil {
		return nil, err
	}
	listens := net.ListenConfig{KeepAlive: -1} // Control detects lost ranks
	listener, err := listens.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	m := &meeting{config: c, listener: listener.(*net.TCPListener), sockets: make([]*net.TCPConn, c.Size),
		guests: crowd.New(c.Size + spareGuests),
		own: endpoint{Address: listener.Addr().String(), Hello: make([]byte, keyBytes),
			Answer: make([]byte, keyBytes)}}
	rand.Read(m.own.Hello)
	rand.Read(m.own.Answer)
	for range c.Size {
		m.arrived = append(m.arrived, make(chan struct{}))
	}
	m.doors.Go(m.receive)
	return m, nil
}

// listenHost returns the address of Interface, or else Host, or else this machine's host name.
func (c Config) listenHost() (string, error) {
	if c.Interface == "" {
		if c.Host != "" {
			return c.Host, nil
		}
		return os.Hostname()
	}
	card, err := net.InterfaceByName(c.Interface)
	if err != nil {
		return "", err
	}
	addresses, err := card.Addrs()
	if err != nil {
		return "", err
	}
	var host string
	for _, a := range addresses {
		ip, ok := a.(*net.IPNet)
		switch {
		case !ok:
		case ip.IP.To4() != nil:
			return ip.IP.String(), nil
		case host == "" && ip.IP.IsLinkLocalUnicast():
			host = ip.IP.String() + "%" + c.Interface
		case host == "":
			host = ip.IP.String()
		}
	}
	if host == "" {
		return "", errors.New("the interface has no address")
	}
	return host, nil
}

// receive accepts connections until the listener is closed.
func (m *meeting) receive() {
	for {
		conn, err := crowd.Next(m.listener.AcceptTCP, &m.fault)
		if err != nil {
			return // the listener is closed
		}
		guest := m.guests.Enter(conn)
		if guest == nil { // there are too many, and Enter has closed this one
			m.mu.Lock()
			m.refused++
			m.mu.Unlock()
			continue
		}
		m.doors.Go(func() {
			rank, err := m.greet(conn, guest)
			m.leave(conn, rank, err)
		})
	}
}

// greet determines which rank has connected.
func (m *meeting) greet(conn net.Conn, guest *crowd.Guest) (rank int, err error) {
	defer guest.Leave()
	_ = conn.SetDeadline(time.Now().Add(helloTime))
	hello := make([]byte, keyBytes+4)
	if _, err := io.ReadFull(conn, hello); err != nil {
		return 0, err
	}
	rank = int(binary.LittleEndian.Uint32(hello[keyBytes:]))
	if subtle.ConstantTimeCompare(hello[:keyBytes], m.own.Hello) != 1 || rank <= m.config.Rank ||
		rank >= m.config.Size {
		return 0, errors.New("not a rank of this run")
	}
	guest.Prove() // only a rank knows Hello
	if _, err := conn.Write(m.own.Answer); err != nil {
		return 0, err
	}
	_, err = io.ReadFull(conn, hello[:1])
	return rank, err
}

// leave ends a handshake: it keeps the connection of a rank and closes any other.
func (m *meeting) leave(conn *net.TCPConn, rank int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil || m.over || m.sockets[rank] != nil {
		if m.refused++; m.over {
			m.refused--
		}
		conn.Close()
		return
	}
	m.keep(rank, conn)
}

// keep stores the connection of a rank. The caller must hold m.mu.
func (m *meeting) keep(rank int, conn *net.TCPConn) {
	_ = conn.SetDeadline(time.Time{})
	m.sockets[rank] = conn
	close(m.arrived[rank])
}

// close ends all waits, and closes the sockets that Gloo has not received.
func (m *meeting) close() {
	m.mu.Lock()
	m.over = true
	m.listener.Close()
	m.guests.Close()
	m.mu.Unlock()
	m.doors.Wait()
	for _, conn := range m.sockets {
		if conn != nil {
			conn.Close()
		}
	}
}

// connect returns when every other rank is connected, or an error for the first rank that is not.
func (m *meeting) connect(ctx context.Context) error {
	c := m.config
	word, err := json.Marshal(m.own)
	if err == nil {
		err = c.Control.Set(ctx, c.endpointKey(c.Rank), word)
	}
	if err != nil {
		return fmt.Errorf("publish the address of this rank: %w", c.reason(ctx, err))
	}
	for rank := range c.Size {
		if rank == c.Rank {
			continue
		}
		if rank > c.Rank {
			select {
			case <-m.arrived[rank]:
				continue
			case <-ctx.Done():
			}
			m.mu.Lock()
			refused := m.refused
			m.mu.Unlock()
			err := fmt.Errorf(
				"it has not connected to port %s here; this port rejected %d connections from outside this run",
				m.own.Address, refused)
			if fault := m.fault.Err(); fault != nil {
				err = fmt.Errorf("%w; %w", err, fault)
			}
			return m.missing(ctx, rank, err)
		}
		theirs, err := c.endpointOf(ctx, rank)
		if err != nil {
			return fmt.Errorf("wait for the address of rank %d: %w", rank, c.reason(ctx, err))
		}
		if err := m.visit(ctx, rank, theirs); err != nil {
			return m.missing(ctx, rank, fmt.Errorf("connect to port %s: %w", theirs.Address, err))
		}
	}
	return nil
}

// missing returns the error for a rank that is not connected when ctx ends. After a time-out, the error includes found,
// the error of the last attempt.
func (m *meeting) missing(ctx context.Context, rank int, found error) error {
	reason := m.config.reason(ctx, context.Canceled)
	if errors.Is(reason, context.DeadlineExceeded) {
		return &collective.PeerError{Rank: rank, Cause: fmt.Errorf("no connection before the time-out: %w", found)}
	}
	return fmt.Errorf("wait for the connection with rank %d: %w", rank, reason)
}

// visit connects to a rank and retries until ctx ends. It then returns the error of the last attempt.
func (m *meeting) visit(ctx context.Context, rank int, theirs endpoint) (last error) {
	for {
		conn, err := m.knock(ctx, theirs)
		if err == nil {
			m.mu.Lock()
			m.keep(rank, conn)
			m.mu.Unlock()
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-time.After(retryTime):
		case <-ctx.Done():
			return last
		}
	}
}

// knock makes one attempt to connect to a rank.
func (m *meeting) knock(ctx context.Context, theirs endpoint) (*net.TCPConn, error) {
	dialer := net.Dialer{Timeout: helloTime, KeepAlive: -1}
	c, err := dialer.DialContext(ctx, "tcp", theirs.Address)
	if err != nil {
		return nil, err
	}
	conn := c.(*net.TCPConn)
	watching := context.AfterFunc(ctx, func() { conn.Close() })
	err = m.introduce(conn, theirs)
	if !watching() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// introduce performs the handshake on the side that connects.
func (m *meeting) introduce(conn net.Conn, theirs endpoint) error {
	_ = conn.SetDeadline(time.Now().Add(helloTime))
	hello := binary.LittleEndian.AppendUint32(bytes.Clone(theirs.Hello), uint32(m.config.Rank))
	if _, err := conn.Write(hello); err != nil {
		return err
	}
	answer := make([]byte, keyBytes)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	if subtle.ConstantTimeCompare(answer, theirs.Answer) != 1 {
		return errors.New("the program that listens there is not a rank of this run")
	}
	_, err := conn.Write([]byte{1})
	return err
}

// endpointOf waits until another rank has published its address.
func (c Config) endpointOf(ctx context.Context, rank int) (p endpoint, err error) {
	word, err := c.Control.Get(ctx, c.endpointKey(rank))
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(word, &p); err != nil {
		return p, err
	}
	if len(p.Hello) != keyBytes || len(p.Answer) != keyBytes {
		return p, fmt.Errorf("got keys of %d and %d bytes, want %d", len(p.Hello), len(p.Answer), keyBytes)
	}
	return p, nil
}

func (c Config) endpointKey(rank int) string { return c.key("listens/" + strconv.Itoa(rank)) }

// handle returns a new file descriptor of a connection's socket.
func handle(conn syscall.Conn) (fd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	controlled := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(controlled, err)
}
