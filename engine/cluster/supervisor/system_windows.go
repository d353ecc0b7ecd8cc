package supervisor

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// supported returns an error: a rank inherits its socket and its pipes by number, which Windows does not offer, and
// stops after a signal.
func supported() error {
	return fmt.Errorf("start ranks on Windows: %w: use Linux, or Linux in WSL 2", errors.ErrUnsupported)
}

// closeOnExec keeps an inherited file from the children of this process.
func closeOnExec(number uint64) { syscall.CloseOnExec(syscall.Handle(number)) }

// The following functions exist for the compiler: Run starts no rank on Windows.

func attributes() *syscall.SysProcAttr { return nil }

func awaitExit(int) {}

func preferVictim(int) error { return nil }

func terminateSelf() {}

// killOwnGroup ends this process. There are no process groups.
func killOwnGroup() { os.Exit(1) }

func writeTo(int, string) error { return errors.ErrUnsupported }
