package crowd

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// execute runs a filter on the header of a packet, as the kernel does. It reports whether the filter keeps the packet.
func execute(t *testing.T, program []unix.SockFilter, packet []byte) bool {
	t.Helper()
	var a uint32
	var stored [16]uint32
	for i := 0; i < len(program); i++ {
		at := program[i].K - ipHeader
		switch op := program[i]; op.Code {
		case unix.BPF_LD | unix.BPF_B | unix.BPF_ABS:
			a = uint32(packet[at])
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = binary.BigEndian.Uint32(packet[at:])
		case unix.BPF_ST:
			stored[op.K] = a
		case unix.BPF_LD | unix.BPF_MEM:
			a = stored[op.K]
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= op.K
		case unix.BPF_JMP | unix.BPF_JA:
			i += int(op.K)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			if a == op.K {
				i += int(op.Jt)
			} else {
				i += int(op.Jf)
			}
		case unix.BPF_RET | unix.BPF_K:
			return op.K > 0
		default:
			t.Fatalf("unknown instruction %+v", op)
		}
	}
	t.Fatal("the program has no end")
	return false
}

// The filters in this test block many addresses of all kinds. TestAFloodAtAGate passes a filter to a kernel.
func TestTheFilterDropsBlockedAddressesOnly(t *testing.T) {
	var blocked []string
	for _, at := range []string{"10.0.0.1:1", "10.0.0.3:1", "[2001:db8:1:2::5]:1", "[2001:db8:1:4::5]:1", "[::1]:1",
		"[fe80::5%eth0]:1", "[::ffff:10.0.0.9]:1"} {
		blocked = append(blocked, Address(at))
	}
	for from, drops := range map[string]bool{
		"10.0.0.1": true, "10.0.0.2": false, "10.0.0.3": true, "10.0.0.9": true,
		"2001:db8:1:2::5": true, "2001:db8:1:2::6": true, "2001:db8:1:2:3:4:5:6": true, "2001:db8:1:3::5": false,
		"2001:db8:1:4::": true, "2001:db9:1:2::5": false,
		"::1": true, "::2": false, "fe80::5": true, "fe80::6": false,
	} {
		ip := netip.MustParseAddr(from)
		packet := make([]byte, 40)
		if ip.Is4() {
			packet[0] = 0x45
			copy(packet[12:], ip.AsSlice())
		} else {
			packet[0] = 0x6f
			copy(packet[8:], ip.AsSlice())
		}
		if kept := execute(t, filter(blocked), packet); kept == drops {
			t.Errorf("%s: the packet is kept: %v, want %v", from, kept, !drops)
		}
	}
}

// The kernel must accept the longest filter that a gate creates.
func TestTheKernelTakesTheLongestFilter(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, form := range []string{"[2001:db8:1:%x::5]:1", "10.0.0.%d:1", "[2001:db8:2:%x::5]:1"} {
		var all []string
		for i := range mostBlocked {
			all = append(all, Address(fmt.Sprintf(form, i)))
		}
		if err := dropPackets(l.(*net.TCPListener), all); err != nil {
			t.Errorf("%d addresses such as %s: %v", len(all), all[0], err)
		}
	}
	if err := dropPackets(l.(*net.TCPListener), nil); err != nil {
		t.Error(err)
	}
}
