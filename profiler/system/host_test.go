package system

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

// machine is a fake host. It maps file names to contents.
type machine map[string]string

func (m machine) with(more machine) machine {
	all := machine{}
	for _, part := range []machine{m, more} {
		for name, text := range part {
			all[name] = text
		}
	}
	return all
}

func (m machine) fs() fstest.MapFS {
	files := fstest.MapFS{}
	for name, text := range m {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return files
}

// xeon returns a server with two sockets, two cores per socket and two threads per core. It has no CPU limits.
func xeon() machine {
	var cpuinfo strings.Builder
	for thread := range 8 {
		fmt.Fprintf(&cpuinfo,
			"processor\t: %d\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Platinum 8480+\n"+
				"physical id\t: %d\ncore id\t\t: %d\nflags\t\t: fpu avx avx2 fma avx512f avx512_bf16 amx_tile amx_bf16 sse2\n\n",
			thread, thread/2%2, thread%2)
	}
	return machine{
		"proc/cpuinfo":                   cpuinfo.String(),
		"proc/meminfo":                   "MemTotal:       16777216 kB\nMemFree:         1000 kB\nMemAvailable:    8388608 kB\n",
		"proc/self/status":               "Name:\ttrain\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\n",
		"proc/sys/kernel/hostname":       "node7\n",
		"proc/sys/kernel/osrelease":      "6.1.0-28-amd64\n",
		"proc/self/cgroup":               "0::/user.slice/session-1.scope\n",
		"proc/self/mountinfo":            "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n25 22 0:21 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n",
		"sys/fs/cgroup/user.slice/x":     "",
		"sys/fs/cgroup/cgroup.max.depth": "max\n",
	}
}

const (
	gib = 1 << 30

	v1Mounts = "30 22 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n" +
		"31 30 0:27 %[1]s /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n" +
		"32 30 0:28 %[1]s /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
)

func TestLimitsOfFakeMachines(t *testing.T) {
	cases := []struct {
		name      string
		files     machine
		usable    int
		quota     float64
		limit     int64
		container string
		cgroups   string
		wsl2      bool
	}{
		{name: "bare server, cgroup v2 without limits", files: xeon(), usable: 8, quota: 8, limit: 16 * gib,
			cgroups: "v2"},
		{
			name: "no cgroups at all",
			files: xeon().with(
				machine{"proc/self/cgroup": "", "proc/self/mountinfo": "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"}),
			usable: 8, quota: 8, limit: 16 * gib, cgroups: "none"},
		{name: "taskset", files: xeon().with(machine{"proc/self/status": "Cpus_allowed_list:\t0,2-3,6\n"}), usable: 4,
			quota: 4, limit: 16 * gib, cgroups: "v2"},
		{name: "v2 container with its own namespace", files: xeon().with(machine{
			".dockerenv":               "",
			"proc/self/cgroup":         "0::/\n",
			"proc/self/mountinfo":      "500 400 0:50 / / rw - overlay overlay rw\n510 500 0:21 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
			"sys/fs/cgroup/cpu.max":    "150000 100000\n",
			"sys/fs/cgroup/memory.max": "2147483648\n",
		}), usable: 8, quota: 1.5, limit: 2 * gib, container: "docker", cgroups: "v2"},
		{name: "v2, the limit of a level above is smaller", files: xeon().with(machine{
			"proc/self/cgroup":                                                          "0::/kubepods.slice/kubepods-pod1.slice/cri-abc.scope\n",
			"sys/fs/cgroup/kubepods.slice/cpu.max":                                      "max 100000\n",
			"sys/fs/cgroup/kubepods.slice/memory.max":                                   "max\n",
			"sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice/cpu.max":                  "250000 100000\n",
			"sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice/memory.max":               "1073741824\n",
			"sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice/cri-abc.scope/cpu.max":    "400000 100000\n",
			"sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice/cri-abc.scope/memory.max": "4294967296\n",
		}), usable: 8, quota: 2.5, limit: gib, container: "kubernetes", cgroups: "v2"},
		{name: "v1 container, its group is the mount's root", files: xeon().with(machine{
			"proc/self/cgroup":                            "5:cpu,cpuacct:/docker/1a2b\n4:memory:/docker/1a2b\n",
			"proc/self/mountinfo":                         fmt.Sprintf(v1Mounts, "/docker/1a2b"),
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":  "40000\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":  "536870912\n",
		}), usable: 8, quota: 0.4, limit: gib / 2, container: "docker", cgroups: "v1"},
		{name: "v1 on the host, limits of a level above", files: xeon().with(machine{
			"proc/self/cgroup":    "5:cpuacct,cpu:/batch/job\n4:memory:/batch/job\n",
			"proc/self/mountinfo": fmt.Sprintf(v1Mounts, "/"),
			"sys/fs/cgroup/cpu,cpuacct/batch/job/cpu.cfs_quota_us":  "-1\n",
			"sys/fs/cgroup/cpu,cpuacct/batch/job/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_quota_us":      "600000\n",
			"sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_period_us":     "200000\n",
			"sys/fs/cgroup/memory/batch/job/memory.limit_in_bytes":  "9223372036854771712\n",
			"sys/fs/cgroup/memory/batch/memory.limit_in_bytes":      "3221225472\n",
		}), usable: 8, quota: 3, limit: 3 * gib, cgroups: "v1"},
		{name: "v1 controllers next to an empty v2 hierarchy", files: xeon().with(machine{
			"proc/self/cgroup": "5:cpu,cpuacct:/\n4:memory:/\n0::/\n",
			"proc/self/mountinfo": fmt.Sprintf(v1Mounts, "/") +
				"33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":  "100000\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":  "9223372036854771712\n",
		}), usable: 8, quota: 1, limit: 16 * gib, cgroups: "v1+v2"},
		{name: "a group outside the namespace", files: xeon().with(machine{
			"proc/self/cgroup":         "0::/../../other\n",
			"sys/fs/cgroup/cpu.max":    "50000 100000\n",
			"sys/fs/cgroup/memory.max": "max\n",
		}), usable: 8, quota: 0.5, limit: 16 * gib, cgroups: "v2"},
		{name: "a quota above the affinity", files: xeon().with(machine{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "1600000 100000\n",
			"proc/self/status": "Cpus_allowed_list:\t1\n",
		}), usable: 1, quota: 1, limit: 16 * gib, cgroups: "v2"},
		{name: "a limit above the memory", files: xeon().with(machine{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1099511627776\n",
		}), usable: 8, quota: 8, limit: 16 * gib, cgroups: "v2"},
		{name: "a mount point with a space", files: xeon().with(machine{
			"proc/self/cgroup":    "0::/\n",
			"proc/self/mountinfo": "25 22 0:21 / /my\\040groups rw - cgroup2 cgroup2 rw\n",
			"my groups/cpu.max":   "200000 100000\n",
		}), usable: 8, quota: 2, limit: 16 * gib, cgroups: "v2"},
		{
			name: "WSL 2",
			files: xeon().with(machine{"proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n",
				"run/systemd/container": "wsl\n"}),
			usable: 8, quota: 8, limit: 16 * gib, cgroups: "v2", wsl2: true},
		{name: "podman", files: xeon().with(machine{"run/.containerenv": "engine=\"podman\"\n"}), usable: 8, quota: 8,
			limit: 16 * gib, container: "podman", cgroups: "v2"},
		{name: "systemd-nspawn", files: xeon().with(machine{"run/systemd/container": "systemd-nspawn\n"}), usable: 8,
			quota: 8, limit: 16 * gib, container: "systemd-nspawn", cgroups: "v2"},
		{
			name:  "an unknown engine",
			files: xeon().with(machine{"proc/self/mountinfo": "1 0 0:1 / / rw - overlay overlay rw\n"}), usable: 8,
			quota: 8, limit: 16 * gib, container: "container", cgroups: "none"},
	}
	for _, c := range cases {
		h, err := Read(c.files.fs())
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if h.CPU.Usable != c.usable || h.CPU.Quota != c.quota || h.Memory.Limit != c.limit {
			t.Errorf("%s: got %d CPUs, quota %v, limit %d; want %d, %v, %d", c.name, h.CPU.Usable, h.CPU.Quota,
				h.Memory.Limit, c.usable, c.quota, c.limit)
		}
		if h.Container != c.container || h.Cgroups != c.cgroups || h.WSL2 != c.wsl2 {
			t.Errorf("%s: got container %q, cgroups %s, WSL2 %v; want %q, %s, %v", c.name, h.Container, h.Cgroups,
				h.WSL2, c.container, c.cgroups, c.wsl2)
		}
	}
}

func TestFactsOfFakeMachines(t *testing.T) {
	arm := xeon().with(machine{
		"proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd bf16 sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n\nprocessor\t: 1\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n",
		"sys/devices/system/cpu/cpu0/topology/physical_package_id": "0\n",
		"sys/devices/system/cpu/cpu0/topology/core_id":             "0\n",
		"sys/devices/system/cpu/cpu1/topology/physical_package_id": "0\n",
		"sys/devices/system/cpu/cpu1/topology/core_id":             "1\n",
	})
	cases := []struct {
		name     string
		files    machine
		model    string
		vendor   string
		counts   [3]int // numbers of sockets, cores and threads
		features []string
	}{
		{"x86 server", xeon(), "Intel(R) Xeon(R) Platinum 8480+", "GenuineIntel", [3]int{2, 4, 8},
			[]string{"avx", "avx2", "fma", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16"}},
		{"ARM server", arm, "Neoverse V1", "ARM", [3]int{1, 2, 2}, []string{"asimd", "bf16", "sve"}},
		{
			"unknown ARM part",
			arm.with(
				machine{
					"proc/cpuinfo": "processor\t: 0\nCPU implementer\t: 0x61\nCPU part\t: 0xfff\nprocessor\t: 1\n"}),
			"Apple part 0xfff", "Apple", [3]int{1, 2, 2}, []string{}},
		{"virtual machine without topology",
			xeon().with(machine{"proc/cpuinfo": "processor : 0\nmodel name : QEMU\nflags : sse2\nprocessor : 1\n"}),
			"QEMU", "", [3]int{1, 2, 2}, []string{}},
	}
	for _, c := range cases {
		h, err := Read(c.files.fs())
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		got := h.CPU
		if got.Model != c.model || got.Vendor != c.vendor || [3]int{got.Sockets, got.Cores, got.Threads} != c.counts ||
			!slices.Equal(got.Features, c.features) {
			t.Errorf("%s: got %+v, want %v", c.name, got, c)
		}
		if h.Name != "node7" || h.Kernel != "6.1.0-28-amd64" || h.Memory.Total != 16*gib ||
			h.Memory.Available != 8*gib {
			t.Errorf("%s: got %+v", c.name, h)
		}
		if want := slices.Contains(c.features, "bf16"); got.Has("bf16") != want {
			t.Errorf("%s: has bf16: got %v, want %v", c.name, !want, want)
		}
	}
}

func TestMissingFilesAreNamed(t *testing.T) {
	for name, want := range map[string]string{
		"proc/cpuinfo":              "read the CPU",
		"proc/self/status":          "proc/self/status",
		"proc/meminfo":              "read the memory",
		"proc/sys/kernel/hostname":  "host's name",
		"proc/sys/kernel/osrelease": "kernel's release",
	} {
		files := xeon()
		delete(files, name)
		if _, err := Read(files.fs()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s: got %v, want %q", name, err, want)
		}
	}
	for name, text := range map[string]string{"proc/cpuinfo": "nothing\n", "proc/meminfo": "MemTotal: many kB\n",
		"proc/self/status": "Cpus_allowed_list:\t3-1\n"} {
		if _, err := Read(xeon().with(machine{name: text}).fs()); err == nil {
			t.Errorf("%s with %q: no error", name, text)
		}
	}
}

func TestDetectThisMachine(t *testing.T) {
	if runtime.GOOS != "linux" {
		needtest.Missing(t, "system", "only Linux has /proc")
	}
	h, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	name, _ := os.Hostname()
	if h.Name != name || h.CPU.Usable != runtime.NumCPU() || h.CPU.Quota <= 0 || h.CPU.Quota > float64(h.CPU.Usable) ||
		h.CPU.Cores < 1 || h.CPU.Cores > h.CPU.Threads {
		t.Errorf("got %+v; Go sees %d CPUs", h, runtime.NumCPU())
	}
	if m := h.Memory; m.Total < 64<<20 || m.Available <= 0 || m.Available > m.Total || m.Limit <= 0 ||
		m.Limit > m.Total || math.IsNaN(h.CPU.Quota) {
		t.Errorf("got %+v", m)
	}
	t.Logf("%+v", h)
}
