package process

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// resolves returns a resolver whose DNS server answers each name with the same IPv4 address.
func resolves(to net.IP) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			for {
				var length [2]byte
				if _, err := io.ReadFull(there, length[:]); err != nil {
					return
				}
				query := make([]byte, binary.BigEndian.Uint16(length[:]))
				if _, err := io.ReadFull(there, query); err != nil {
					return
				}
				reply := answerTo(query, to)
				if _, err := there.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))),
					reply...)); err != nil {
					return
				}
			}
		}()
		return here, nil
	}}
}

// answerTo returns the reply of a DNS server (RFC 1035): one address for a question of type A, and none for other
// types.
func answerTo(query []byte, to net.IP) []byte {
	const header, typeA = 12, 1
	end := header
	for query[end] != 0 { // skips the labels of the name
		end += int(query[end]) + 1
	}
	end += 5 // skips the empty last label, type and class
	answers := byte(0)
	if binary.BigEndian.Uint16(query[end-4:]) == typeA {
		answers = 1
	}
	reply := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, answers, 0, 0, 0, 0}, query[header:end]...)
	if answers > 0 {
		// The answer contains a pointer to the name in the question, type, class, lifetime and length.
		reply = append(reply, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0, 60, 0, 4)
		reply = append(reply, to.To4()...)
	}
	return reply
}

// otherAddress returns an IPv4 address of this machine that is not loopback.
func otherAddress(t *testing.T) net.IP {
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP
		}
	}
	needtest.Missing(t, "system", "this machine has no IPv4 address except loopback")
	return nil
}

// located joins two ranks on two simulated machines. resolved contains the address to which each machine resolves the
// name of rank 0. located returns the addresses that Locate finds, or its errors.
func located(t *testing.T, resolved [2]net.IP) (found [2]string, errs [2]error) {
	const name = "node-a.example."
	port := porttest.Free(t)
	var ranks sync.WaitGroup
	for rank := range 2 {
		ranks.Go(func() {
			team := &Team{Place: discovery.Assignment{Rank: rank, WorldSize: 2, MasterAddr: name, MasterPort: port,
				MasterFrom: "--master-addr"}, Resolver: resolves(resolved[rank])}
			dialer := net.Dialer{Resolver: team.Resolver}
			var err error
			team.Group, err = rendezvous.Join(t.Context(), rendezvous.Options{
				Rank: rank, WorldSize: 2, Address: team.Place.Master(), Host: string(rune('a' + rank)),
				Token: "0123456789abcdef", Timeout: time.Minute,
				Dial: func(ctx context.Context, address string) (net.Conn, error) {
					return dialer.DialContext(ctx, "tcp", address)
				}})
			if err != nil {
				errs[rank] = err
				return
			}
			defer team.Group.Close() // Close never fails here
			errs[rank] = team.Locate(t.Context())
			found[rank] = team.OwnAddress()
		})
	}
	ranks.Wait()
	return found, errs
}

// Debian's /etc/hosts maps the name of a machine to 127.0.1.1 on the machine itself.
func TestTheNameOfRank0MayBeLoopbackOnItsMachine(t *testing.T) {
	t.Parallel()
	own := otherAddress(t)
	found, errs := located(t, [2]net.IP{net.IPv4(127, 0, 1, 1), own})
	for rank := range 2 {
		if errs[rank] != nil || found[rank] != own.String() {
			t.Errorf("rank %d: got address %q, %v, want %v", rank, found[rank], errs[rank], own)
		}
	}
}

// If the name of rank 0 resolves to a loopback address on every machine, each machine connects to itself. Ranks of
// different machines then meet only by accident.
func TestTheNameOfRank0IsLoopbackEverywhere(t *testing.T) {
	t.Parallel()
	_, errs := located(t, [2]net.IP{net.IPv4(127, 0, 1, 1), net.IPv4(127, 0, 0, 1)})
	for rank, err := range errs {
		if exit.Code(err) != exit.Usage ||
			!strings.Contains(err.Error(), "the machine itself on each of the 2 machines") {
			t.Errorf("rank %d: got %v, want a usage error", rank, err)
		}
	}
}
