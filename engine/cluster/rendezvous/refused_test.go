package rendezvous

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/engine/crowd"
	"github.com/hetero-train/hetero-train/engine/handshake"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// No connection with a wrong token may be accepted, and the group must form afterwards (row S2 of docs/reliability.md).
func TestWrongTokensAreRefused(t *testing.T) {
	tries := int64(2000)
	if needtest.Hostile.On() {
		tries = 100_000
	}
	loopback := overLoopback(t, 2, plainListen)
	options := func(rank int) Options {
		o := loopback(rank)
		o.Timeout = 10 * patience
		return o
	}
	address := options(0).Address
	first := joinLater(options(0))
	var next, refused, accepted atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range 4 {
		all.Go(func() {
			for next.Add(1) <= tries {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					t.Error(err)
					return
				}
				// avoids TIME_WAIT, in which 100,000 connections would use up the ports
				_ = conn.(*net.TCPConn).SetLinger(0)
				conn.SetDeadline(time.Now().Add(patience))
				switch _, err := greet(conn, newToken(), &handshake.TLS{Client: true}); {
				case errors.Is(err, ErrToken):
					refused.Add(1)
				case err == nil:
					accepted.Add(1)
				default:
					t.Error(err)
				}
				conn.Close()
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	t.Logf("%d refused, %d accepted, %v for each, with the time of the caller", refused.Load(), accepted.Load(),
		took/time.Duration(tries))
	if accepted.Load() > 0 || refused.Load() != tries {
		t.Errorf("got %d refused and %d accepted, want %d and 0", refused.Load(), accepted.Load(), tries)
	}
	groups := groupsOf(t, append([]joined{<-joinLater(options(1))}, <-first))
	closeAll([]*Group{groups[1], groups[0]})
}

// A flood of connections from one address to the port of a complete group must not delay a program at another address.
func TestAFloodDoesNotStarveOtherAddresses(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only the kernel of Linux blocks addresses")
	}
	options := overLoopback(t, 2, crowd.Listen)
	address, token := options(0).Address, options(0).Token
	first := joinLater(options(0))
	groups := groupsOf(t, append([]joined{<-joinLater(options(1))}, <-first))
	t.Cleanup(func() { closeAll([]*Group{groups[1], groups[0]}) }) // after the flood, so that the port stays in use
	porttest.Flood(t, address)
	late := 0 // number of handshakes that were late because the machine is busy
	for done := 0; done < 10; {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
		conn, err := dialer.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		conn.SetDeadline(begun.Add(handshakeTime))
		_, err = greet(conn, token, &handshake.TLS{Client: true})
		conn.Close()
		if err != nil && time.Since(begun) >= handshakeTime && late < 5 {
			late++
			continue
		}
		if err != nil {
			t.Errorf("a program with the token: got %v", err)
		}
		done++
	}
}
