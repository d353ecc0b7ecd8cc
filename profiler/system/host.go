package system

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/engine/cgroup"
)

// Host describes the machine and the resources that this process may use.
type Host struct {
	Name      string // host name
	Kernel    string // kernel release
	WSL2      bool   // Linux in Windows
	Container string // "docker", "podman", "kubernetes", "lxc", "containerd", another name, or "" if none was detected
	Cgroups   string // versions of control groups: "v1", "v2", "v1+v2" or "none"
	CPU       CPU
	Memory    Memory
	Disks     []Disk
	Networks  []Network
}

// Memory describes the memory of the host, in bytes.
type Memory struct {
	Total     int64
	Available int64 // memory of the whole machine that is currently available without swapping; 0: unknown
	Limit     int64 // memory that this process may use: Total or less
}

// Read describes the machine whose proc and sys folders are in root; see Detect.
func Read(root fs.FS) (Host, error) { return read(root, nil) }

func read(root fs.FS, own []net.Interface) (Host, error) {
	var h Host
	var faults []error
	note := func(doing string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", doing, err))
		}
	}
	var err error
	h.Name, err = readLine(root, "proc/sys/kernel/hostname")
	note("read the host's name", err)
	h.Kernel, err = readLine(root, "proc/sys/kernel/osrelease")
	note("read the kernel's release", err)
	h.WSL2 = isWSL2(h.Kernel)
	h.CPU, err = readCPU(root)
	note("read the CPU", err)
	h.Memory, err = readMemory(root)
	note("read the memory", err)
	h.Disks, err = readDisks(root)
	note("read the disks", err)
	h.Networks = readNetworks(root, own)

	groups := cgroup.Read(root)
	h.Cgroups = groups.Version()
	h.Container = container(root, groups)
	h.CPU.Quota = float64(h.CPU.Usable)
	if quota, ok := groups.CPUQuota(root); ok {
		h.CPU.Quota = min(h.CPU.Quota, quota)
	}
	h.Memory.Limit = h.Memory.Total
	if limit, ok := groups.MemoryLimit(root); ok {
		h.Memory.Limit = min(h.Memory.Limit, limit)
	}
	return h, errors.Join(faults...)
}

// isWSL2 recognises Microsoft's kernel for WSL 2 ("5.15.167.4-microsoft-standard-WSL2"). Kernels built by users keep
// this suffix.
func isWSL2(release string) bool {
	release = strings.ToLower(release)
	return strings.Contains(release, "wsl2") || strings.Contains(release, "microsoft-standard")
}

// container returns the kind of container in which the process runs, or "". It checks for traces of container engines,
// in the order of their reliability.
func container(root fs.FS, groups cgroup.Groups) string {
	exists := func(name string) bool {
		_, err := fs.Stat(root, name)
		return err == nil
	}
	declared, _ := readLine(root, "run/systemd/container")
	switch {
	case exists("var/run/secrets/kubernetes.io"), groups.Mentions("kubepods"):
		return "kubernetes"
	case exists(".dockerenv"), groups.Mentions("docker"):
		return "docker"
	case exists("run/.containerenv"), groups.Mentions("libpod"):
		return "podman"
	case groups.Mentions("lxc"):
		return "lxc"
	case groups.Mentions("containerd"):
		return "containerd"
	case declared != "" && declared != "wsl":
		return declared
	case groups.RootIsOverlay:
		return "container"
	}
	return ""
}

func readMemory(root fs.FS) (Memory, error) {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return Memory{}, err
	}
	var m Memory
	for key, value := range keyValues(text) {
		kilobytes, err := strconv.ParseInt(strings.TrimSuffix(value, " kB"), 10, 64)
		if err != nil {
			continue
		}
		switch key {
		case "MemTotal":
			m.Total = kilobytes << 10
		case "MemAvailable":
			m.Available = kilobytes << 10
		}
	}
	if m.Total <= 0 {
		return m, fmt.Errorf("proc/meminfo: no MemTotal")
	}
	return m, nil
}

// keyValues iterates over the lines "key : value" of a file in proc.
func keyValues(text []byte) func(yield func(key, value string) bool) {
	return func(yield func(key, value string) bool) {
		lines := bufio.NewScanner(bytes.NewReader(text))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			key, value, _ := strings.Cut(lines.Text(), ":")
			if !yield(strings.TrimSpace(key), strings.TrimSpace(value)) {
				return
			}
		}
	}
}

func readLine(root fs.FS, name string) (string, error) {
	text, err := fs.ReadFile(root, name)
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line), err
}
