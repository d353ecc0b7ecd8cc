package rendezvous

import (
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/hetero-train/hetero-train/engine/crowd"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// HostID identifies the machine and network namespace of this process. Processes with equal ids can reach each other
// through loopback and unix sockets. The id consists of the kernel's boot id and the number of the namespace. On
// systems without these values, the id is the host name. Virtual machines restored from one snapshot share a boot id
// until they reboot.
func HostID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return hostName()
	}
	info, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		return hostName()
	}
	_, namespace, ok := platform.FileID(info)
	if !ok {
		return hostName()
	}
	return fmt.Sprintf("%s/%d", strings.TrimSpace(string(boot)), namespace)
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// listen opens the port of rank 0. If the host is an IP address of this machine, listen uses only this address.
// Otherwise it uses all addresses of this machine. A name often resolves to loopback on the machine itself, and an IP
// address may be known only to other machines.
func listen(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host != "localhost" && !isLocal(net.ParseIP(strings.SplitN(host, "%", 2)[0])) {
		host = ""
	}
	return crowd.Listen(net.JoinHostPort(host, port))
}

// listenOnFirst opens the first free port of rank 0 and returns its address.
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

// beyondLoopback reports whether other machines can connect to a listener on address.
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

// isLocal reports whether an interface of this machine has the address.
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
