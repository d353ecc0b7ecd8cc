//go:build cgo && linux

package gloo

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
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
	"github.com/hetero-train/hetero-train/engine/handshake"
)

const (
	keyBytes = 32

	// helloTime limits one handshake. A connection that sends nothing is closed after this time.
	helloTime = 5 * time.Second
	// retryTime is the pause between two attempts to connect.
	retryTime = 50 * time.Millisecond
	// spareGuests is the number of concurrent handshakes that are allowed in addition to one per rank. If there are
	// more, package crowd selects the connection to close.
	spareGuests = 64
)

// magic is sent at the start of every connection. Its last byte is the version of the protocol.
var magic = [8]byte{'h', 't', 'r', 'p', 'e', 'e', 'r', 1}

// endpoint is the address of a rank, with a key for connections to it. Ranks exchange endpoints through Control.
type endpoint struct {
	Address string
	Key     []byte
	Shape   *Shape `json:",omitempty"` // Config.Shape
}

// meeting connects one rank to all other ranks. Of two ranks, the rank with the higher number connects. Package
// handshake identifies both sides. With one further byte, the rank then commits itself to this connection. Other
// connections to the port get no proof and are closed.
type meeting struct {
	config   Config
	listener *net.TCPListener
	own      endpoint

	mu      sync.Mutex
	sockets []net.Conn      // connections by rank: *net.TCPConn or *tls.Conn
	arrived []chan struct{} // closed when the socket of the rank is present, by rank
	refused int             // number of connections that did not come from a rank
	guests  *crowd.Crowd
	fault   crowd.Fault
	over    bool
	doors   sync.WaitGroup
}

// protocol returns the handshake with the rank of an endpoint. The secret depends on the token of the run and on the
// endpoint's key, so a program must know both. The claim in the handshake is the number of the connecting rank.
func (c Config) protocol(p endpoint) handshake.Protocol {
	mac := hmac.New(sha256.New, c.Secret)
	mac.Write(p.Key)
	return handshake.Protocol{Name: magic, Secret: mac.Sum(nil), Claim: 4}
}

// open listens for the other ranks.
func (c Config) open(ctx context.Context) (*meeting, error) {
	host, err := c.listenHost()
	if err != nil {
		return nil, err
	}
	listens := net.ListenConfig{KeepAlive: -1} // Control detects lost ranks
	listener, err := c.Ports.Listen(ctx, listens, host)
	if err != nil {
		return nil, err
	}
	m := &meeting{config: c, listener: listener.(*net.TCPListener), sockets: make([]net.Conn, c.Size),
		guests: crowd.New(c.Size + spareGuests),
		own:    endpoint{Address: listener.Addr().String(), Key: make([]byte, keyBytes), Shape: c.Shape}}
	rand.Read(m.own.Key)
	for range c.Size {
		m.arrived = append(m.arrived, make(chan struct{}))
	}
	m.doors.Go(m.receive)
	return m, nil
}

// listenHost returns the address of Interface. If that is not set, it returns the address of Host, or else of this
// machine's host name.
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
		if guest == nil { // there were too many connections, and Enter has closed this one
			m.mu.Lock()
			m.refused++
			m.mu.Unlock()
			continue
		}
		m.doors.Go(func() {
			rank, secure, err := m.greet(conn, guest)
			m.leave(secure, rank, err)
		})
	}
}

// greet determines which rank has connected. It returns the connection to use for this rank.
func (m *meeting) greet(conn net.Conn, guest *crowd.Guest) (rank int, secure net.Conn, err error) {
	defer guest.Leave()
	_ = conn.SetDeadline(time.Now().Add(helloTime))
	session, err := m.config.protocol(m.own).Answer(conn, func(claim []byte) error {
		if rank = int(binary.LittleEndian.Uint32(claim)); rank <= m.config.Rank || rank >= m.config.Size {
			return fmt.Errorf("got a connection of rank %d, want a rank above %d", rank, m.config.Rank)
		}
		guest.Prove()
		return nil
	})
	if err != nil {
		return 0, conn, err
	}
	if secure, err = m.config.secure(conn, session, false); err != nil {
		return 0, conn, err
	}
	_, err = io.ReadFull(secure, make([]byte, 1))
	return rank, secure, err
}

// secure encrypts a connection if Config.Encrypt is set.
func (c Config) secure(conn net.Conn, session *handshake.Session, client bool) (net.Conn, error) {
	if !c.Encrypt {
		return conn, nil
	}
	return session.Encrypt(conn, handshake.TLS{Client: client})
}

// leave ends a handshake. It keeps the connection of a rank and closes any other connection.
func (m *meeting) leave(conn net.Conn, rank int, err error) {
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
func (m *meeting) keep(rank int, conn net.Conn) {
	_ = conn.SetDeadline(time.Time{})
	m.sockets[rank] = conn
	close(m.arrived[rank])
}

// close ends all waits, and closes the sockets that Gloo has not taken.
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

// connect returns when every other rank is connected, or with an error for the first rank that is not.
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
		if got, want := describe(theirs.Shape), describe(c.Shape); got != want {
			// With different shapes, the ranks would wait for messages that never arrive, or Gloo would end their
			// processes at a message that is too long.
			return fmt.Errorf("rank %d enters operations as: %s; this rank as: %s; want the same Config.Shape on all ranks",
				rank, got, want)
		}
		if err := m.visit(ctx, rank, theirs); err != nil {
			return m.missing(ctx, rank, fmt.Errorf("connect to port %s: %w", theirs.Address, err))
		}
	}
	return nil
}

// missing returns the error for a rank that is not connected when ctx ends. After a time-out, it includes the error of
// the last attempt, which is the parameter found.
func (m *meeting) missing(ctx context.Context, rank int, found error) error {
	reason := m.config.reason(ctx, context.Canceled)
	if errors.Is(reason, context.DeadlineExceeded) {
		return &collective.PeerError{Rank: rank, Cause: fmt.Errorf("no connection before the time-out: %w", found)}
	}
	return fmt.Errorf("wait for the connection with rank %d: %w", rank, reason)
}

// visit connects to a rank. It retries until ctx ends, and then returns the error of the last attempt.
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
func (m *meeting) knock(ctx context.Context, theirs endpoint) (net.Conn, error) {
	dialer := net.Dialer{Timeout: helloTime, KeepAlive: -1}
	conn, err := dialer.DialContext(ctx, "tcp", theirs.Address)
	if err != nil {
		return nil, err
	}
	watching := context.AfterFunc(ctx, func() { conn.Close() })
	secure, err := m.introduce(conn, theirs)
	if !watching() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return secure, nil
}

// introduce performs the handshake on the side that connects. It returns the connection to use.
func (m *meeting) introduce(conn net.Conn, theirs endpoint) (net.Conn, error) {
	_ = conn.SetDeadline(time.Now().Add(helloTime))
	session, err := m.config.protocol(theirs).Call(conn,
		binary.LittleEndian.AppendUint32(nil, uint32(m.config.Rank)))
	if errors.Is(err, handshake.ErrSecret) {
		return nil, fmt.Errorf("the program that listens there is not a rank of this run: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("no answer: %w", err)
	}
	secure, err := m.config.secure(conn, session, true)
	if err != nil {
		return nil, err
	}
	_, err = secure.Write([]byte{1})
	return secure, err
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
	if len(p.Key) != keyBytes {
		return p, fmt.Errorf("got a key of %d bytes, want %d", len(p.Key), keyBytes)
	}
	return p, nil
}

// describe returns the text of Config.Shape.
func describe(s *Shape) string {
	if s == nil {
		return "measured"
	}
	return s.String()
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
