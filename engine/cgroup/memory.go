package cgroup

import (
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// Memory is the memory of a control group and of the groups below it, in bytes.
type Memory struct {
	Folder string // folder of the group below the root, such as "sys/fs/cgroup/job"
	Group  string // path of the group in proc/PID/cgroup; "": unknown, because the group is outside the mount
	File   string // name of the file that contains Limit
	Limit  int64  // memory.max, or memory.high if it is lower; 0: no limit
	Used   int64  // memory that the kernel cannot reclaim without swapping: anonymous, shared and kernel memory
	// UserOnly is set if Used does not include kernel memory, such as page tables and kernel stacks of threads (version
	// 1)
	UserOnly bool
	Peak     int64 // largest use so far, including page cache; 0: unknown
	Kills    int64 // processes that the kernel killed because memory ran out; -1: unknown
	// Stalled is the percentage of the last 10 s in which all processes of the group waited for memory; 0 if it is
	// unknown
	Stalled float64
}

// Memory returns the levels of the memory controller: first the process's own group, then its parents.
func (c Groups) Memory(root fs.FS) []Memory {
	folders, v2 := c.Folders("memory")
	var levels []Memory
	group, inside := c.memoryGroup(v2), c.visible("memory", v2)
	for _, folder := range folders {
		m := Memory{Folder: folder}
		if inside {
			m.Group, group = group, path.Dir(group)
		}
		if v2 {
			m.readV2(root)
		} else {
			m.readV1(root)
		}
		levels = append(levels, m)
	}
	return levels
}

func (m *Memory) readV2(root fs.FS) {
	for _, file := range []string{"memory.max", "memory.high"} { // without a limit, the file contains "max"
		if limit, ok := number(root, path.Join(m.Folder, file)); ok && limit > 0 && (m.Limit == 0 || limit < m.Limit) {
			m.Limit, m.File = limit, file
		}
	}
	stat := table(root, path.Join(m.Folder, "memory.stat"))
	kernel, ok := stat["kernel"]
	if !ok { // before Linux 5.18
		kernel = stat["kernel_stack"] + stat["pagetables"] + stat["percpu"] + stat["sock"] + stat["slab"]
	}
	m.Used = stat["anon"] + stat["shmem"] + kernel - stat["slab_reclaimable"]
	m.Peak, _ = number(root, path.Join(m.Folder, "memory.peak"))
	m.Kills = killsIn(root, path.Join(m.Folder, "memory.events"))
	m.Stalled = stalled(root, path.Join(m.Folder, "memory.pressure"))
}

func (m *Memory) readV1(root fs.FS) {
	const file = "memory.limit_in_bytes" // without a limit, the file contains a number near 2^63
	if limit, ok := number(root, path.Join(m.Folder, file)); ok && limit > 0 && limit < math.MaxInt64-1<<20 {
		m.Limit, m.File = limit, file
	}
	stat := table(root, path.Join(m.Folder, "memory.stat"))
	// Kernel memory is left out. memory.kmem.usage_in_bytes also contains file system caches, which the kernel can
	// reclaim, and no file reports the size of these caches.
	m.Used, m.UserOnly = stat["total_rss"]+stat["total_shmem"], true
	m.Peak, _ = number(root, path.Join(m.Folder, "memory.max_usage_in_bytes"))
	m.Kills = killsIn(root, path.Join(m.Folder, "memory.oom_control"))
}

// memoryGroup returns the path of the process's own group.
func (c Groups) memoryGroup(v2 bool) string {
	if v2 {
		return path.Clean(c.groups[""])
	}
	return path.Clean(c.groups["memory"])
}

// GroupOf returns the path of the group that limits the memory of another process. known is false if the process is not
// visible, for example because it is in another PID namespace.
func (c Groups) GroupOf(root fs.FS, pid int) (group string, known bool) {
	_, v2 := c.Folders("memory")
	list, err := fs.ReadFile(root, path.Join("proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return "", false
	}
	other := Groups{groups: map[string]string{}}
	other.addGroups(string(list))
	if _, known = other.groups["memory"]; v2 {
		_, known = other.groups[""]
	}
	return other.memoryGroup(v2), known
}

// Contains reports whether group is this group or one below it. The parameter group is a path, as GroupOf returns it.
func (m Memory) Contains(group string) bool {
	return m.Group == "" || m.Group == group || strings.HasPrefix(group, strings.TrimSuffix(m.Group, "/")+"/")
}

// Kills returns the number of processes in the process's own group that the kernel killed because memory ran out. -1:
// unknown.
func (c Groups) Kills(root fs.FS) int64 {
	folders, v2 := c.Folders("memory")
	if len(folders) == 0 {
		return -1
	}
	file := "memory.oom_control"
	if v2 {
		file = "memory.events"
	}
	return killsIn(root, path.Join(folders[0], file))
}

// Tightest returns the level with the least memory left below its limit. ok is false if no level has a limit.
func Tightest(levels []Memory) (tightest Memory, ok bool) {
	for _, m := range levels {
		if m.Limit > 0 && (!ok || m.Limit-m.Used < tightest.Limit-tightest.Used) {
			tightest, ok = m, true
		}
	}
	return tightest, ok
}

// MemoryLimit returns the smallest memory limit of the process's own group and its parents, in bytes.
func (c Groups) MemoryLimit(root fs.FS) (bytes int64, limited bool) {
	bytes = math.MaxInt64
	for _, m := range c.Memory(root) {
		if m.Limit > 0 {
			bytes = min(bytes, m.Limit)
		}
	}
	return bytes, bytes != math.MaxInt64
}

func killsIn(root fs.FS, file string) int64 {
	if n, ok := table(root, file)["oom_kill"]; ok {
		return n
	}
	return -1
}

// stalled returns avg10 from the line "full avg10=1.25 avg60=…" of a pressure file.
func stalled(root fs.FS, file string) float64 {
	text, _ := fs.ReadFile(root, file)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "full avg10="); ok {
			value, _, _ := strings.Cut(rest, " ")
			percent, err := strconv.ParseFloat(value, 64)
			if err == nil && percent >= 0 {
				return percent
			}
		}
	}
	return 0
}

func number(root fs.FS, file string) (int64, bool) {
	text, _ := line(root, file)
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// table reads the lines "NAME NUMBER" of a file.
func table(root fs.FS, file string) map[string]int64 {
	text, _ := fs.ReadFile(root, file)
	values := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 {
			if n, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				values[fields[0]] = n
			}
		}
	}
	return values
}
