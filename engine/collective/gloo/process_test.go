//go:build cgo && linux

package gloo_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/gloo"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/nativelib"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

var _ gloo.Control = (*rendezvous.Group)(nil)

// roleVariable makes the test binary one rank: it holds a role.
const roleVariable = "HETERO_GLOO_TEST_ROLE"

type role struct {
	Rank, Size int
	Address    string // of the rendezvous
}

func TestMain(m *testing.M) {
	if text := os.Getenv(roleVariable); text != "" {
		var r role
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		rank := -1
		err := r.run()
		var peer *collective.PeerError
		if errors.As(err, &peer) {
			rank = peer.Rank
		}
		fmt.Printf("peer %d: %v\n", rank, err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// run reduces 16 MB without end; it says "round" after the first time.
func (r role) run() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	group, err := rendezvous.Join(ctx, rendezvous.Options{Rank: r.Rank, WorldSize: r.Size, LocalRank: -1, Address: r.Address})
	if err != nil {
		return err
	}
	defer group.Close()
	comm, err := gloo.Connect(ctx, gloo.Config{Rank: r.Rank, Size: r.Size, Control: group, Host: "127.0.0.1", RankOf: func(err error) int {
		var lost *rendezvous.LostError
		if errors.As(err, &lost) {
			return lost.Rank
		}
		return -1
	}})
	if err != nil {
		return err
	}
	memory, err := reference.New().Alloc(16 << 20)
	if err != nil {
		return err
	}
	clear(memory.Host())
	for round := 0; ; round++ {
		if err := comm.Enqueue(collective.AllReduce{Name: "sum", Buffer: device.Whole(memory), DType: tensor.F32}); err != nil {
			return err
		}
		if err := comm.Sync(context.Background()); err != nil {
			comm.Close()
			return err
		}
		if round == 0 {
			fmt.Println("round")
		}
	}
}

// TestLostProcessIsNamed: over a real rendezvous, in the middle of an all-reduce.
func TestLostProcessIsNamed(t *testing.T) {
	if os.Getenv(nativelib.DirVariable) == "" { // a test binary lies elsewhere than the program
		dir, err := filepath.Abs("../../../build/lib")
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(nativelib.DirVariable, dir)
	}
	if err := gloo.Available(); err != nil {
		if strings.Contains(os.Getenv("HETERO_REQUIRE"), "gloo") {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	for _, c := range []struct {
		name   string
		victim int
		signal syscall.Signal
	}{
		{"rank 0 is killed", 0, syscall.SIGKILL},
		{"rank 1 is killed", 1, syscall.SIGKILL},
		{"rank 2 stops", 2, syscall.SIGSTOP},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			address := l.Addr().String()
			l.Close()
			const size = 3
			commands, outputs := make([]*exec.Cmd, size), make([]*bufio.Reader, size)
			for rank := range size {
				commands[rank], outputs[rank] = start(t, role{rank, size, address})
			}
			for rank, out := range outputs {
				if line, err := out.ReadString('\n'); line != "round\n" {
					t.Fatalf("rank %d: got %q, %v", rank, line, err)
				}
			}
			began := time.Now()
			if err := commands[c.victim].Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			for rank, out := range outputs {
				if rank == c.victim {
					continue
				}
				if line, err := out.ReadString('\n'); !strings.HasPrefix(line, fmt.Sprintf("peer %d: ", c.victim)) {
					t.Errorf("rank %d: got %q, %v; want that rank %d is gone", rank, line, err, c.victim)
				}
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %v to be told", took)
			}
		})
	}
}

// start begins a child; it is killed when the test ends.
func start(t *testing.T, r role) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), roleVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd, bufio.NewReader(out)
}
