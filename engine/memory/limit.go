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
	// PIDs are the process ids of the other ranks of this machine that exist already. The id of a rank in another PID
	// namespace is Hidden.
	PIDs []int
	// Coming is the number of ranks that have not started yet and will belong to the control group of this process
	Coming int
	// Others is the memory in bytes of processes that will start later and are not ranks
	Others int64
	Own    Own
}

// Own describes the addresses that this process will reserve after the limit is read. They count against RLIMIT_AS and
// RLIMIT_DATA.
type Own struct {
	Threads int // largest number of threads of this process; 0: unknown
	// OneArena is set if malloc reserves no addresses for threads ([OneArena]).
	OneArena bool
	Stack    int64 // addresses of the stack of a thread, bytes ([ThreadStack]); 0: that of proc/self/limits
	Tensors  bool  // the device allocates tensors on Go's heap
}

// Hidden is the entry of Sharers.PIDs for a rank whose process this process does not see.
const Hidden = -1

const (
	ArenaBytes = 64 << 20 // addresses by which Go's heap grows
	// HeapSpread is the number of bytes by which Go's heap may exceed its account. The heap grows in steps of 4 to 8
	// MiB, and the runtime keeps the addresses of freed memory. With a HeapSpread of 8 MiB, 2 of 5 runs with the
	// largest batch ended with "out of memory".
	HeapSpread = 40 << 20
	// KernelBytes is the number of bytes that must be free whenever the CPU device compiles a kernel, also for a
	// checkpoint. It is more than the sum of kCompileBytes of engine/device/cpu/src/api.cc and kHeadroom of
	// engine/device/native/src/headroom.h: the device refuses to compile with less. Without it, a run with the largest
	// batch of ResNet-50 trained, and then could not save its weights.
	KernelBytes    = 24 << 20
	unknownThreads = 8       // threads that are assumed to start if their number is unknown
	unlimitedStack = 2 << 20 // glibc's stack of a thread if RLIMIT_STACK is unlimited
	// mallocBytes is only address space: each thread that calls malloc of glibc reserves 64 MiB.
	mallocBytes = 8 * 64 << 20
)

// later returns the bytes that the process will still reserve without using them, divided into data and other
// addresses. threads is the number of its threads, and stack the size of the stack of a thread.
func (o Own) later(threads, stack int64, heap goHeap) (data, other int64) {
	coming := int64(unknownThreads)
	if o.Threads > 0 {
		coming = max(int64(o.Threads)-threads, 0)
	}
	data, other = HeapSpread+KernelBytes+coming*stack, heap.later()
	if !o.OneArena {
		other += mallocBytes
	}
	return data, other
}

// If the device allocates tensors on Go's heap, the fraction 1/tensorSpread of the remaining bytes is kept for the
// heap's other needs.
const tensorSpread = 4

// ReadLimit returns the memory that this process may use. It is the smallest of these limits: the limits of the control
// group and its parents, less the memory that other processes of the group use; RLIMIT_AS and RLIMIT_DATA; the
// available memory of the machine. Ranks with a common limit divide it equally. The limit of a control group is common
// to the ranks in this group and in the groups below it. root contains proc and sys. The result is the zero value if
// nothing is known, as on systems without proc.
func ReadLimit(root fs.FS, s Sharers) Limit {
	var lowest Limit
	consider := func(l Limit) {
		if l.Bytes = max(l.Bytes, 1); lowest.Bytes == 0 || l.Bytes < lowest.Bytes {
			lowest = l
		}
	}
	groups := cgroup.Read(root)
	for _, m := range groups.Memory(root) {
		if m.Limit == 0 {
			continue
		}
		inGroup := []int{0}
		for _, pid := range s.PIDs {
			if group, known := groups.GroupOf(root, pid); known && m.Contains(group) {
				inGroup = append(inGroup, pid)
			}
		}
		ranks := len(inGroup) + s.Coming
		others := max(m.Used-residentOf(root, inGroup, !m.UserOnly), 0) + s.Others
		consider(Limit{Bytes: (m.Limit - others) / int64(ranks), Source: m.File + " of /" + m.Folder, Ranks: ranks})
	}
	if l, limited := ReadAddressLimit(root, s.Own); limited {
		consider(l)
	}
	if available, swappable, ok := meminfo(root); ok {
		all := append([]int{0}, s.PIDs...)
		ranks, more := len(all)+s.Coming, residentOf(root, all, true)-s.Others
		l := Limit{Bytes: (available + more) / int64(ranks), Source: "memory available on the machine", Ranks: ranks,
			Hard: (swappable + more) / int64(ranks)}
		if lowest.Bytes > 0 {
			l.Hard = min(l.Hard, lowest.Bytes)
		}
		if l.Hard <= l.Bytes {
			l.Hard = 0
		}
		consider(l)
	}
	return lowest
}

// ReadAddressLimit returns the smallest of RLIMIT_AS and RLIMIT_DATA, less the addresses that this process reserves
// without using them. limited is false if neither limit is set.
func ReadAddressLimit(root fs.FS, o Own) (lowest Limit, limited bool) {
	own, _ := Resident(root, 0)
	for _, a := range ListAddresses(root, o) {
		// Reserved but unused addresses also count against these limits.
		excluded := a.Held - own + a.Later
		bytes := a.Limit - excluded
		if o.Tensors {
			bytes -= bytes / tensorSpread
		}
		if bytes = max(bytes, 1); !limited || bytes < lowest.Bytes {
			lowest, limited = Limit{Bytes: bytes, Source: a.Source, Ranks: 1, Addresses: true, Flag: a.Flag,
				Excluded: excluded, tensors: o.Tensors}, true
		}
	}
	return lowest, limited
}

// Addresses are the addresses that this process has reserved, and their limit.
type Addresses struct {
	Source string // "RLIMIT_AS" or "RLIMIT_DATA"
	Flag   string // option of the shell's ulimit that sets the limit
	Limit  int64  // bytes
	Held   int64  // bytes
	// Later is the number of bytes that the process will still reserve, apart from the model: stacks of threads that
	// have not started yet, and addresses that Go's heap and malloc reserve without using them. See Own.
	Later int64
}

// Left returns the bytes that this process can still reserve.
func (a Addresses) Left() int64 { return max(a.Limit-a.Held, 0) }

// ReadAddresses returns the state of the limit that the process reaches first: RLIMIT_AS or RLIMIT_DATA. limited is
// false if neither is set.
func ReadAddresses(root fs.FS) (lowest Addresses, limited bool) {
	for _, a := range ListAddresses(root, Own{}) {
		if !limited || a.Left() < lowest.Left() {
			lowest, limited = a, true
		}
	}
	return lowest, limited
}

// AddressesLeft returns the addresses in bytes that this process can still reserve for data: the smaller rest of
// RLIMIT_AS and RLIMIT_DATA, without the addresses that the process will reserve in any case. The result may be
// negative. limited is false if neither limit is set.
func AddressesLeft(root fs.FS, o Own) (bytes int64, limited bool) {
	for _, a := range ListAddresses(root, o) {
		if left := a.Left() - a.Later; !limited || left < bytes {
			bytes, limited = left, true
		}
	}
	return bytes, limited
}

// ListAddresses returns the state of RLIMIT_AS and of RLIMIT_DATA, without a limit that is not set.
func ListAddresses(root fs.FS, o Own) (list []Addresses) {
	status := readStatus(root, 0)
	stack := o.Stack
	if stack == 0 {
		var known bool
		if stack, known = resourceLimit(root, "Max stack size"); !known {
			stack = unlimitedStack
		}
	}
	data, other := o.later(status["Threads"], stack, readGoHeap(root))
	later := []int64{data + other, data} // in the order of addressLimits
	for i, r := range addressLimits {
		if limit, ok := resourceLimit(root, r.name); ok {
			list = append(list, Addresses{Source: r.source, Flag: r.flag, Limit: limit, Held: status[r.held],
				Later: later[i]})
		}
	}
	return list
}

// addressLimits are the limits of addresses, with their names in proc/self/limits and the names of their use in
// proc/self/status.
var addressLimits = []struct{ name, held, source, flag string }{
	{"Max address space", "VmSize", "RLIMIT_AS", "-v"}, {"Max data size", "VmData", "RLIMIT_DATA", "-d"},
}

// GroupLimit returns the smallest limit of the control group and its parents, in bytes. It does not subtract memory in
// use.
func GroupLimit(root fs.FS) (bytes int64, limited bool) { return cgroup.Read(root).MemoryLimit(root) }

// residentOf returns the memory of processes, with or without kernel memory. A rank whose process is not visible counts
// with the memory of this process.
func residentOf(root fs.FS, pids []int, kernel bool) (sum int64) {
	own, ownKernel, _ := resident(root, 0)
	for _, pid := range pids {
		user, ofKernel, known := resident(root, pid)
		if !known {
			user, ofKernel = own, ownKernel
		}
		if sum += user; kernel {
			sum += ofKernel
		}
	}
	return sum
}

// resourceLimit returns the soft limit of a row of proc/self/limits, bytes.
func resourceLimit(root fs.FS, name string) (int64, bool) {
	text, _ := fs.ReadFile(root, "proc/self/limits")
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				n, err := strconv.ParseInt(fields[0], 10, 64) // fails for "unlimited"
				return n, err == nil
			}
		}
	}
	return 0, false
}

// meminfo returns the bytes of the machine's memory that are available without swapping and with swapping. With
// swapping, these are the free swap space and all memory that processes do not use. They include caches that
// MemAvailable does not count, such as the cache of ZFS.
func meminfo(root fs.FS) (available, swappable int64, ok bool) {
	m := keyed(root, "proc/meminfo")
	available, ok = m["MemAvailable"]
	processes := m["AnonPages"] + m["Shmem"] + m["PageTables"] + m["KernelStack"] + m["Hugetlb"]
	return available, m["MemTotal"] - processes + m["SwapFree"], ok
}

// Resident returns the memory of a process that the kernel cannot reclaim without swapping: its private and shared
// pages, page tables and kernel stacks. pid 0 is this process. known is false if the system does not report it.
func Resident(root fs.FS, pid int) (bytes int64, known bool) {
	user, kernel, known := resident(root, pid)
	return user + kernel, known
}

// resident returns the two parts of Resident.
func resident(root fs.FS, pid int) (user, kernel int64, known bool) {
	s := readStatus(root, pid)
	if s == nil {
		return 0, 0, false
	}
	anonymous, ok := s["RssAnon"]
	if !ok {
		anonymous, ok = s["VmRSS"]
	}
	return anonymous + s["RssShmem"], s["VmPTE"] + s["Threads"]*kernelStackBytes, ok
}

// Mapped returns the memory of the mapped files of this process: program and libraries. The kernel can reclaim these
// pages, but the process then has to wait at every use until they are read again.
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

// keyed returns the numbers in the lines "KEY: NUMBER kB" (as bytes) and "KEY: NUMBER" of a file. It returns nil if the
// file is unreadable.
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

// System returns the root folder of this machine.
func System() fs.FS { return os.DirFS("/") }
