package lab

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"github.com/hetero-train/hetero-train/engine/platform"
)

// Neighbour is a noisy neighbour: a process that keeps the CPUs of the rank busy.
type Neighbour struct {
	cmd   *exec.Cmd
	alive io.Closer // standard input of the process, which exits when this closes, even if this program crashes
	ended chan struct{}
	err   error // reason of the exit, valid after ended is closed

	stopping sync.Once
}

// StartNeighbour starts command, a program that calls [Burn] with its standard input. The new process is in the
// control group of this process and on the CPUs of the calling thread.
func StartNeighbour(command []string) (*Neighbour, error) {
	cmd := exec.Command(command[0], command[1:]...)
	platform.OwnGroup(cmd) // Ctrl-C reaches only the rank, and the rank stops its neighbours
	alive, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("neighbour: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("neighbour: %w", err)
	}
	n := &Neighbour{cmd: cmd, alive: alive, ended: make(chan struct{})}
	go func() {
		n.err = cmd.Wait()
		close(n.ended)
	}()
	return n, nil
}

// Ended reports whether the process has exited, and why. It does not wait.
func (n *Neighbour) Ended() (bool, error) {
	select {
	case <-n.ended:
		return true, n.err
	default:
		return false, nil
	}
}

// Stop kills the process and waits until it has exited.
func (n *Neighbour) Stop() {
	n.stopping.Do(func() {
		n.alive.Close()
		n.cmd.Process.Kill() // if the group has used up its CPU time, the process would notice the closed input late
		<-n.ended
	})
}

// Burn keeps one CPU busy until input ends.
func Burn(input io.Reader) error {
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, input)
		ended <- err
	}()
	for x := uint64(1); ; {
		for range 1 << 20 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		select {
		case err := <-ended:
			if x == 0 { // never true; it uses the result of the loop, so that the compiler keeps the loop
				return os.ErrInvalid
			}
			return err
		default:
		}
	}
}
