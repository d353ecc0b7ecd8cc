package crowd

import (
	"encoding/binary"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Places of a packet's header of IP in a filter.
const (
	ipHeader = -0x100000 & 0xffffffff // SKF_NET_OFF of linux/filter.h
	source4  = ipHeader + 12
	source6  = ipHeader + 8
)

// dropPackets lets the kernel drop packets of these addresses to a listener. Its connections are not affected.
func dropPackets(l *net.TCPListener, addresses map[string]time.Time) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if len(addresses) > 0 {
			program := filter(addresses)
			failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
				&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
		}
		if len(addresses) == 0 || failed != nil {
			// fails only if there is no filter
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
		}
	})
	if err != nil {
		return err
	}
	return failed
}

// filter returns a program of the kernel's classic BPF that accepts all packets except those of these addresses.
func filter(addresses map[string]time.Time) []unix.SockFilter {
	const (
		loadByte = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
		loadWord = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		and      = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		equal    = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K // Jt and Jf: instructions to skip
		skip     = unix.BPF_JMP | unix.BPF_JA
		end      = unix.BPF_RET | unix.BPF_K // K: bytes of the packet to keep, 0 to drop it
	)
	drop, keep := unix.SockFilter{Code: end}, unix.SockFilter{Code: end, K: 0xffffffff}
	var of4, of6 []unix.SockFilter
	for text := range addresses {
		ip, bits, ok := parse(text)
		if !ok {
			continue
		}
		to, first, bytes := &of6, uint32(source6), ip.AsSlice()[:bits/8]
		if ip.Is4() {
			to, first = &of4, source4
		}
		for ; len(bytes) > 0; bytes = bytes[4:] {
			rest := uint8(len(bytes)/4-1) * 2 // instructions of the next words
			*to = append(*to, unix.SockFilter{Code: loadWord, K: first},
				unix.SockFilter{Code: equal, Jf: rest + 1, K: binary.BigEndian.Uint32(bytes)})
			first += 4
		}
		*to = append(*to, drop)
	}
	of4, of6 = append(of4, keep), append(of6, keep)
	program := []unix.SockFilter{
		{Code: loadByte, K: ipHeader}, {Code: and, K: 0xf0}, // version of IP
		{Code: equal, Jt: 1, K: 0x40}, {Code: skip, K: uint32(len(of4))},
	}
	return append(append(program, of4...), of6...)
}

// parse returns an address or a network that network has written.
func parse(text string) (ip netip.Addr, bits int, ok bool) {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		return prefix.Addr(), prefix.Bits(), true
	}
	ip, err := netip.ParseAddr(text)
	return ip, ip.BitLen(), err == nil
}
