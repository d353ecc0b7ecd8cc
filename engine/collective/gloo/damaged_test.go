//go:build cgo && linux

package gloo

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/collectivetest"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/handshake"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

const damageVariable = "HETERO_GLOO_DAMAGE_TEST_ROLE"

// If a message has an invalid header, Gloo throws in its own thread, where no code can catch the exception. The process
// must end with a reason and the exit code of a lost connection.
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
	ranks[0].Control = behindProxy{ranks[0].Control, t}
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

// behindProxy publishes the address of a proxy instead of that of its rank.
type behindProxy struct {
	Control
	t *testing.T
}

func (b behindProxy) Set(ctx context.Context, key string, value []byte) error {
	var p endpoint
	if json.Unmarshal(value, &p) != nil || p.Address == "" {
		return b.Control.Set(ctx, key, value)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	b.t.Cleanup(func() { listener.Close() })
	go damage(listener, p.Address)
	p.Address = listener.Addr().String()
	changed, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return b.Control.Set(ctx, key, changed)
}

// damage forwards one connection. It changes the first message with data from the connecting rank.
func damage(listener net.Listener, to string) {
	near, err := listener.Accept()
	if err != nil {
		return
	}
	far, err := net.DialTimeout("tcp", to, 10*time.Second)
	if err != nil {
		return
	}
	go io.Copy(near, far)
	// the greeting, the rank number with its proof, and the byte that commits
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
