package memory

import (
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/engine/cgroup"
)

// Sharers are the processes that divide the limits of this process.
type Sharers struct {
	Group   int   // ranks in the control group of this process, at least 1
	Machine int   // ranks on this machine, at least Group
	PIDs    []int // those ranks that exist already, without this process; the rest are still to start
	// Others is the memory of processes that are still to start and are no ranks, bytes
	Others int64
}

// ReadLimit returns the memory that this process may use. It is the smallest of: the limits of the control group and
// its parents, less what other processes of the group use; RLIMIT_AS and RLIMIT_DATA; the memory of the machine that is
// available. Ranks divide a limit that they share equally. root contains proc and sys. The result is the zero value if
// nothing is known, as on systems without proc.
func ReadLimit(root fs.FS, s Sharers) Limit {
	own, _ := Resident(root, 0)
	ranks := own
	for _, pid := range s.PIDs {
		other, known := Resident(root, pid)
		if !known { // another namespace of processes: ranks are alike
			other = own
		}
		ranks += other
	}
	var lowest Limit
	consider := func(bytes int64, source string) {
		if lowest.Bytes == 0 || bytes < lowest.Bytes {
			lowest = Limit{max(bytes, 1), source}
		}
	}
	for _, m := range cgroup.Read(root).Memory(root) {
		if m.Limit > 0 {
			inGroup := own
			if s.Group > 1 {
				inGroup = ranks
			}
			others := max(m.Used-inGroup, 0) + s.Others
			consider((m.Limit-others)/int64(max(s.Group, 1)), m.File+" of /"+m.Folder)
		}
	}
	status := readStatus(root, 0)
	for _, r := range []struct{ name, held, source string }{
		{"Max address space", "VmSize", "RLIMIT_AS"}, {"Max data size", "VmData", "RLIMIT_DATA"},
	} {
		// Reserved but unused addresses count against these limits, too.
		if limit, ok := resourceLimit(root, r.name); ok {
			consider(limit-status[r.held]+own, r.source)
		}
	}
	if available, ok := meminfo(root); ok {
		consider((available+ranks-s.Others)/int64(max(s.Machine, 1)), "memory available on the machine")
	}
	return lowest
}

// resourceLimit returns the soft limit of a row of proc/self/limits, bytes.
func resourceLimit(root fs.FS, name string) (int64, bool) {
	text, _ := fs.ReadFile(root, "proc/self/limits")
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				n, err := strconv.ParseInt(fields[0], 10, 64) // "unlimited" without a limit
				return n, err == nil
			}
		}
	}
	return 0, false
}

// meminfo returns the memory of the machine that is available without swapping, bytes.
func meminfo(root fs.FS) (int64, bool) {
	kib, ok := keyed(root, "proc/meminfo")["MemAvailable"]
	return kib, ok
}

// Resident returns the memory of a process that the kernel cannot reclaim without swapping: its private and shared
// pages, page tables and kernel stacks. pid 0 is this process. known is false if the system does not report it.
func Resident(root fs.FS, pid int) (bytes int64, known bool) {
	s := readStatus(root, pid)
	if s == nil {
		return 0, false
	}
	anonymous, ok := s["RssAnon"]
	if !ok {
		anonymous, ok = s["VmRSS"]
	}
	return anonymous + s["RssShmem"] + s["VmPTE"] + s["Threads"]*kernelStackBytes, ok
}

// Mapped returns the memory of the mapped files of this process: program and libraries. The kernel can reclaim these
// pages, but the program then stops to read them again at every use.
func Mapped(root fs.FS) int64 { return readStatus(root, 0)["RssFile"] }

// kernelStackBytes is the size of a thread's stack in the kernel on 64-bit Linux.
const kernelStackBytes = 16 << 10

func readStatus(root fs.FS, pid int) map[string]int64 {
	name := "self"
	if pid != 0 {
		name = strconv.Itoa(pid)
	}
	return keyed(root, path.Join("proc", name, "status"))
}

// keyed reads the lines "KEY: NUMBER kB" and "KEY: NUMBER" of a file, as bytes and numbers. It returns nil if the file
// is unreadable.
func keyed(root fs.FS, file string) map[string]int64 {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return nil
	}
	values := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		key, rest, _ := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		n, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			continue
		}
		if len(fields) == 2 && fields[1] == "kB" {
			n <<= 10
		}
		values[key] = n
	}
	return values
}

// System is the root of the files of this machine.
func System() fs.FS { return os.DirFS("/") }
