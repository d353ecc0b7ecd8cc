package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/nccl"
	"github.com/hetero-train/hetero-train/profiler/system"
)

// healthy returns a machine without faults and warnings.
func healthy(name string) machine {
	files, locked, follows, now := uint64(4096), uint64(1)<<40, true, time.Now()
	year := now.AddDate(1, 0, 0)
	return machine{Ranks: 2, OwnRanks: 1, Machines: 2, HostID: name, Program: "hetero-train 0.1.0",
		Host: system.Host{Name: name, Kernel: "6.1", Cgroups: "v2",
			CPU:    system.CPU{Model: "CPU", Usable: 8, Quota: 8},
			Memory: system.Memory{Total: 16 << 30, Available: 12 << 30, Limit: 16 << 30},
			Networks: []system.Network{{Name: "eth0", Kind: "ethernet", Up: true, MTU: 1500, SpeedMbits: 10000},
				{Name: "eth1", Kind: "ethernet", MTU: 9000}}},
		OpenFiles: &files, LockedBytes: &locked, Clock: &follows,
		Spaces:        []space{{What: "cache", Path: "/c", Total: 1 << 40, Free: 1 << 39}},
		NameAddresses: []string{"10.0.0.1"},
		Credentials: []credential{{Key: "parallel.token_file"},
			{Key: "dashboard.cert_file", From: &now, Until: &year}},
		GPUs: []gpu{{"H100", "580.65", "13.0"}, {"H100", "580.65", "13.0"}}, Module: true, NVIDIA: true,
		Shared: &space{Total: 8 << 30}}
}

func TestEachFaultOfAMachineIsNamed(t *testing.T) {
	m := healthy("a")
	for _, f := range examine(&m) {
		if f.Level != good {
			t.Errorf("a healthy machine: got %+v", f)
		}
	}
	few, some, little, no := uint64(30), uint64(100), uint64(64<<10), false
	for _, c := range []struct {
		name   string
		change func(*machine)
		check  string
		level  level
		found  string
	}{
		{"a CPU quota", func(m *machine) { m.Host.CPU.Quota = 1.5 }, "processor", note, "1.50 of 8 CPUs"},
		{"a slow governor", func(m *machine) { m.Governor, m.Driver = "powersave", "acpi-cpufreq" }, "processor",
			warning, "lowest frequency"},
		{"Docker's shared memory", func(m *machine) { m.Shared.Total = 64 << 20 }, "shared memory", warning, "64 MiB"},
		{"no shared memory", func(m *machine) { m.Shared = nil }, "shared memory", warning, "missing"},
		{"few open files", func(m *machine) { m.OpenFiles = &few }, "open files", fault, "may open 30 files"},
		{"open files for small data only", func(m *machine) { m.OpenFiles = &some }, "open files", warning, "needs up to "},
		{"few threads", func(m *machine) { m.Threads, m.ThreadsCure = "pids.max allows 9", "pids.max" }, "threads",
			fault, "pids.max allows 9"},
		{"a limit of addresses", func(m *machine) { m.Addresses = &little }, "address space", warning, "ulimit -v"},
		{"locked memory with RDMA", func(m *machine) { m.RDMA, m.LockedBytes = true, &little }, "locked memory",
			warning, "RDMA locks"},
		{"a full disk", func(m *machine) { m.Spaces[0].Free = 5 << 20 }, "disk", warning, "5 MiB free"},
		{"a folder of another user", func(m *machine) { m.Spaces[0].Fault = "permission denied" }, "disk", fault,
			"permission denied"},
		{"a clock of its own", func(m *machine) { m.Clock = &no }, "clock", note, "no time server"},
		{"no network", func(m *machine) { m.Host.Networks = nil }, "interface", fault, "no interface is up"},
		{"a name without an address", func(m *machine) { m.NameFault = "no such host" }, "host name", note, "no such host"},
		{"Debian's 127.0.1.1", func(m *machine) { m.NameAddresses = []string{"127.0.1.1"} }, "host name", note, "loopback"},
		{"a port in use", func(m *machine) { m.Listen = []listen{{"dashboard.port", "127.0.0.1:1", "in use"}} }, "port",
			fault, "in use"},
		{"a wrong token", func(m *machine) { m.Credentials = []credential{{Key: "parallel", Fault: "too short"}} },
			"credentials", fault, "too short"},
		{"a certificate that ends soon", func(m *machine) {
			until := time.Now().Add(24 * time.Hour)
			from := until.AddDate(-1, 0, 0)
			m.Credentials = []credential{{Key: "metrics.cert_file", From: &from, Until: &until}}
		}, "credentials", warning, "metrics.cert_file: the certificate expires on "},
		{"a driver that was updated", func(m *machine) { m.GPUs, m.NoGPU = nil, "version mismatch" }, "GPU", fault,
			"version mismatch"},
		{"a GPU without a driver", func(m *machine) { m.GPUs, m.Module = nil, false }, "GPU", fault, "no driver"},
		{"no GPU", func(m *machine) { m.GPUs, m.Module, m.NVIDIA = nil, false, false }, "GPU", note, "uses the CPUs"},
		{"a wrong setting of NCCL", func(m *machine) { m.NCCLFault = "NCCL_ALGO: got x" }, "NCCL settings", fault,
			"NCCL_ALGO"},
		{"an interface that is down", func(m *machine) {
			m.NCCL = []nccl.Setting{{Name: "NCCL_SOCKET_IFNAME", Value: "eth1", From: "environment"}}
		}, "NCCL settings", fault, "selects no interface"},
	} {
		m := healthy("a")
		c.change(&m)
		var got []finding
		for _, f := range examine(&m) {
			if f.Level != good {
				got = append(got, f)
			}
		}
		if len(got) != 1 || got[0].Check != c.check || got[0].Level != c.level ||
			!strings.Contains(got[0].Found, c.found) {
			t.Errorf("%s: got %+v, want one %s of %s with %q", c.name, got, c.level, c.check, c.found)
			continue
		}
		if c.level != note && got[0].Cure == "" {
			t.Errorf("%s: %q has no cure", c.name, got[0].Found)
		}
	}
}

func TestNamesOfInterfaces(t *testing.T) {
	up := []system.Network{{Name: "eth0", Up: true}, {Name: "docker0", Up: true}, {Name: "ib0"}}
	for value, want := range map[string]bool{"eth": true, "eth0": true, "=eth0": true, "=eth": false, "ib": false,
		"^docker": true, "^docker,eth": false, "enp,eth": true} {
		if got := selects(value, up); got != want {
			t.Errorf("%s: got %v, want %v", value, got, want)
		}
	}
}

func TestDifferencesOfMachinesAreNamed(t *testing.T) {
	equal := clocks{Offsets: make([]time.Duration, 2), Error: time.Millisecond}
	for _, c := range []struct {
		name   string
		change func(second *machine, of *clocks)
		check  string
		level  level
		found  string
	}{
		{"versions", func(m *machine, _ *clocks) { m.Program = "hetero-train 0.2.0" }, "program", fault,
			"0.1.0 on a; hetero-train 0.2.0 on b"},
		{"drivers", func(m *machine, _ *clocks) { m.GPUs[0].Driver = "570.1" }, "driver of GPUs", note, "570.1 on b"},
		{"MTU", func(m *machine, _ *clocks) { m.Host.Networks[0].MTU = 9000 }, "MTU", warning, "1500 on a; 9000 on b"},
		{"NCCL", func(m *machine, _ *clocks) { m.NCCL = []nccl.Setting{{Name: "NCCL_ALGO", Value: "Ring"}} },
			"NCCL settings", warning, "none on a; NCCL_ALGO=Ring on b"},
		{"clocks", func(_ *machine, of *clocks) { of.Offsets[1] = -90 * time.Second }, "clocks", warning,
			"the clock of b differs by -1m30s from that of a"},
	} {
		machines, times := []machine{healthy("a"), healthy("b")}, clocks{append([]time.Duration(nil), equal.Offsets...),
			equal.Error}
		for _, f := range compare(machines, times) {
			if f.Level != good {
				t.Errorf("equal machines: got %+v", f)
			}
		}
		c.change(&machines[1], &times)
		var got []finding
		for _, f := range compare(machines, times) {
			if f.Level != good {
				got = append(got, f)
			}
		}
		if len(got) != 1 || got[0].Check != c.check || got[0].Level != c.level ||
			!strings.Contains(got[0].Found, c.found) || got[0].Cure == "" {
			t.Errorf("%s: got %+v, want one %s of %s with %q", c.name, got, c.level, c.check, c.found)
		}
	}
	same := []machine{healthy("a"), healthy("a")}
	if got := compare(same, equal); got != nil {
		t.Errorf("two ranks of a machine: got %+v, want nothing", got)
	}
}
