package program

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

// These signals stop a process, and continue it.
const (
	freeze = syscall.SIGSTOP
	thaw   = syscall.SIGCONT
)

// sendTo sends a signal to a process.
func sendTo(pid int, s syscall.Signal) error { return syscall.Kill(pid, s) }

// runsAs makes a command run as another user.
func runsAs(cmd *exec.Cmd, user uint32) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
}

// diesWithTest puts a command into its own process group. The kernel kills the command when the thread that started it
// ends.
func diesWithTest(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// hasOwnMounts gives a command its own mount namespace. For users other than root, this also requires a user namespace.
func hasOwnMounts(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
}

// mountTmpfs mounts an in-memory file system on a folder.
func mountTmpfs(dir, options string) error { return syscall.Mount("tmpfs", dir, "tmpfs", 0, options) }

// mountReadOnly mounts an empty file system to which no user can write.
func mountReadOnly(dir string) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_RDONLY, "size=1m")
}

// unmount removes the file system that is mounted on a folder.
func unmount(dir string) error { return syscall.Unmount(dir, syscall.MNT_DETACH) }

// ownNice returns the nice value of this process. The system call returns 20 minus this value.
func ownNice() (int, error) {
	priority, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	return 20 - priority, err
}

// setPipeSize changes the capacity of a pipe, in bytes.
func setPipeSize(pipe *os.File, bytes int) error {
	_, err := unix.FcntlInt(pipe.Fd(), unix.F_SETPIPE_SZ, bytes)
	return err
}

// openTerminal opens a pseudo-terminal. The program writes to slave, and the test reads the output from master.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		needtest.Missing(t, "system", err)
	}
	t.Cleanup(func() { master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = resize(master, 24, 120)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		needtest.Missing(t, "system", err)
	}
	return master, slave
}

// resize sets the size of a terminal.
func resize(master *os.File, rows, columns int) error {
	return unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Row: uint16(rows), Col: uint16(columns)})
}
