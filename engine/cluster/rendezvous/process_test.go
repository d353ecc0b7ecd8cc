//go:build unix

package rendezvous

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// rankVariable makes this test binary a rank.
const rankVariable = "RENDEZVOUS_TEST_RANK"

func TestMain(m *testing.M) {
	if rank, err := strconv.Atoi(os.Getenv(rankVariable)); err == nil {
		runRank(rank)
		return
	}
	os.Exit(m.Run())
}

// testHeartbeat is much longer than a rank waits for a CPU on a machine with other load.
const testHeartbeat = 3 * time.Second

// runRank joins a group of three and prints the result.
func runRank(rank int) {
	options := Options{Rank: rank, WorldSize: 3, LocalRank: -1, Address: os.Getenv("ADDRESS"), HeartbeatTimeout: testHeartbeat, Timeout: patience}
	if rank == 0 {
		var err error
		if options.Listener, err = net.FileListener(os.NewFile(3, "listener")); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	group, err := Join(context.Background(), options)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("joined as local rank", group.Members()[rank].LocalRank)
	<-group.Broken()
	fmt.Println(group.Err())
	group.Close()
}

// process is one rank and the lines it prints.
type process struct {
	command *exec.Cmd
	lines   chan string
}

func startRanks(t *testing.T) []*process {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var ranks []*process
	for rank := range 3 {
		p := &process{exec.Command(os.Args[0]), make(chan string, 10)}
		p.command.Env = append(os.Environ(), fmt.Sprintf("%s=%d", rankVariable, rank), "ADDRESS="+listener.Addr().String())
		if rank == 0 {
			p.command.ExtraFiles = []*os.File{file}
		}
		out, err := p.command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.command.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			defer close(p.lines)
			for lines := bufio.NewScanner(out); lines.Scan(); {
				p.lines <- lines.Text()
			}
		}()
		t.Cleanup(func() {
			_ = p.command.Process.Kill()
			_ = p.command.Wait()
		})
		ranks = append(ranks, p)
	}
	for rank, p := range ranks {
		if line, want := p.next(t), fmt.Sprint("joined as local rank ", rank); line != want {
			t.Fatalf("rank %d said %q, want %q", rank, line, want)
		}
	}
	return ranks
}

func (p *process) next(t *testing.T) string {
	t.Helper()
	select {
	case line := <-p.lines:
		return line
	case <-time.After(patience):
		t.Fatalf("no line within %v", patience)
		return ""
	}
}

func TestSurvivorsLearnWhichProcessIsGone(t *testing.T) {
	tests := []struct {
		name   string
		rank   int
		signal syscall.Signal
		cause  string
	}{
		{"rank 2 is killed", 2, syscall.SIGKILL, "(the process ended or was killed)"},
		{"rank 0 is killed", 0, syscall.SIGKILL, "(the process ended or was killed)"},
		{"rank 1 is stopped", 1, syscall.SIGSTOP, "no message for "},
		{"rank 0 is stopped", 0, syscall.SIGSTOP, "no message for "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ranks := startRanks(t)
			began := time.Now()
			if err := ranks[test.rank].command.Process.Signal(test.signal); err != nil {
				t.Fatal(err)
			}
			for rank, p := range ranks {
				if rank == test.rank {
					continue
				}
				line := p.next(t)
				if want := fmt.Sprintf("rank %d is lost: ", test.rank); !strings.HasPrefix(line, want) || !strings.Contains(line, test.cause) {
					t.Errorf("rank %d said %q, want %q and %q", rank, line, want, test.cause)
				}
			}
			t.Logf("known everywhere after %v", time.Since(began))
			if test.signal == syscall.SIGSTOP { // it continues, and notices that the group has excluded it
				if err := ranks[test.rank].command.Process.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
				if line := ranks[test.rank].next(t); !strings.Contains(line, "is lost: ") {
					t.Errorf("the stopped rank said %q", line)
				}
			}
		})
	}
}
