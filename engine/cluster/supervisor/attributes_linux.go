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

// attributes returns the attributes of a rank's process. The rank has its own process group. It gets SIGTERM when the
// thread that started it ends, so that it can save.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// A rank's oom_score_adj is that of the supervisor plus rankAdjustment. The unit is a thousandth of the memory and swap
// that the kernel distributes. A small number is sufficient, because ranks use more memory than the supervisor. With a
// larger number, the kernel would kill ranks before larger processes of other programs.
const (
	rankAdjustment    = 10
	highestAdjustment = 1000  // OOM_SCORE_ADJ_MAX: ranks cannot have a higher value than such a supervisor
	exempt            = -1000 // OOM_SCORE_ADJ_MIN: the kernel never kills the process
)

// If memory runs out, preferVictim makes the kernel kill a rank rather than the supervisor. Only the supervisor can
// report the cause to the user. Without this, the kernel might also kill the supervisor while it frees the memory of a
// killed rank. Processes that the rank has already started keep their value. If the kernel kills whole control groups
// (memory.oom.group), the value has no effect.
func preferVictim(pid int) error {
	own, err := adjustment(os.Getpid())
	if err != nil || own == exempt { // a rank inherits the exemption of its supervisor
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

// awaitExit returns when a child has ended. The child remains a zombie, so the system does not reuse its process id.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
