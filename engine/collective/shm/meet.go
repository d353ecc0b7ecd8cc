//go:build cgo && linux

package shm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/crowd"
)

// peer is the open connection to another rank. Rank 0 has a connection to each other rank. Each other rank has a
// connection only to rank 0.
type peer struct {
	rank int
	conn *net.UnixConn
}

func closeAll(peers []peer) {
	for _, p := range peers {
		p.conn.Close() // an error does not matter: messages are single bytes
	}
}

// Messages of the handshake. A rank first sends its greeting. When all ranks have joined, rank 0 replies with sayStart
// and the descriptor of the memory. At any time, rank 0 may instead reply with sayRefused and the reason.
const (
	greetingMagic = "HTSHM001"
	sayStart      = 'G'
	sayRefused    = 'E'
	// greetingTime limits the time until a connection has sent its greeting.
	greetingTime = 10 * time.Second
)

type greeting struct {
	Magic      [8]byte
	Rank, Size uint32
	Token      [sha256.Size]byte // hash of Config.Token
}

func (c Config) greeting() greeting {
	g := greeting{Rank: uint32(c.Rank), Size: uint32(c.Size), Token: sha256.Sum256([]byte(c.Token))}
	copy(g.Magic[:], greetingMagic)
	return g
}

func (c Config) socket() *net.UnixAddr { return &net.UnixAddr{Name: "@" + c.Address, Net: "unix"} }

// refusal is the reason for a refused connection. A fatal refusal concerns a rank of this group and ends the group.
type refusal struct {
	reason string
	fatal  bool
}

// gatherRanks performs the handshake on rank 0. It waits for all ranks, creates the memory and sends the memory's
// descriptor to the ranks.
func gatherRanks(ctx context.Context, c Config, lib *library) (memory *os.File, peers []peer, err error) {
	defer func() {
		if err != nil {
			for _, p := range peers {
				refuse(p.conn, "rank 0: "+err.Error())
			}
			peers = nil
		}
	}()
	if c.Size > 1 {
		if peers, err = accept(ctx, c); err != nil {
			return nil, peers, err
		}
	}
	if memory, err = lib.create(c.Size, c.StageBytes); err != nil {
		return nil, peers, err
	}
	rights := syscall.UnixRights(int(memory.Fd()))
	for _, p := range peers {
		if _, _, err := p.conn.WriteMsgUnix([]byte{sayStart}, rights, nil); err != nil {
			memory.Close() // other ranks may have it: the memory is freed when its last user ends
			return nil, peers, &collective.PeerError{Rank: p.rank, Cause: collective.ErrDied}
		}
	}
	return memory, peers, nil
}

// arrival is a connection that has sent a valid greeting, or the reason for its refusal.
type arrival struct {
	peer
	refusal *refusal
}

// accept returns when every other rank has joined. If it fails, it still returns the ranks that have joined.
func accept(ctx context.Context, c Config) ([]peer, error) {
	l, err := net.ListenUnix("unix", c.socket())
	if err != nil {
		return nil, fmt.Errorf("listen at %q: %w", c.Address, err)
	}
	defer l.Close() // the abstract socket leaves no file
	return acceptBy(ctx, c, l.AcceptUnix)
}

// acceptBy implements accept. The function next is a method of the listener. The caller must close the listener after
// acceptBy has returned.
func acceptBy(ctx context.Context, c Config, next func() (*net.UnixConn, error)) ([]peer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	arrivals := make(chan arrival)
	var newest crowd.Fault
	go func() {
		for {
			conn, err := crowd.Next(next, &newest)
			if err != nil {
				return // the listener is closed
			}
			go func() {
				a := c.receive(conn)
				select {
				case arrivals <- a:
				case <-ctx.Done():
					conn.Close() // too late to join
				}
			}()
		}
	}()
	var peers []peer
	var turnedAway []string
	missing := map[int]bool{}
	for r := 1; r < c.Size; r++ {
		missing[r] = true
	}
	for len(missing) > 0 {
		select {
		case a := <-arrivals:
			switch {
			case a.refusal == nil && !missing[a.rank]:
				a.refusal = &refusal{fmt.Sprintf("two processes have rank %d", a.rank), true}
				fallthrough
			case a.refusal != nil:
				refuse(a.conn, a.refusal.reason)
				if a.refusal.fatal {
					return peers, errors.New(a.refusal.reason)
				}
				turnedAway = append(turnedAway, a.refusal.reason)
			default:
				delete(missing, a.rank)
				peers = append(peers, a.peer)
			}
		case <-ctx.Done():
			err := notCome(context.Cause(ctx), c.Size, missing, turnedAway)
			if fault := newest.Err(); fault != nil {
				err = fmt.Errorf("%w; accept at %q: %w", err, c.Address, fault)
			}
			return peers, err
		}
	}
	return peers, nil
}

func notCome(cause error, size int, missing map[int]bool, turnedAway []string) error {
	var names []string
	for r := range size {
		if missing[r] {
			names = append(names, strconv.Itoa(r))
		}
	}
	text := "missing: rank " + strings.Join(names, ", ")
	if len(turnedAway) > 0 {
		text += fmt.Sprintf(" (refused: %d, the last because %s)", len(turnedAway), turnedAway[len(turnedAway)-1])
	}
	return fmt.Errorf("%s: %w", text, cause)
}

// receive reads the greeting of a connection.
func (c Config) receive(conn *net.UnixConn) arrival {
	a := arrival{peer: peer{conn: conn}}
	if err := sameUser(conn); err != nil {
		a.refusal = &refusal{err.Error(), false}
		return a
	}
	conn.SetReadDeadline(time.Now().Add(greetingTime)) // a closed connection reports its error at the next read
	got, want := greeting{}, c.greeting()
	if err := binary.Read(conn, binary.LittleEndian, &got); err != nil {
		a.refusal = &refusal{"it did not identify itself", false}
		return a
	}
	conn.SetReadDeadline(time.Time{}) // a closed connection reports its error at the next read
	a.rank = int(got.Rank)
	switch {
	case got.Magic != want.Magic:
		a.refusal = &refusal{"it is not a rank, or it runs another version of the program", false}
	case subtle.ConstantTimeCompare(got.Token[:], want.Token[:]) != 1:
		a.refusal = &refusal{"it has another token", false}
	case got.Size != want.Size:
		a.refusal = &refusal{fmt.Sprintf("rank %d has world size %d, rank 0 has %d", got.Rank, got.Size, want.Size),
			true}
	case got.Rank == 0 || got.Rank >= want.Size:
		a.refusal = &refusal{fmt.Sprintf("a second process claims to be rank %d of %d", got.Rank, got.Size), true}
	}
	return a
}

// sameUser returns an error if the kernel reports another user at the other end. It also accepts root.
func sameUser(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *syscall.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		cred, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("find the user of the process: %w", failed)
	}
	if uid := uint32(os.Geteuid()); cred.Uid != uid && cred.Uid != 0 {
		return fmt.Errorf("the process belongs to user %d, want user %d", cred.Uid, uid)
	}
	return nil
}

// refuse sends the reason, if the other end is still reading, and closes the connection.
func refuse(conn *net.UnixConn, reason string) {
	message := []byte{sayRefused}
	message = append(message, reason...)
	conn.SetWriteDeadline(time.Now().Add(time.Second)) // a closed connection reports its error at the next write
	conn.Write(message)                                // the other end may be gone
	conn.Close()                                       // the connection has no further use
}

// joinRanks performs the handshake on a rank other than rank 0. It connects to rank 0, sends the greeting, and waits
// for the descriptor of the shared memory.
func joinRanks(ctx context.Context, c Config) (*os.File, []peer, error) {
	conn, err := dial(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	memory, err := join(ctx, c, conn)
	if err != nil {
		conn.Close() // the connection has no further use
		return nil, nil, err
	}
	return memory, []peer{{0, conn}}, nil
}

func dial(ctx context.Context, c Config) (*net.UnixConn, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		conn, err := net.DialUnix("unix", nil, c.socket())
		if err == nil {
			if err = sameUser(conn); err == nil {
				return conn, nil
			}
			conn.Close() // nothing was sent
			return nil, fmt.Errorf("the process that listens at %q is not rank 0: %w", c.Address, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("rank 0 does not listen at %q (%w): %w", c.Address, err, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

func join(ctx context.Context, c Config, conn *net.UnixConn) (*os.File, error) {
	stop := context.AfterFunc(ctx, func() {
		conn.SetDeadline(time.Now()) // a closed connection reports its error at the next read
	})
	defer stop()
	var hello bytes.Buffer
	binary.Write(&hello, binary.LittleEndian, c.greeting()) // a bytes.Buffer never fails
	if _, err := conn.Write(hello.Bytes()); err != nil {
		return nil, fmt.Errorf("send the handshake to rank 0: %w", err)
	}
	text, rights := make([]byte, 1), make([]byte, syscall.CmsgSpace(4))
	n, rightsBytes, _, _, err := conn.ReadMsgUnix(text, rights)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("rank 0 still waits for other ranks: %w", context.Cause(ctx))
	case n == 0 || errors.Is(err, io.EOF):
		return nil, &collective.PeerError{Rank: 0, Cause: collective.ErrDied}
	case err != nil:
		return nil, fmt.Errorf("wait for rank 0: %w", err)
	case text[0] != sayStart:
		reason, _ := io.ReadAll(io.LimitReader(conn, 4096))
		return nil, fmt.Errorf("rank 0 refused this rank: %s", reason)
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:rightsBytes])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("rank 0 did not send the shared memory: %w", err)
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("rank 0 did not send the shared memory: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "shared memory"), nil
}
