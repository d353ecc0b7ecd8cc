package system

import (
	"cmp"
	"fmt"
	"io/fs"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Disk is a block device of the machine.
type Disk struct {
	Name  string // for example "nvme0n1"
	Model string // "" if unknown, as in most virtual machines
	Kind  string // "nvme", "ssd" or "hdd", according to the kernel
	Bytes int64
}

// Network is a network interface.
type Network struct {
	Name       string
	Kind       string // "ethernet", "wireless", "infiniband", or "virtual" for an interface without hardware
	Up         bool
	SpeedMbits int // speed of the link; 0 if unknown
	MTU        int
}

// readDisks lists the block devices, without virtual ones (loop, RAM, device mapper, RAID, network block devices) and
// without CD and floppy drives.
func readDisks(root fs.FS) ([]Disk, error) {
	folders, err := fs.Glob(root, "sys/block/*")
	if err != nil {
		return nil, err
	}
	disks := []Disk{}
	for _, folder := range folders {
		name := path.Base(folder)
		if hasPrefix(name, "loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd") {
			continue
		}
		sectors, err := readLine(root, path.Join(folder, "size"))
		if err != nil {
			return disks, err
		}
		n, err := strconv.ParseInt(sectors, 10, 64)
		if err != nil {
			return disks, fmt.Errorf("%s/size: got %q, want a number of sectors", folder, sectors)
		}
		if n == 0 { // a drive without a medium
			continue
		}
		d := Disk{Name: name, Bytes: n * 512, Kind: "ssd"}
		rotational, _ := readLine(root, path.Join(folder, "queue/rotational"))
		switch {
		case strings.HasPrefix(name, "nvme"):
			d.Kind = "nvme"
		case rotational == "1":
			d.Kind = "hdd"
		}
		d.Model, _ = readLine(root, path.Join(folder, "device/model"))
		disks = append(disks, d)
	}
	return disks, nil
}

// Types of network interfaces (Linux, if_arp.h).
const (
	arpInfiniband = "32"
	arpLoopback   = "772"
)

// adapter is a network interface and its folder in sys.
type adapter struct {
	name, folder string
	kind         string // number of the type; "" if unknown
	loopback, up bool
	mtu          int

	root fs.FS // nil: the folder does not belong to an interface of this network namespace
}

// exists reports whether the folder has a file.
func (a *adapter) exists(name string) bool {
	if a.root == nil {
		return false
	}
	_, err := fs.Stat(a.root, path.Join(a.folder, name))
	return err == nil
}

// positive returns the number in a file of the folder, or 0 if there is no positive number.
func (a *adapter) positive(name string) int {
	if a.root == nil {
		return 0
	}
	return positive(a.root, path.Join(a.folder, name))
}

// ownInterfaces returns the interfaces of this network namespace. It returns nil if the system does not list them.
func ownInterfaces() []net.Interface {
	list, err := net.Interfaces()
	if err != nil {
		return nil
	}
	return append([]net.Interface{}, list...) // not nil, even if the list is empty
}

// interfaces returns the network interfaces in the list own, which are those of this network namespace. If own is nil,
// it returns the interfaces in root/sys. But /sys shows the network namespace in which it was mounted, which may be
// another one, for example after nsenter --net. If an interface in /sys has the same name, but another index or
// address, it belongs to another namespace. Its folder is ignored.
func interfaces(root fs.FS, own []net.Interface) (list []adapter) {
	const all = "sys/class/net/"
	if own == nil {
		folders, _ := fs.Glob(root, all+"*") // the pattern is valid
		for _, folder := range folders {
			kind, err := readLine(root, path.Join(folder, "type"))
			if err != nil { // entries without a type are not interfaces, such as bonding_masters
				continue
			}
			state, _ := readLine(root, path.Join(folder, "operstate")) // "unknown": the driver does not report a state
			list = append(list, adapter{name: path.Base(folder), folder: folder, kind: kind,
				loopback: kind == arpLoopback, up: state == "up" || state == "unknown",
				mtu: positive(root, path.Join(folder, "mtu")), root: root})
		}
		return list
	}
	for _, f := range own {
		a := adapter{name: f.Name, folder: all + f.Name, loopback: f.Flags&net.FlagLoopback != 0,
			up: f.Flags&net.FlagRunning != 0, mtu: f.MTU}
		index, err := readLine(root, path.Join(a.folder, "ifindex"))
		address, _ := readLine(root, path.Join(a.folder, "address"))
		if err == nil && index == strconv.Itoa(f.Index) &&
			(len(f.HardwareAddr) == 0 || address == f.HardwareAddr.String()) {
			a.root = root
			a.kind, _ = readLine(root, path.Join(a.folder, "type"))
		}
		list = append(list, a)
	}
	return list
}

// readNetworks lists the network interfaces except the loopback. Interfaces that are up come first, then the faster
// ones.
func readNetworks(root fs.FS, own []net.Interface) []Network {
	networks := []Network{}
	for _, a := range interfaces(root, own) {
		if a.loopback {
			continue
		}
		// a speed of -1, or an error, means that the speed is unknown
		n := Network{Name: a.name, Kind: "virtual", Up: a.up, MTU: a.mtu, SpeedMbits: a.positive("speed")}
		switch {
		case a.kind == arpInfiniband:
			n.Kind = "infiniband"
		case a.exists("wireless"), a.exists("phy80211"):
			n.Kind = "wireless"
		case a.exists("device"):
			n.Kind = "ethernet"
		}
		networks = append(networks, n)
	}
	slices.SortStableFunc(networks, func(a, b Network) int {
		if a.Up != b.Up {
			if a.Up {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.SpeedMbits, a.SpeedMbits)
	})
	return networks
}

// positive returns the number in a file, or 0 if there is no positive number.
func positive(root fs.FS, file string) int {
	line, err := readLine(root, file)
	n, err2 := strconv.Atoi(line)
	if err != nil || err2 != nil || n < 0 {
		return 0
	}
	return n
}

func hasPrefix(name string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
