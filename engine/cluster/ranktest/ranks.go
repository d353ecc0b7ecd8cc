package ranktest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/crowd"
)

// patience is the time for which a test waits for a line. It is longer than the time limits of the ranks, so that the
// ranks report a failure first.
const patience = 2 * time.Minute

// lastWords is the time for which a failed test waits for further output of the ranks, because ranks detect a failure
// one after another.
const lastWords = 2 * time.Second

// Ranks are child processes of the test program, one per rank. They print lines, which the test reads.
type Ranks struct {
	t    testing.TB
	list []*rank
}

type rank struct {
	cmd   *exec.Cmd
	lines chan string // closed at the end of the rank's output

	mu   sync.Mutex
	said strings.Builder
}

// Start starts a number of ranks, size. For each rank it calls role with the rank's number and the address where the
// ranks meet. The rank receives the result of role, as JSON, in the environment variable whose name is variable.
//
// Rank 0 inherits a listener on this address ([Join] uses it). The open listener prevents other tests from taking the
// port. The ranks are killed when the test ends.
func Start(t testing.TB, variable string, size int, role func(rank int, meeting string) any) *Ranks {
	t.Helper()
	listener, err := crowd.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r := &Ranks{t: t}
	for number := range size {
		text, err := json.Marshal(role(number, listener.Addr().String()))
		if err != nil {
			t.Fatal(err)
		}
		r.list = append(r.list, r.start(variable+"="+string(text), file))
	}
	return r
}

// Main is the main function of a test binary whose processes may be ranks. If the environment contains a role, it calls
// run in place of the tests.
func Main[Role any](m *testing.M, variable string, run func(Role)) {
	text := os.Getenv(variable)
	if text == "" {
		os.Exit(m.Run())
	}
	var r Role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	run(r)
	os.Exit(0)
}

// Join joins the group of the ranks that Start has started. Rank 0 listens on the address where the ranks meet.
func Join(ctx context.Context, o rendezvous.Options) (_ *rendezvous.Group, err error) {
	o.LocalRank = -1
	if o.Rank == 0 {
		if o.Listener, err = net.FileListener(os.NewFile(meetingFile, "listener")); err != nil {
			return nil, err
		}
	}
	return rendezvous.Join(ctx, o)
}

// LostRank returns the rank that a [rendezvous.LostError] names; -1 for other errors.
func LostRank(err error) int {
	var lost *rendezvous.LostError
	if errors.As(err, &lost) {
		return lost.Rank
	}
	return -1
}

const meetingFile = 3

func (r *Ranks) start(role string, listener *os.File) *rank {
	r.t.Helper()
	program, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	p := &rank{cmd: exec.Command(program), lines: make(chan string, 100)}
	p.cmd.Env = append(os.Environ(), role)
	p.cmd.Stderr = os.Stderr
	if len(r.list) == 0 {
		p.cmd.ExtraFiles = []*os.File{listener}
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	var listening sync.WaitGroup
	listening.Go(func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.mu.Lock()
			fmt.Fprintf(&p.said, "%s\n", lines.Text())
			p.mu.Unlock()
			p.lines <- lines.Text()
		}
	})
	r.t.Cleanup(func() {
		p.cmd.Process.Kill() //nolint:errcheck // it may have ended
		listening.Wait()
		p.cmd.Wait() //nolint:errcheck // it was killed
	})
	return p
}

// Signal sends a signal to a rank's process.
func (r *Ranks) Signal(rank int, s os.Signal) {
	r.t.Helper()
	if err := r.list[rank].cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// Expect waits for the next line of a rank, which must begin with want, and returns the line. If the rank prints
// another line or none, the test fails with the output of all ranks.
func (r *Ranks) Expect(rank int, want string) string {
	r.t.Helper()
	got := "nothing more"
	select {
	case line, ok := <-r.list[rank].lines:
		if ok && strings.HasPrefix(line, want) {
			return line
		}
		if ok {
			got = strconv.Quote(line)
		}
	case <-time.After(patience):
		got = "nothing for minutes"
	}
	r.t.Fatalf("rank %d: got %s, want %q; the ranks have said:\n%s", rank, got, want, r.said())
	return ""
}

// said waits lastWords for further output, and returns the output of all ranks.
func (r *Ranks) said() string {
	time.Sleep(lastWords)
	var all strings.Builder
	for number, p := range r.list {
		p.mu.Lock()
		fmt.Fprintf(&all, "rank %d:\n\t%s\n", number, strings.ReplaceAll(strings.TrimSpace(p.said.String()), "\n",
			"\n\t"))
		p.mu.Unlock()
	}
	return all.String()
}
