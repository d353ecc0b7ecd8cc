//go:build unix

package rendezvous_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hetero-train/hetero-train/engine/cluster/ranktest"
	"github.com/hetero-train/hetero-train/engine/handshake"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// reportUsage prints the CPU time of this process in microseconds. It also prints the memory of the Go heap and stacks
// in bytes.
func reportUsage() {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		fmt.Println(err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Println("used", (u.Utime.Nano()+u.Stime.Nano())/1000, m.HeapInuse+m.StackInuse)
}

// strangers are the actions of programs without the token at the port of rank 0.
var strangers = []func(net.Conn){
	func(net.Conn) {},
	func(conn net.Conn) { io.Copy(io.Discard, conn) }, // holds the connection
	func(conn net.Conn) { fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); io.Copy(io.Discard, conn) },
	func(conn net.Conn) {
		garbage := make([]byte, 64<<10)
		for i := range garbage {
			garbage[i] = byte(rand.Uint32())
		}
		conn.Write(garbage)
		io.Copy(io.Discard, conn)
	},
	func(conn net.Conn) { // sends the greeting, then nothing
		conn.Write(append([]byte("htrendz\x02"), make([]byte, handshake.NonceBytes)...))
		io.Copy(io.Discard, conn)
	},
	func(conn net.Conn) {
		wrong := handshake.Protocol{Name: [8]byte{'h', 't', 'r', 'e', 'n', 'd', 'z', 2}, Secret: []byte("another token")}
		wrong.Call(conn, nil)
	},
}

// Strangers may cost the process of rank 0 at most 5 % of one CPU and 32 MiB (rows S1 and S3 of docs/reliability.md).
// This must hold for any rate of connections. The group is complete, and the process does nothing else, so its CPU time
// is the cost. The limits of the gate permit 3.4 %. The rest is a margin for slower CPUs.
func TestStrangersCostRankZeroLittle(t *testing.T) {
	needtest.Hostile.Need(t, "it measures CPU time for minutes")
	for _, c := range []struct {
		name   string
		attack func(port int, ended <-chan struct{}, connections *atomic.Int64)
	}{
		{"600 strangers, up to 1,200 connections a second", manyKinds},
		{"one address, as fast as it can", flood(1)},
		{"100 addresses, as fast as they can", flood(100)},
		{"200 addresses, as fast as they can", flood(200)},
	} {
		t.Run(c.name, func(t *testing.T) { measureStrangers(t, c.attack) })
	}
}

func measureStrangers(t *testing.T, attack func(port int, ended <-chan struct{}, connections *atomic.Int64)) {
	const length = time.Minute
	var meeting string
	ranks := ranktest.Start(t, rankVariable, worldSize, func(rank int, at string) any {
		meeting = at
		return role{rank, at, "the token of these three ranks"}
	})
	for rank := range worldSize {
		ranks.Expect(rank, fmt.Sprint("joined as local rank ", rank))
	}
	usage := func() (cpu time.Duration, memory int64) {
		ranks.Signal(0, syscall.SIGUSR1)
		var us int64
		if _, err := fmt.Sscanf(ranks.Expect(0, "used "), "used %d %d", &us, &memory); err != nil {
			t.Fatal(err)
		}
		return time.Duration(us) * time.Microsecond, memory
	}
	_, text, err := net.SplitHostPort(meeting)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	before, small := usage()
	began := time.Now()
	var connections atomic.Int64
	ended := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() { attack(port, ended, &connections) })
	var waits []time.Duration
	late := 0
	for time.Since(began) < length {
		begin := time.Now()
		if err := visitWithWrongToken(meeting); err != nil {
			late++
		} else {
			waits = append(waits, time.Since(begin))
		}
		time.Sleep(500 * time.Millisecond)
	}
	after, large := usage()
	took := time.Since(began)
	close(ended)
	all.Wait()
	share := (after - before).Seconds() / took.Seconds()
	t.Logf("%d connections in %v (%.0f a second) cost rank 0 %.2f %% of a CPU and %.1f MiB", connections.Load(), took,
		float64(connections.Load())/took.Seconds(), 100*share, float64(large-small)/(1<<20))
	slices.Sort(waits)
	if len(waits) > 0 {
		t.Logf("a client at another address: %d answers, median after %v, last after %v; %d without an answer within 10 s",
			len(waits), waits[len(waits)/2], waits[len(waits)-1], late)
	}
	if share > 0.05 || large-small > 32<<20 {
		t.Errorf("got %.2f %% of a CPU and %d bytes, want at most 5 %% and 32 MiB", 100*share, large-small)
	}
	if connections.Load() < 1000 {
		t.Errorf("only %d connections", connections.Load())
	}
}

// visitWithWrongToken connects from an address that no other client has, and waits for the refusal.
func visitWithWrongToken(meeting string) error {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 77, 0, 1)}, Timeout: 10 * time.Second}
	conn, err := dialer.Dial("tcp", meeting)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if _, err = io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		return err
	}
	return nil
}

// manyKinds opens connections from one address, which do what each kind of stranger does.
func manyKinds(port int, ended <-chan struct{}, connections *atomic.Int64) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range 600 { // more connections than the port keeps open
		all.Go(func() {
			for {
				select {
				case <-ended:
					return
				case <-time.After(time.Duration(rand.IntN(int(time.Second)))):
				}
				connections.Add(1)
				conn, err := net.DialTimeout("tcp", fmt.Sprint("127.0.0.1:", port), 100*time.Millisecond)
				if err != nil {
					continue // the server has blocked the address
				}
				conn.SetDeadline(time.Now().Add(2 * time.Second))
				strangers[next.Add(1)%int64(len(strangers))](conn)
				conn.Close()
			}
		})
	}
	all.Wait()
}

// flood opens connections from a number of addresses. It does not wait for the answers of the server's kernel.
func flood(addresses int) func(port int, ended <-chan struct{}, connections *atomic.Int64) {
	return func(port int, ended <-chan struct{}, connections *atomic.Int64) {
		to := &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
		for i := 0; ; i++ {
			select {
			case <-ended:
				return
			default:
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
			if err != nil {
				continue
			}
			_ = unix.SetNonblock(fd, true)
			_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			_ = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 1, 0, byte(i%addresses + 1)}})
			if err := unix.Connect(fd, to); err == nil || err == unix.EINPROGRESS {
				connections.Add(1)
			}
			_ = unix.Close(fd)
		}
	}
}
