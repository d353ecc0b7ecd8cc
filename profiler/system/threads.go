package system

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/engine/cgroup"
)

// ThreadLimit is a limit on the number of threads. Linux counts threads as processes.
type ThreadLimit struct {
	Name  string // for example "RLIMIT_NPROC of user 1000" or "pids.max of the control group /job"
	Cure  string // how to raise the limit, for example "ulimit -u"
	Limit int64
	Used  int64 // current number of threads that count towards the limit, including those of this process
}

// String returns a text such as "RLIMIT_NPROC of user 1000 allows 64 threads, of which 40 exist".
func (l ThreadLimit) String() string {
	return fmt.Sprintf("%s allows %d threads, of which %d exist", l.Name, l.Limit, l.Used)
}

// ThreadsRefused returns the limit that prevents this process from starting count further threads. If there are several
// such limits, it returns the lowest one. refused is false if the threads can start. It may also be false if the limit
// counts threads of other containers, because they are invisible here.
func ThreadsRefused(count int) (limit ThreadLimit, refused bool) {
	return threadsRefused(os.DirFS("/"), count)
}

func threadsRefused(root fs.FS, more int) (tightest ThreadLimit, refused bool) {
	consider := func(l ThreadLimit) {
		if l.Used+int64(more) > l.Limit && (!refused || l.Limit-l.Used < tightest.Limit-tightest.Used) {
			tightest, refused = l, true
		}
	}
	groups := cgroup.Read(root)
	folders, _ := groups.Folders("pids")
	for _, folder := range folders {
		limit, limited := wholeNumber(root, path.Join(folder, "pids.max")) // "max": no limit; missing in the root group
		used, counted := wholeNumber(root, path.Join(folder, "pids.current"))
		if limited && counted {
			consider(ThreadLimit{Name: "pids.max of the control group /" + folder, Cure: "pids.max", Limit: limit,
				Used: used})
		}
	}
	// Check this cheap condition first, because counting the threads of a user is slow.
	if limit, user, limited := userLimit(root); limited && existingThreads(root)+int64(more) > limit {
		consider(ThreadLimit{Name: "RLIMIT_NPROC of user " + user, Cure: "ulimit -u", Limit: limit,
			Used: threadsOf(root, user)})
	}
	return tightest, refused
}

// userLimit returns RLIMIT_NPROC if it applies to this process. Root and processes with CAP_SYS_RESOURCE or
// CAP_SYS_ADMIN are exempt, unless they have these capabilities only in a user namespace.
func userLimit(root fs.FS) (limit int64, user string, limited bool) {
	limits, _ := fs.ReadFile(root, "proc/self/limits")
	for line := range strings.Lines(string(limits)) {
		if text, found := strings.CutPrefix(line, "Max processes"); found {
			if field := strings.Fields(text); len(field) > 0 {
				n, err := strconv.ParseInt(field[0], 10, 64) // "unlimited" is not a number
				limit, limited = n, err == nil
			}
		}
	}
	status, _ := fs.ReadFile(root, "proc/self/status")
	var capabilities uint64
	for key, value := range keyValues(status) {
		switch field := strings.Fields(value); {
		case key == "Uid" && len(field) > 0:
			user = field[0]
		case key == "CapEff" && len(field) > 0:
			capabilities, _ = strconv.ParseUint(field[0], 16, 64)
		}
	}
	const exempting = 1<<24 | 1<<21 // CAP_SYS_RESOURCE and CAP_SYS_ADMIN
	namespace, _ := readLine(root, "proc/self/uid_map")
	first := strings.Join(strings.Fields(namespace), " ") == "0 0 4294967295"
	if first && (user == "0" || capabilities&exempting != 0) {
		return 0, "", false
	}
	return limit, user, limited && user != ""
}

// existingThreads returns the number of visible threads on the machine. If the number is unknown, the result is so
// large that every limit is checked.
func existingThreads(root fs.FS) int64 {
	line, _ := readLine(root, "proc/loadavg") // "0.20 0.18 0.12 1/523 4711" means 523 threads
	if field := strings.Fields(line); len(field) == 5 {
		if _, all, ok := strings.Cut(field[3], "/"); ok {
			if n, err := strconv.ParseInt(all, 10, 64); err == nil {
				return n
			}
		}
	}
	return math.MaxInt32
}

// threadsOf returns the number of threads of a user's processes.
func threadsOf(root fs.FS, user string) (threads int64) {
	entries, _ := fs.ReadDir(root, "proc")
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		status, _ := fs.ReadFile(root, path.Join("proc", entry.Name(), "status")) // the process may have ended
		owner, own := "", int64(0)
		for key, value := range keyValues(status) {
			switch field := strings.Fields(value); {
			case key == "Uid" && len(field) > 0:
				owner = field[0]
			case key == "Threads":
				own, _ = strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			}
		}
		if owner == user {
			threads += own
		}
	}
	return threads
}

// OwnThreads returns the number of threads of this process, or 0 if it is unknown.
func OwnThreads() int { return ownThreads(os.DirFS("/")) }

func ownThreads(root fs.FS) int {
	status, _ := fs.ReadFile(root, "proc/self/status")
	for key, value := range keyValues(status) {
		if key == "Threads" {
			n, _ := strconv.Atoi(strings.TrimSpace(value))
			return n
		}
	}
	return 0
}

func wholeNumber(root fs.FS, file string) (int64, bool) {
	line, _ := readLine(root, file)
	n, err := strconv.ParseInt(line, 10, 64)
	return n, err == nil
}
