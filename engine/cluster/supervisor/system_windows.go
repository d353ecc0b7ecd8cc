package supervisor

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// supported returns an error, because Windows lacks two features. Ranks inherit their socket and pipes by descriptor
// number, and stop after a signal.
func supported() error {
	return fmt.Errorf("start ranks on Windows: %w: use Linux, or Linux in WSL 2", errors.ErrUnsupported)
}

// closeOnExec marks an inherited file so that children of this process do not inherit it.
func closeOnExec(number uint64) { syscall.CloseOnExec(syscall.Handle(number)) }

// The following functions exist only for the compiler, because Run starts no rank on Windows.

func attributes() *syscall.SysProcAttr { return nil }

func awaitExit(int) {}

func preferVictim(int) error { return nil }

func terminateSelf() {}

// killOwnGroup ends this process. There are no process groups.
func killOwnGroup() { os.Exit(1) }

func writeTo(int, string) error { return errors.ErrUnsupported }
