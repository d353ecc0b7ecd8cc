//go:build unix

package rendezvous_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/cluster/ranktest"
	"github.com/hetero-train/hetero-train/engine/handshake"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// reportUsage prints the CPU time of this process in microseconds, and the memory of its Go heap and stacks in bytes.
func reportUsage() {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		fmt.Println(err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Println("used", (u.Utime.Nano()+u.Stime.Nano())/1000, m.HeapInuse+m.StackInuse)
}

// strangers are what programs without the token do at the port of rank 0.
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
	func(conn net.Conn) { // the greeting, and silence
		conn.Write(append([]byte("htrendz\x02"), make([]byte, handshake.NonceBytes)...))
		io.Copy(io.Discard, conn)
	},
	func(conn net.Conn) {
		wrong := handshake.Protocol{Name: [8]byte{'h', 't', 'r', 'e', 'n', 'd', 'z', 2}, Secret: []byte("another token")}
		wrong.Call(conn, nil)
	},
}

// Strangers at the port of a complete group may cost the process of rank 0 at most 5 % of one CPU and 32 MiB (rows S1
// and S3). The process does nothing else in this test, so that its CPU time is the cost.
func TestStrangersCostRankZeroLittle(t *testing.T) {
	needtest.Hostile.Need(t, "it measures CPU time for a minute")
	const attack = time.Minute
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
	before, small := usage()
	began := time.Now()
	var connections, next atomic.Int64
	var all sync.WaitGroup
	ended := make(chan struct{})
	for range 600 { // more than the port keeps open
		all.Go(func() {
			for {
				select {
				case <-ended:
					return
				case <-time.After(time.Duration(rand.IntN(int(time.Second)))): // up to 1,200 connections per second
				}
				conn, err := net.DialTimeout("tcp", meeting, time.Second)
				if err != nil {
					continue // the kernel's queue is full
				}
				connections.Add(1)
				conn.SetDeadline(time.Now().Add(2 * time.Second))
				strangers[next.Add(1)%int64(len(strangers))](conn)
				conn.Close()
			}
		})
	}
	time.Sleep(attack)
	after, large := usage()
	took := time.Since(began)
	close(ended)
	all.Wait()
	share := (after - before).Seconds() / took.Seconds()
	t.Logf("%d connections in %v (%.0f a second) cost rank 0 %.2f %% of a CPU and %.1f MiB", connections.Load(), took,
		float64(connections.Load())/took.Seconds(), 100*share, float64(large-small)/(1<<20))
	if share > 0.05 || large-small > 32<<20 {
		t.Errorf("got %.2f %% of a CPU and %d bytes, want at most 5 %% and 32 MiB", 100*share, large-small)
	}
	if connections.Load() < 100 {
		t.Errorf("only %d connections", connections.Load())
	}
}
