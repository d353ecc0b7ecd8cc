package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/engine/cgroup"
)

// memoryKills counts the processes that the kernel has killed because memory ran out.
type memoryKills struct {
	group  int64 // kills in the control group of this process; -1: unknown
	system int64 // kills on the machine; -1: unknown
}

// readMemoryKills reads the counts below the folder root, which is "/" outside tests.
func readMemoryKills(root string) memoryKills {
	files := os.DirFS(root)
	return memoryKills{group: cgroup.Read(files).Kills(files),
		system: counter(filepath.Join(root, "proc/vmstat"), "oom_kill")}
}

// counter returns the number in the line "NAME NUMBER" of a file, or -1 if there is no such line.
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

// reason compares the counts before and after SIGKILL has ended a rank. It describes whether the kernel killed the rank
// because memory ran out; "": no.
func (before memoryKills) reason(after memoryKills) string {
	switch {
	case before.group >= 0 && after.group > before.group:
		return fmt.Sprintf("out of memory (the control group's counter oom_kill rose from %d to %d)", before.group,
			after.group)
	case before.system >= 0 && after.system > before.system:
		return fmt.Sprintf("perhaps out of memory (the machine's counter oom_kill rose from %d to %d)", before.system,
			after.system)
	case before.group < 0 && before.system < 0:
		return "cause unknown: no counter oom_kill is readable; the kernel log may have the reason"
	}
	return ""
}

// figures describes the memory of a rank that the kernel killed. It contains the limit and the largest use of the
// control group, and the rank's own account (ReportMemory).
func figures(root, account string) string {
	files := os.DirFS(root)
	var words []string
	if level, ok := cgroup.Tightest(cgroup.Read(files).Memory(files)); ok {
		text := fmt.Sprintf("%s of /%s is %s", level.File, level.Folder, mebibytes(level.Limit))
		if level.Peak > 0 {
			text += ", and its processes used up to " + mebibytes(level.Peak)
		}
		words = append(words, text)
	}
	if account != "" {
		words = append(words, account)
	}
	return strings.Join(words, "; ")
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
