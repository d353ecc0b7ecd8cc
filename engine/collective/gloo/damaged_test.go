//go:build cgo && linux

package gloo

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/handshake"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

const damageVariable = "HETERO_GLOO_DAMAGE_TEST_ROLE"

// If a message has an invalid header, Gloo throws an exception in its own thread, where no code can catch the
// exception. The process must print the reason, and end with the exit code of a lost connection.
func TestADamagedMessageEndsTheRankInOrder(t *testing.T) {
	need(t)
	if os.Getenv(damageVariable) != "" {
		t.Fatal(sumWithDamage(t)) // the process ends during the call
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), damageVariable+"=1")
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if !errors.As(err, &failed) || failed.ExitCode() != 5 ||
		!strings.Contains(string(out), "a message of another rank is damaged") ||
		strings.Contains(string(out), "goroutine ") {
		t.Errorf("got %v and %.2000s, want exit code 5 and the reason", err, out)
	}
}

// sumWithDamage sums over two ranks of this process. A proxy between them changes the header of a message.
func sumWithDamage(t *testing.T) error {
	_, ranks := configs(seat)
	ranks[0].Control = through{ranks[0].Control, t, damage}
	comms := collectivetest.Connected(t, 2, func(ctx context.Context, rank int) (*Communicator, error) {
		return Connect(ctx, ranks[rank])
	})
	done := make(chan error, 2)
	for _, c := range comms {
		memory, err := reference.New().Alloc(64 << 10)
		if err != nil {
			return err
		}
		clear(memory.Host())
		go func() {
			done <- errors.Join(c.Enqueue(collective.AllReduce{Name: "sum", Buffer: device.Whole(memory),
				DType: tensor.F32}), c.Sync(t.Context()))
		}()
	}
	return errors.Join(<-done, <-done, errors.New("the ranks noticed no damage"))
}

// damage forwards a connection. It changes the first message of the connecting rank that contains data.
func damage(near, far net.Conn) {
	go io.Copy(near, far)
	// the greeting, the rank number and its proof, and the byte that commits
	if _, err := io.CopyN(far, near, handshake.GreetingBytes+4+sha256.Size+1); err != nil {
		return
	}
	// Two notices of 48 bytes precede the first message with data. Each message has a header of 48 bytes, in fields of
	// 8 bytes: number of bytes, code, slot, offset, length and offset in the destination.
	if _, err := io.CopyN(far, near, 2*48); err != nil {
		return
	}
	header := make([]byte, 48)
	if _, err := io.ReadFull(near, header); err != nil {
		return
	}
	header[36] ^= 0x55 // the length becomes far larger than the message
	if _, err := far.Write(header); err != nil {
		return
	}
	io.Copy(far, near)
}
