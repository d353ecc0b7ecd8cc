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

// rankAdjustment is added to oom_score_adj of a rank, in thousandths of the memory that ran out. The supervisor uses less.
const rankAdjustment = 100

// attributes returns the attributes of a rank's process: its own process group, and SIGKILL when the thread that
// started the rank ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// killFirst makes the kernel kill a rank before the supervisor if memory runs out. After it has killed a rank, it can need
// another victim before that memory is free, and only the supervisor can tell the user what happened. Without the right to
// write the file, the kernel chooses by memory use alone.
func killFirst(pid int) {
	const file, most = "/proc/%s/oom_score_adj", 1000
	own, err := os.ReadFile(fmt.Sprintf(file, "self"))
	if err != nil {
		return
	}
	adjustment, err := strconv.Atoi(strings.TrimSpace(string(own)))
	if err != nil {
		return
	}
	_ = os.WriteFile(fmt.Sprintf(file, strconv.Itoa(pid)), []byte(strconv.Itoa(min(adjustment+rankAdjustment, most))), 0)
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
