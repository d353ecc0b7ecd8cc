package system

import (
	"cmp"
	"fmt"
	"io/fs"
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

// readDisks lists the block devices, except loop devices, memory, and devices that are parts of others.
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

// readNetworks lists the network interfaces except the loopback. Interfaces that are up come first, then the faster
// ones.
func readNetworks(root fs.FS) ([]Network, error) {
	folders, err := fs.Glob(root, "sys/class/net/*")
	if err != nil {
		return nil, err
	}
	networks := []Network{}
	for _, folder := range folders {
		kind, err := readLine(root, path.Join(folder, "type"))
		if err != nil || kind == arpLoopback { // files without a type are not interfaces (bonding_masters)
			continue
		}
		exists := func(name string) bool {
			_, err := fs.Stat(root, path.Join(folder, name))
			return err == nil
		}
		n := Network{Name: path.Base(folder), Kind: "virtual"}
		switch {
		case kind == arpInfiniband:
			n.Kind = "infiniband"
		case exists("wireless"), exists("phy80211"):
			n.Kind = "wireless"
		case exists("device"):
			n.Kind = "ethernet"
		}
		state, _ := readLine(root, path.Join(folder, "operstate"))
		n.Up = state == "up"
		n.SpeedMbits = positive(root, path.Join(folder, "speed")) // -1 or an error means unknown
		n.MTU = positive(root, path.Join(folder, "mtu"))
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
	return networks, nil
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
