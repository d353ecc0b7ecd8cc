package rendezvous

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
)

// HostID names the machine and network namespace of this process: processes with the same one reach each other by
// loopback and unix sockets. It is the boot id of the kernel and the number of the namespace, or, where the system has
// no such things, the host's name. Virtual machines restored from one snapshot share a boot id until they are booted.
func HostID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return hostName()
	}
	var namespace syscall.Stat_t
	if err := syscall.Stat("/proc/self/ns/net", &namespace); err != nil {
		return hostName()
	}
	return fmt.Sprintf("%s/%d", strings.TrimSpace(string(boot)), namespace.Ino)
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// listen opens the port of rank 0. A literal address of this machine is listened on alone. A name, or an address that only
// others know this machine by, means all addresses: names are often loopback on the machine itself.
func listen(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host != "localhost" && !isLocal(net.ParseIP(strings.SplitN(host, "%", 2)[0])) {
		host = ""
	}
	return net.Listen("tcp", net.JoinHostPort(host, port))
}

// listenOnFirst opens the first port of rank 0 that is free, and tells which that is.
func listenOnFirst(addresses []string) (listener net.Listener, address string, err error) {
	var first error
	for _, address := range addresses {
		if listener, err = listen(address); err == nil {
			return listener, address, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, "", &ListenError{strings.Join(addresses, ", "), first}
}

// beyondLoopback reports whether listening on an address lets other machines in.
func beyondLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true
	}
	if host == "localhost" {
		return false
	}
	ip := net.ParseIP(host)
	return ip == nil || !ip.IsLoopback()
}

// isLocal reports whether an interface of this machine has an address.
func isLocal(ip net.IP) bool {
	if ip == nil {
		return false
	}
	if ip.IsLoopback() {
		return true
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.Equal(ip) {
			return true
		}
	}
	return false
}
