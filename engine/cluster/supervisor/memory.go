package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// memoryKills counts the processes that the kernel has killed because memory ran out.
type memoryKills struct {
	group  int64 // kills in the control group of this process; -1: unknown
	system int64 // kills on the machine; -1: unknown
}

// readMemoryKills reads the counts below the folder root, which is "/" outside tests.
func readMemoryKills(root string) memoryKills {
	kills := memoryKills{group: -1, system: counter(filepath.Join(root, "proc/vmstat"), "oom_kill")}
	mounts, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return kills
	}
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return kills
	}
	// A line is NUMBER:CONTROLLERS:PATH. Number 0 without controllers means version 2 of control groups.
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		var file, kind string
		switch {
		case fields[0] == "0" && fields[1] == "":
			file, kind = "memory.events", "cgroup2"
		case strings.Contains(","+fields[1]+",", ",memory,"):
			file, kind = "memory.oom_control", "cgroup"
		default:
			continue
		}
		if folder, ok := groupFolder(string(mounts), kind, fields[2]); ok {
			kills.group = max(kills.group, counter(filepath.Join(root, folder, file), "oom_kill"))
		}
	}
	return kills
}

// groupFolder finds where a control group is mounted. A line of mountinfo is
// NUMBER PARENT DEVICE ROOT MOUNTPOINT OPTIONS [TAGS] - TYPE SOURCE OPTIONS; version 1 names its controllers in the
// last field.
func groupFolder(mounts, kind, group string) (string, bool) {
	for line := range strings.Lines(mounts) {
		before, after, _ := strings.Cut(strings.TrimSpace(line), " - ")
		where, what := strings.Fields(before), strings.Fields(after)
		if len(where) < 5 || len(what) < 3 || what[0] != kind {
			continue
		}
		if kind == "cgroup" && !strings.Contains(","+what[2]+",", ",memory,") {
			continue
		}
		below := strings.TrimPrefix(group, strings.TrimSuffix(where[3], "/"))
		return filepath.Join(where[4], below), true
	}
	return "", false
}

// counter reads a line "NAME NUMBER" of a file; -1: not found.
func counter(file, name string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == name {
			if n, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}

// reason compares the counts before and after the death of a rank; "": no memory kill.
func (before memoryKills) reason(after memoryKills) string {
	switch {
	case before.group >= 0 && after.group > before.group:
		return fmt.Sprintf("out of memory (the control group's counter oom_kill rose from %d to %d)", before.group,
			after.group)
	case before.system >= 0 && after.system > before.system:
		return fmt.Sprintf("perhaps out of memory (the machine's counter oom_kill rose from %d to %d)", before.system,
			after.system)
	}
	return ""
}
