//go:build cgo && linux

package gloo

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/handshake"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// sumOnce sums five values over the ranks of a communicator.
func sumOnce(t *testing.T, c *Communicator) error {
	memory, err := reference.New().Alloc(20)
	if err != nil {
		return err
	}
	clear(memory.Host())
	return errors.Join(c.Enqueue(collective.AllReduce{Name: "sum", Buffer: device.Whole(memory), DType: tensor.F32}),
		c.Sync(t.Context()))
}

// through is a Control that publishes the address of a proxy instead of the rank's own address. pass serves a
// connection to the rank.
type through struct {
	Control
	t    *testing.T
	pass func(near, far net.Conn)
}

func (p through) Set(ctx context.Context, key string, value []byte) error {
	var e endpoint
	if json.Unmarshal(value, &e) != nil || e.Address == "" {
		return p.Control.Set(ctx, key, value)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	p.t.Cleanup(func() { listener.Close() })
	to := e.Address
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.DialTimeout("tcp", to, 10*time.Second)
			if err != nil {
				near.Close()
				continue
			}
			go p.pass(near, far)
		}
	}()
	e.Address = listener.Addr().String()
	changed, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return p.Control.Set(ctx, key, changed)
}

// behind opens a group in which a proxy is in front of one rank.
func behind(t *testing.T, size, proxied int, limit time.Duration, s Shape,
	pass func(near, far net.Conn)) []*Communicator {
	b := collectivetest.NewBoard()
	return collectivetest.Connected(t, size, func(ctx context.Context, rank int) (*Communicator, error) {
		c := Config{Rank: rank, Size: size, Control: collectivetest.Seat{Board: b, Rank: rank}, Name: "test",
			RankOf: collectivetest.LostRank, Host: "127.0.0.1", Timeout: limit, Shape: &s}
		if rank == proxied {
			c.Control = through{c.Control, t, pass}
		}
		return Connect(ctx, c)
	})
}

// In a tree of radix 2, rank 0 is the only neighbour of rank 1. The proxy does not forward connections from rank 1 to
// ranks 2 and 3, because Gloo stores every message until a receiver takes it.
func TestRanksThatWaitSendNothing(t *testing.T) {
	need(t)
	for _, limit := range []time.Duration{4 * time.Second, 40 * time.Second} { // a busy machine needs the longer limit
		err := waitInSilence(t, limit)
		if err == nil {
			return
		}
		if limit == 40*time.Second || !errors.As(err, new(*collective.TimeoutError)) {
			t.Fatal(err)
		}
	}
}

// waitInSilence lets the other ranks wait for rank 0, for a part of the time limit. It returns the errors of the
// operations.
func waitInSilence(t *testing.T, limit time.Duration) error {
	var passed atomic.Int64
	carry := func(to, from net.Conn) {
		defer to.Close()
		buffer := make([]byte, 1<<10)
		for {
			n, err := from.Read(buffer)
			passed.Add(int64(n))
			if err != nil {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
	const size = 4
	comms := behind(t, size, 1, limit, Shape{Radix: 2, Bytes: 4096}, func(near, far net.Conn) {
		go carry(near, far)
		carry(far, near)
	})
	before := passed.Load()
	if before == 0 {
		t.Fatal("nothing passed the proxy while the ranks connected")
	}
	defer closeAll(t, comms)
	for range 3 {
		errs := make([]error, size)
		var done sync.WaitGroup
		for rank, c := range comms {
			done.Go(func() {
				if rank == 0 {
					time.Sleep(limit * 3 / 8)
				}
				errs[rank] = sumOnce(t, c)
			})
		}
		done.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	if after := passed.Load(); after != before {
		t.Errorf("got %d bytes between ranks that are not neighbours, want none", after-before)
	}
	return nil
}

// Rank 0 sends the result to ranks 1 and 2. The connection to rank 1 breaks before rank 1 can receive it.
func TestABrokenConnectionToAReceiverIsNamed(t *testing.T) {
	need(t)
	const notice, noticeOfReceiver = 48, 3 // size of a message header in bytes; code of the notice "ready to receive"
	comms := behind(t, 3, 0, 0, Shape{Radix: 3, Bytes: 4096}, func(near, far net.Conn) {
		defer near.Close()
		defer far.Close()
		go io.Copy(near, far)
		if _, err := io.CopyN(far, near, handshake.GreetingBytes); err != nil {
			return
		}
		claim := make([]byte, 4)
		if _, err := io.ReadFull(near, claim); err != nil {
			return
		}
		if _, err := far.Write(claim); err != nil {
			return
		}
		if binary.LittleEndian.Uint32(claim) != 1 {
			io.Copy(far, near)
			return
		}
		if _, err := io.CopyN(far, near, sha256.Size+1); err != nil { // the proof and the byte that commits
			return
		}
		for {
			header := make([]byte, notice)
			if _, err := io.ReadFull(near, header); err != nil {
				return
			}
			if binary.LittleEndian.Uint64(header[8:]) == noticeOfReceiver {
				continue
			}
			if _, err := far.Write(header); err != nil {
				return
			}
			more := int64(binary.LittleEndian.Uint64(header)) - notice
			if more <= 0 {
				continue
			}
			if _, err := io.CopyN(far, near, more); err == nil {
				time.Sleep(200 * time.Millisecond) // by then, rank 0 waits for the notice
			}
			return
		}
	})
	var done sync.WaitGroup
	for rank, c := range comms {
		done.Go(func() {
			err := sumOnce(t, c)
			var peer *collective.PeerError
			if rank == 0 && (!errors.As(err, &peer) || peer.Rank != 1) {
				t.Errorf("rank 0: got %v, want that rank 1 is lost", err)
			}
		})
	}
	done.Wait()
	for _, c := range comms {
		c.Close() // the communicator has failed
	}
}

// A rank is lost or stops after it has connected. The other ranks, which are timing shapes, must name it.
func TestFaultsDuringTheMeasurement(t *testing.T) {
	need(t)
	const size, faulty = 4, 2
	for _, c := range []struct {
		name          string
		dies, reports bool
	}{
		{"dies", true, true}, {"dies, and Control reports nothing", true, false}, {"freezes", false, false},
	} {
		trial := func(t *testing.T, limit time.Duration) (faults []error) {
			b := collectivetest.NewBoard()
			lib, err := openLibrary()
			if err != nil {
				t.Fatal(err)
			}
			var done, over sync.WaitGroup
			over.Add(size - 1)
			faults = make([]error, size)
			for rank := range size {
				config := Config{Rank: rank, Size: size, Control: collectivetest.Seat{Board: b, Rank: rank}, Name: "test",
					RankOf: collectivetest.LostRank, Host: "127.0.0.1"}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				done.Go(func() {
					if rank == faulty {
						conn, err := lib.open(rank, size)
						if err == nil {
							err = config.join(ctx, conn, &relays{})
						}
						faults[rank] = err
						if c.dies {
							time.Sleep(100 * time.Millisecond)
							if c.reports {
								time.AfterFunc(200*time.Millisecond, func() { b.Lose(faulty, collective.ErrDied) })
							}
							conn.disconnect()
						}
						over.Wait()
						conn.close()
						return
					}
					defer over.Done()
					comm, err := Connect(ctx, config)
					if err == nil {
						comm.Close()
						t.Errorf("rank %d: got no error", rank)
						return
					}
					var peer *collective.PeerError
					var late *collective.TimeoutError
					named := errors.As(err, &peer) && peer.Rank == faulty ||
						errors.As(err, &late) && slices.Equal(late.Missing, []int{faulty})
					if !named || c.dies == (late != nil) {
						faults[rank] = fmt.Errorf("rank %d: got %w, want that rank %d %s", rank, err, faulty, c.name)
					}
				})
			}
			done.Wait()
			return faults
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // the cases wait
			if !c.dies { // the ranks wait for the whole limit, so a busy machine may need a longer one
				if errors.Join(trial(t, 12*time.Second)...) == nil {
					return
				}
			}
			if err := errors.Join(trial(t, time.Minute)...); err != nil {
				t.Error(err)
			}
		})
	}
}

// Rank 0 is in operation 7. Rank 1 answers the roll call with operation 6, so it is missing. Ranks 2 and 3 have entered
// operation 7.
func TestAnswersOfTheRoll(t *testing.T) {
	b := collectivetest.NewBoard()
	t0 := &transport{config: Config{Rank: 0, Size: 4, Control: collectivetest.Seat{Board: b}, Name: "test",
		RankOf: collectivetest.LostRank}}
	t0.entered.Store(7)
	for rank, entered := range []uint64{1: 6, 2: 7, 3: 8} {
		other := &transport{config: t0.config}
		other.config.Rank = rank
		other.entered.Store(entered)
		if rank > 0 {
			go other.answerRoll(t.Context())
		}
	}
	if missing, err := t0.callTheRoll(20 * time.Second); err != nil || !slices.Equal(missing, []int{1}) {
		t.Errorf("got the missing ranks %v and %v, want rank 1", missing, err)
	}
}

// Ranks with different shapes must not connect. They would wait for each other, or Gloo would end their processes.
func TestRanksWithDifferentShapesDoNotConnect(t *testing.T) {
	need(t)
	b, ranks := configs(seat)
	ranks[0].Shape, ranks[1].Shape = &Shape{Radix: 2, Bytes: 1024}, &Shape{Radix: 2, Bytes: 4096}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		if _, err := Connect(ctx, ranks[0]); err == nil {
			t.Error("rank 0 connected")
		}
	}()
	_, err := Connect(ctx, ranks[1])
	b.Lose(1, fmt.Errorf("got %w", err))
	if err == nil || !strings.Contains(err.Error(), "rank 0 enters operations as: tree of radix 2, up to 1024 bytes") {
		t.Errorf("got %v, want an error that names both shapes", err)
	}
}
