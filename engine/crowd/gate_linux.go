package crowd

import (
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// drain takes the connections from the queue of the kernel until it is empty. It closes those above the pace before the
// runtime of Go knows them, adds the others to g.admitted, and reports whether it has closed some.
func (g *Gate) drain(now time.Time) (closed bool) {
	l, ok := g.Listener.(*net.TCPListener)
	if !ok {
		return false
	}
	raw, err := l.SyscallConn()
	if err != nil {
		return false // Listener.Accept reports the reason
	}
	type served struct {
		fd   int
		wait time.Duration
	}
	var all []served
	// An error means that the listener is closed. It does not block.
	_ = raw.Control(func(listener uintptr) {
		for range mostAtOnce {
			fd, from, err := syscall.Accept4(int(listener), syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
			if err == syscall.EINTR || err == syscall.ECONNABORTED {
				continue
			}
			if err != nil { // the queue is empty, or Listener.Accept reports the reason
				return
			}
			wait, ok := g.pace.Admit(addressOf(from), now)
			if ok {
				all = append(all, served{fd, wait})
				continue
			}
			closed = true
			_ = syscall.SetsockoptLinger(fd, syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1})
			_ = syscall.Close(fd)
		}
	})
	for _, s := range all {
		f := os.NewFile(uintptr(s.fd), "")
		conn, err := net.FileConn(f)
		f.Close() // conn has a copy
		if err != nil {
			continue
		}
		if conn.RemoteAddr() == nil { // the client has reset the connection
			conn.Close()
		} else {
			g.admitted = append(g.admitted, admission{conn, s.wait})
		}
	}
	return closed
}

// addressOf returns the Address of a client.
func addressOf(from syscall.Sockaddr) string {
	switch from := from.(type) {
	case *syscall.SockaddrInet4:
		return network(netip.AddrFrom4(from.Addr))
	case *syscall.SockaddrInet6:
		return network(netip.AddrFrom16(from.Addr))
	}
	return ""
}
