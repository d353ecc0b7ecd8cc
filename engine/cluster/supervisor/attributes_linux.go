package supervisor

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes returns the attributes of a rank's process: its own process group, and SIGTERM when the thread that
// started the rank ends, so that the rank can save.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// A rank's oom_score_adj is that of the supervisor plus rankAdjustment, in thousandths of the memory and swap that the
// kernel distributes. Ranks use more memory than the supervisor, so a small number is sufficient. Larger: the kernel
// prefers ranks to larger processes of other programs.
const (
	rankAdjustment    = 10
	highestAdjustment = 1000  // OOM_SCORE_ADJ_MAX: the supervisor and its ranks then have the same value
	exempt            = -1000 // OOM_SCORE_ADJ_MIN: the kernel never kills the process
)

// preferVictim makes the kernel prefer a rank to the supervisor if memory runs out. While the kernel frees the memory
// of a killed rank, it can kill a second process. Only the supervisor can report the cause to the user. Processes that
// the rank has already started keep their value. If the kernel kills whole control groups (memory.oom.group), the value
// has no effect.
func preferVictim(pid int) error {
	own, err := adjustment(os.Getpid())
	if err != nil || own == exempt { // the ranks inherit the exemption
		return err
	}
	return os.WriteFile(fmt.Sprintf(adjustmentFile, pid),
		[]byte(strconv.Itoa(min(own+rankAdjustment, highestAdjustment))), 0)
}

const adjustmentFile = "/proc/%d/oom_score_adj"

// adjustment returns the oom_score_adj of a process.
func adjustment(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf(adjustmentFile, pid))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// awaitExit returns when a child has ended. The child remains a zombie, so its process id is not reused.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
