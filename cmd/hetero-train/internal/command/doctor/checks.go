package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/nccl"
	"github.com/hetero-train/hetero-train/profiler/system"
)

// level is the severity of a finding.
type level string

const (
	good    level = "ok"
	note    level = "note"    // the user may want to know it
	warning level = "warning" // training runs are slow, or some of them fail
	fault   level = "fault"   // training runs fail
)

// finding is the result of one check.
type finding struct {
	Check string `json:"check"`
	Level level  `json:"level"`
	Rank  int    `json:"rank"` // lowest rank with this finding
	Host  string `json:"host"`
	Found string `json:"found"`
	Cure  string `json:"cure,omitempty"`
}

// findings collects the findings of a machine.
type findings struct {
	of   *machine
	list []finding
}

func (f *findings) add(check string, l level, cure, format string, args ...any) {
	f.list = append(f.list, finding{Check: check, Level: l, Rank: f.of.Rank, Host: f.of.Host.Name,
		Found: fmt.Sprintf(format, args...), Cure: cure})
}

// examine returns the findings about one machine. It does not compare the machine with other machines.
func examine(m *machine) []finding {
	f := &findings{of: m}
	f.system()
	f.processor()
	f.memory()
	f.limits()
	f.spaces()
	f.clock()
	f.network()
	f.ports()
	f.credentials()
	f.gpus()
	f.nccl()
	return f.list
}

func (f *findings) system() {
	m := f.of
	text := "kernel " + m.Host.Kernel
	if m.Host.Container != "" {
		text += ", container " + m.Host.Container
	}
	if m.Host.WSL2 {
		text += ", WSL2"
	}
	f.add("system", good, "", "%s, control groups %s; %s", text, m.Host.Cgroups, m.Program)
	if m.Unknown != "" {
		f.add("system", note, "", "some properties of the machine are unknown: %s", m.Unknown)
	}
}

func (f *findings) processor() {
	m, cpu := f.of, f.of.Host.CPU
	if cpu.Quota < float64(cpu.Usable)-0.01 {
		f.add("processor", note, "raise the quota (cpu.max of the control group, `docker --cpus`, `resources.limits.cpu`) if the ranks are slow",
			"the control group grants %.2f of %d CPUs; a rank that has used its quota stops until the next period", cpu.Quota,
			cpu.Usable)
	} else {
		f.add("processor", good, "", "%d CPUs, no quota: %s", cpu.Usable, cpu.Model)
	}
	// Drivers with the suffix "pstate" choose the frequency themselves, also under "powersave".
	if m.Governor == "powersave" && !strings.HasSuffix(m.Driver, "pstate") {
		f.add("processor", warning, "cpupower frequency-set -g performance",
			"the frequency governor powersave (driver %s) keeps the CPUs at their lowest frequency", m.Driver)
	}
}

func (f *findings) memory() {
	h := f.of.Host.Memory
	text := fmt.Sprintf("%.1f GiB, %.1f GiB available", show.GiB(h.Total), show.GiB(h.Available))
	if h.Limit < h.Total {
		text += fmt.Sprintf("; the control group allows %.1f GiB", show.GiB(h.Limit))
	}
	f.add("memory", good, "", "%s", text)
	const small = 1 << 30 // Docker gives 64 MiB by default; NCCL needs tens of MiB for each pair of GPUs
	switch s := f.of.Shared; {
	case len(f.of.GPUs) < 2: // no NCCL; the ranks of hetero-train share memory without /dev/shm
		if s != nil {
			f.add("shared memory", good, "", "/dev/shm has %d MiB; only NCCL between GPUs needs it (docker run --shm-size)",
				s.Total>>20)
		}
	case s == nil:
		f.add("shared memory", warning, "mount a tmpfs at /dev/shm", "/dev/shm is missing, and NCCL needs it between the GPUs of a machine")
	case s.Total < small:
		f.add("shared memory", warning, "docker run --shm-size 8g or --ipc host; in Kubernetes an emptyDir with medium Memory at /dev/shm",
			"/dev/shm has %d MiB, and NCCL needs it between the GPUs of a machine", s.Total>>20)
	default:
		f.add("shared memory", good, "", "/dev/shm has %.1f GiB", show.GiB(s.Total))
	}
}

// filesOfRanks returns two estimates of how many files the process with the most open files has on this machine. They
// do not depend on the configuration. The result low is the number with shared memory and without encryption. The
// result high is the number with encrypted connections between all ranks, and with samples in files.
func filesOfRanks(m *machine) (low, high uint64) {
	n := process.FileNeed{Ranks: m.Ranks, Local: min(m.OwnRanks, m.Ranks), First: m.Rank == 0, Starts: m.OwnRanks > 1,
		Shared: true}
	if m.Machines > 1 || m.OwnRanks == m.Ranks {
		n.Machines = m.Machines
	}
	low = uint64(n.Least())
	n.Shared, n.Encrypt, n.Data, n.GPU = false, m.Ranks > 1, true, len(m.GPUs) > 0
	return low, uint64(n.Most())
}

func (f *findings) limits() {
	m := f.of
	switch least, most := filesOfRanks(m); {
	case m.OpenFiles == nil:
	case *m.OpenFiles < least:
		f.add("open files", fault, fmt.Sprintf("ulimit -n %d", max(most, 4096)),
			"a process may open %d files, and a run of %d ranks needs at least %d on this machine", *m.OpenFiles, m.Ranks,
			least)
	case *m.OpenFiles < most:
		f.add("open files", warning, fmt.Sprintf("ulimit -n %d", max(most, 4096)),
			"a process may open %d files, and a run of %d ranks needs up to %d on this machine", *m.OpenFiles, m.Ranks, most)
	default:
		f.add("open files", good, "", "a process may open %d files", *m.OpenFiles)
	}
	if m.Threads != "" {
		f.add("threads", fault, "raise "+m.ThreadsCure, "%s, and %d ranks need about %d more", m.Threads, m.OwnRanks,
			threadsOfARank*m.OwnRanks)
	}
	const ample = 4 << 30
	if m.Addresses != nil && *m.Addresses < ample {
		f.add("address space", warning, "limit the memory with a control group instead of ulimit -v",
			"ulimit -v allows %.1f GiB of addresses, and libraries reserve more than they use", show.GiB(int64(*m.Addresses)))
	}
	const registered = 1 << 30
	if m.RDMA && m.LockedBytes != nil && *m.LockedBytes < registered {
		f.add("locked memory", warning, "ulimit -l unlimited; docker run --ulimit memlock=-1",
			"a process may lock %d MiB, and RDMA locks all memory that it sends", *m.LockedBytes>>20)
	}
}

func (f *findings) spaces() {
	const small = 1 << 30 // a checkpoint of ResNet-50 with the optimizer's state has about 0.3 GiB
	for _, s := range f.of.Spaces {
		switch {
		case s.Fault != "":
			f.add("disk", fault, "choose another folder, or change its owner", "%s (%s) cannot be written: %s",
				s.Path, s.What, s.Fault)
		case s.Free < small:
			f.add("disk", warning, "free some space, or choose another folder", "%s (%s) has %d MiB free",
				s.Path, s.What, s.Free>>20)
		default:
			f.add("disk", good, "", "%s (%s) has %.0f GiB free", s.Path, s.What, show.GiB(s.Free))
		}
	}
}

func (f *findings) clock() {
	switch follows := f.of.Clock; {
	case follows == nil:
	case *follows:
		f.add("clock", good, "", "follows a time server")
	default:
		f.add("clock", note, "start a time service, such as chrony or systemd-timesyncd",
			"follows no time server, so times in records of several machines may differ")
	}
}

func (f *findings) network() {
	m := f.of
	up := 0
	for _, n := range m.Host.Networks {
		if !n.Up {
			continue
		}
		up++
		speed := ""
		if n.SpeedMbits > 0 {
			speed = fmt.Sprintf(", %g Gbit/s", float64(n.SpeedMbits)/1000)
		}
		f.add("interface", good, "", "%s: %s, MTU %d%s", n.Name, n.Kind, n.MTU, speed)
	}
	if up == 0 && m.OwnAddress == "" { // if the ranks have met, an interface that is not up yet does connect them
		l := note
		if m.Machines > 1 {
			l = fault
		}
		f.add("interface", l, "connect the machine, or start the container with --network host",
			"no interface is up except the loopback, so no other machine can be reached")
	}
	switch {
	case m.NameFault != "":
		f.add("host name", note, "add the name to /etc/hosts or to DNS, or use an address as parallel.master_addr",
			"%s has no address (%s), so other machines cannot use it for rank 0", m.Host.Name, m.NameFault)
	case !slices.ContainsFunc(m.NameAddresses, func(a string) bool { return !loopback(a) }):
		f.add("host name", note, "use an address as parallel.master_addr, or correct /etc/hosts",
			"%s is %s, the loopback, so other machines cannot use it for rank 0", m.Host.Name,
			strings.Join(m.NameAddresses, ", "))
	default:
		f.add("host name", good, "", "%s is %s", m.Host.Name, strings.Join(m.NameAddresses, ", "))
	}
}

func (f *findings) ports() {
	for _, p := range f.of.Listen {
		if p.Fault == "" {
			f.add("port", good, "", "%s: %s is free", p.Key, p.Address)
			continue
		}
		f.add("port", fault, "end the program that has the port (`ss -ltnp`), or set "+p.Key, "%s: %s", p.Key, p.Fault)
	}
}

func (f *findings) gpus() {
	m := f.of
	for _, w := range m.GPUWarnings {
		f.add("GPU", warning, "", "%s", w)
	}
	switch {
	case len(m.GPUs) > 0:
		f.add("GPU", good, "", "%d times %s, driver %s for CUDA up to %s", len(m.GPUs), m.GPUs[0].Name,
			m.GPUs[0].Driver, m.GPUs[0].CUDA)
	case m.Module:
		f.add("GPU", fault, "restart the machine after an update of the driver; start a container with `docker run --gpus all`",
			"the kernel module of NVIDIA is loaded, but its library shows no GPU: %s", m.NoGPU)
	case m.NVIDIA:
		f.add("GPU", fault, "install NVIDIA's driver (docs/gpu.md names the versions)",
			"the machine has a GPU of NVIDIA, but no driver: %s", m.NoGPU)
	default:
		f.add("GPU", note, "", "no GPU of NVIDIA: training uses the CPUs")
	}
}

func (f *findings) nccl() {
	m := f.of
	if m.NCCLFault != "" {
		f.add("NCCL settings", fault, "correct the settings (docs/gpu.md)", "%s", m.NCCLFault)
	}
	for _, n := range m.NCCLNotes {
		f.add("NCCL settings", note, "", "%s", n)
	}
	for _, v := range m.NCCL {
		if v.Name == "NCCL_SOCKET_IFNAME" && !selects(v.Value, m.Host.Networks) {
			f.add("NCCL settings", fault, "name an interface of the list above, or remove the setting",
				"%s=%s (%s) selects no interface that is up", v.Name, v.Value, v.From)
		}
	}
	if len(m.NCCL) > 0 {
		f.add("NCCL settings", good, "", "%v", nccl.Settings(m.NCCL))
	}
}

// selects reports whether a value of NCCL_SOCKET_IFNAME selects an interface that is up. The value is a list of
// prefixes of names. After "=", it is a list of full names. After "^", it is a list of prefixes of the interfaces to
// leave out.
func selects(value string, networks []system.Network) bool {
	exact, without := strings.HasPrefix(value, "="), strings.HasPrefix(value, "^")
	names := strings.Split(strings.TrimLeft(value, "=^"), ",")
	return slices.ContainsFunc(networks, func(n system.Network) bool {
		named := slices.ContainsFunc(names, func(name string) bool {
			return n.Name == name || !exact && strings.HasPrefix(n.Name, name)
		})
		return n.Up && named != without
	})
}

// soon is how long before the end of a certificate doctor begins to warn at the earliest. Long runs take weeks.
const soon = 14 * 24 * time.Hour

// credentials adds findings about secrets and certificates. It also warns in the last third of a certificate's validity
// if this third is shorter than soon. Certificates are valid for hours to years.
func (f *findings) credentials() {
	const cure = "correct the file, or the setting that names it (docs/security.md)"
	now := time.Now()
	for _, c := range f.of.Credentials {
		switch {
		case c.Fault != "" && c.Result != "":
			f.add("credentials", warning, cure, "%s; %s", c.Fault, c.Result)
		case c.Fault != "":
			f.add("credentials", fault, cure, "%s", c.Fault)
		case c.Until == nil:
			f.add("credentials", good, "", "%s: there is a secret", c.Key)
		case now.Before(*c.From): // certificate of a server: for ranks, this is a fault
			f.add("credentials", warning, "correct the clock, or make another certificate",
				"%s: the certificate is valid only from %s; clients refuse it until then", c.Key,
				c.From.UTC().Format(time.DateTime))
		case c.Until.Sub(now) < min(soon, c.Until.Sub(*c.From)/3):
			renew := "renew it before a long run, for example with \"hetero-train certs\""
			if c.Server {
				renew = "renew it; the server reads the new files without a restart"
			}
			f.add("credentials", warning, renew, "%s: the certificate expires on %s", c.Key,
				c.Until.UTC().Format(time.DateTime))
		default:
			f.add("credentials", good, "", "%s: the certificate is valid until %s", c.Key,
				c.Until.UTC().Format(time.DateOnly))
		}
	}
}
