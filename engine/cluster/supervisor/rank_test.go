//go:build unix

package supervisor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/logtest"
)

// planVariable makes this test binary a rank. Its value has the plan of each rank, separated by semicolons.
const planVariable = "SUPERVISOR_TEST_PLAN"

// marksVariable contains the folder in which ranks and supervisor mark events. Ranks wait for these marks.
const marksVariable = "SUPERVISOR_TEST_MARKS"

const (
	// patience is a time limit that no step reaches, even on a busy machine.
	patience = time.Minute
	// short is a time limit that a test waits for.
	short = 300 * time.Millisecond
)

func TestMain(m *testing.M) {
	if plan := os.Getenv(planVariable); plan != "" {
		runRank(plan)
		return
	}
	if os.Getenv(superviseVariable) != "" {
		supervise()
		return
	}
	os.Exit(m.Run())
}

// unheard is a step in a plan: the kernel sends the ranks no signal when the supervisor ends.
const unheard = "unheard"

// superviseVariable makes this test binary run as a supervisor that the test can kill.
const superviseVariable = "SUPERVISOR_TEST_SUPERVISE"

func supervise() {
	plan := os.Getenv(superviseVariable)
	err := Run(context.Background(), Options{
		Command: []string{os.Args[0]}, Env: append(os.Environ(), planVariable+"="+plan),
		Ranks:  strings.Count(plan, ";") + 1,
		Stdout: os.Stdout, Stderr: os.Stderr, Output: func(int) io.Writer { return os.Stdout }, Grace: time.Second,
	})
	fmt.Println(err)
}

// runRank runs the plan of this rank. Commas separate the steps of a plan.
func runRank(plan string) {
	rank, err := strconv.Atoi(os.Getenv("RANK"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(99)
	}
	for step := range strings.SplitSeq(strings.Split(plan, ";")[rank], ",") {
		do(strings.Fields(step))
	}
}

// lifeline is the Lifeline of this rank.
var lifeline = new(Lifeline)

func do(step []string) {
	argument := ""
	if len(step) > 1 {
		argument = step[1]
	}
	switch step[0] {
	case "exit":
		code, _ := strconv.Atoi(argument)
		os.Exit(code)
	case "say":
		fmt.Fprintln(os.Stderr, argument)
	case "report":
		if !ReportCause(os.Environ(), argument) {
			os.Exit(97)
		}
	case "print": // print an environment variable
		fmt.Printf("%s %s=%s\n", os.Getenv("RANK"), argument, os.Getenv(argument))
	case "mark": // mark an event, perhaps after a pause
		if len(step) > 2 {
			do([]string{"pause", step[2]})
		}
		mark(os.Getenv(marksVariable), argument, "")
	case "await": // wait for a mark; the supervisor writes the mark ended-N when rank N has ended
		await(func() bool { return marked(argument) != "" })
	case "stopped": // wait until the step "signal STOP" of rank N has stopped it
		await(func() bool {
			stat, err := os.ReadFile("/proc/" + marked("pid-"+argument) + "/stat")
			return err == nil && strings.HasPrefix(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " T")
		})
	case "pause":
		d, err := time.ParseDuration(argument)
		if err != nil {
			panic(err)
		}
		time.Sleep(d)
	case "wait": // wait for ever
		fmt.Println("waits", os.Getpid())
		time.Sleep(time.Hour)
	case "save": // save for a while at the first signal, then end with the given code
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		fmt.Println("waits", os.Getpid())
		fmt.Println("got", <-signals)
		if len(step) > 2 {
			do(step[2:])
		}
		do([]string{"exit", argument})
	case "hold": // send heartbeats from now on
		var err error
		if lifeline, err = OpenLifeline(os.Environ()); err != nil {
			panic(err)
		}
		lifeline.Hold()
	case "late": // save from now on
		lifeline.HoldToSave()
	case unheard:
	case "saving": // send heartbeats for a while
		do([]string{"hold"})
		do([]string{"pause", argument})
	case "orphan": // end with the supervisor
		limit, err := time.ParseDuration(argument)
		if err != nil {
			panic(err)
		}
		lifeline.EndWithSupervisor(limit)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	case "signal": // send this process a signal, from a shell, because Go changes the effect of some signals
		mark(os.Getenv(marksVariable), "pid-"+os.Getenv("RANK"), strconv.Itoa(os.Getpid()))
		_ = syscall.Exec("/bin/sh", []string{"sh", "-c", "kill -" + argument + " $$; sleep 60"}, os.Environ())
	case "child": // start a child process that keeps the output open, and do not wait for it
		child := exec.Command("/bin/sh", "-c", "sleep 3600")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			panic(err)
		}
		fmt.Println("waits", child.Process.Pid)
	case "account":
		if err := ReportMemory(os.Environ(), argument); err != nil {
			panic(err)
		}
	case "memory": // allocate until the kernel kills the process
		for all := [][]byte{}; ; {
			all = append(all, bytes.Repeat([]byte{1}, 8<<20))
		}
	case "accept":
		listener, err := Listener(os.Environ())
		if err != nil || listener == nil {
			fmt.Println("listener", listener, err)
			os.Exit(98)
		}
		conn, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		conn.Close()
	case "connect":
		conn, err := net.Dial("tcp", net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT")))
		if err != nil {
			fmt.Println(err)
			os.Exit(97)
		}
		_, _ = conn.Read(make([]byte, 1))
		listener, err := Listener(os.Environ())
		fmt.Println("rank 1 has", listener, err)
	default:
		panic("no step " + step[0])
	}
}

// mark marks an event. The rename makes the file and its text visible at the same time.
func mark(folder, name, text string) {
	path := filepath.Join(folder, name)
	if err := errors.Join(os.WriteFile(path+".new", []byte(text+" "), 0o600),
		os.Rename(path+".new", path)); err != nil {
		panic(err)
	}
}

// marked returns the text of a mark. Before the event, it returns "".
func marked(name string) string {
	text, err := os.ReadFile(filepath.Join(os.Getenv(marksVariable), name))
	if err != nil {
		return ""
	}
	return cmp.Or(strings.TrimSpace(string(text)), "marked")
}

func await(event func() bool) {
	for !event() {
		time.Sleep(2 * time.Millisecond)
	}
}

// planned returns options for ranks with a plan, the buffer of their output, and the log.
func planned(t *testing.T, plan string) (Options, *buffer, *journal) {
	t.Helper()
	out, log := &buffer{}, &journal{marks: t.TempDir()}
	ranks := strings.Count(plan, ";") + 1
	return Options{
		Command: []string{os.Args[0]}, Env: append(os.Environ(), planVariable+"="+plan, marksVariable+"="+log.marks),
		Ranks:  ranks,
		Stdout: out, Stderr: &bytes.Buffer{}, Output: func(int) io.Writer { return out },
		Grace: patience, KillAfter: short, Orderly: []int{75, 130}, Secondary: []int{5}, Log: log.logger(),
	}, out, log
}

// buffer collects the output of ranks.
type buffer struct{ logtest.Buffer }

// waitFor waits until n ranks have printed that they wait. It returns their PIDs.
func (b *buffer) waitFor(t *testing.T, n int) []int {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		var pids []int
		for line := range strings.Lines(b.String()) {
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), "waits "); ok {
				pid, err := strconv.Atoi(text)
				if err != nil {
					t.Fatal(err)
				}
				pids = append(pids, pid)
			}
		}
		if len(pids) >= n {
			return pids
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d processes wait, want %d:\n%s", len(pids), n, b.String())
		}
	}
}

// alive reports whether a process runs. A zombie does not run.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.HasPrefix(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " Z")
}

// noneLeft fails the test unless all of the processes end soon.
func noneLeft(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		for deadline := time.Now().Add(patience); alive(pid); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("process %d is left", pid)
				_ = syscall.Kill(pid, syscall.SIGKILL)
				break
			}
		}
	}
}
