package crowd

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Offsets in the IP header of a packet, in the form that a filter uses.
const (
	ipHeader = -0x100000 & 0xffffffff // SKF_NET_OFF of linux/filter.h
	source4  = ipHeader + 12
	source6  = ipHeader + 8
)

// dropPackets makes the kernel drop the packets that these addresses send to a listener. Accepted connections are not
// affected.
func dropPackets(l *net.TCPListener, addresses []string) error {
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
			// this call fails only if there is no filter
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
		}
	})
	if err != nil {
		return err
	}
	return failed
}

// filter returns a classic BPF program for the kernel that accepts all packets except those from these addresses.
func filter(addresses []string) []unix.SockFilter {
	const (
		loadByte   = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
		loadWord   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		loadStored = unix.BPF_LD | unix.BPF_MEM
		store      = unix.BPF_ST
		and        = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		equal      = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K // Jt and Jf: instructions to skip
		skip       = unix.BPF_JMP | unix.BPF_JA
		end        = unix.BPF_RET | unix.BPF_K // K: bytes of the packet to keep, 0 to drop it
	)
	// programOf returns the part of the program for one version of IP. This part stores the source address of the
	// packet, and compares it with the addresses.
	programOf := func(source, words uint32, is func(netip.Addr) bool) (part []unix.SockFilter) {
		for i := range words {
			part = append(part, unix.SockFilter{Code: loadWord, K: source + 4*i}, unix.SockFilter{Code: store, K: i})
		}
		for _, text := range addresses {
			ip, bits, ok := parse(text)
			if !ok || !is(ip) {
				continue
			}
			used := uint32(bits / 32)
			for i := range used {
				toNext := uint8(2*(used-i-1) + 1) // skip the other words of this address, and its end instruction
				part = append(part, unix.SockFilter{Code: loadStored, K: i},
					unix.SockFilter{Code: equal, Jf: toNext, K: binary.BigEndian.Uint32(ip.AsSlice()[4*i:])})
			}
			part = append(part, unix.SockFilter{Code: end})
		}
		return append(part, unix.SockFilter{Code: end, K: 0xffffffff})
	}
	of4, of6 := programOf(source4, 1, netip.Addr.Is4), programOf(source6, 4, netip.Addr.Is6)
	program := []unix.SockFilter{
		{Code: loadByte, K: ipHeader}, {Code: and, K: 0xf0}, // version of IP
		{Code: equal, Jt: 1, K: 0x40}, {Code: skip, K: uint32(len(of4))},
	}
	return append(append(program, of4...), of6...)
}

// parse parses the result of the function network: an address or a network.
func parse(text string) (ip netip.Addr, bits int, ok bool) {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		return prefix.Addr(), prefix.Bits(), true
	}
	ip, err := netip.ParseAddr(text)
	return ip, ip.BitLen(), err == nil
}
