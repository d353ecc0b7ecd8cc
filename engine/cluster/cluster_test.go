//go:build unix

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/cluster/supervisor"
	"github.com/hetero-train/hetero-train/engine/logtest"
)

// programVariable makes this test binary run one rank of a program. The value of the variable is the number of steps.
const programVariable = "CLUSTER_TEST_STEPS"

// oddVariable contains the number of the rank whose configuration differs.
const oddVariable = "CLUSTER_TEST_ODD"

// timeoutVariable contains the time in seconds that the ranks wait for each other.
const timeoutVariable = "CLUSTER_TEST_TIMEOUT"

const (
	codeFault = 2               // wrong settings
	codeLost  = 5               // another rank was lost
	heartbeat = 8 * time.Second // much longer than a rank waits for a CPU on a busy machine
)

func TestMain(m *testing.M) {
	if steps, err := strconv.Atoi(os.Getenv(programVariable)); err == nil {
		os.Exit(program(steps))
	}
	os.Exit(m.Run())
}

// program runs those parts of a training program that involve other ranks. Exchanges replace the training.
func program(steps int) int {
	say := func(text any) { fmt.Fprintln(os.Stderr, text) }
	assigned, err := discovery.Find(discovery.Options{}, os.Environ())
	if err != nil {
		say(err)
		return codeFault
	}
	listener, err := supervisor.Listener(os.Environ())
	if err != nil {
		say(err)
		return 1
	}
	timeout, err := strconv.Atoi(os.Getenv(timeoutVariable))
	if err != nil {
		timeout = 60
	}
	config := "lr = 0.1"
	if os.Getenv(oddVariable) == strconv.Itoa(assigned.Rank) {
		config = "lr = 0.2"
	}
	group, err := rendezvous.Join(context.Background(),
		rendezvous.Options{Rank: assigned.Rank, WorldSize: assigned.WorldSize, LocalRank: assigned.LocalRank,
			Address: assigned.Master(), Listener: listener, Facts: []rendezvous.Fact{{Name: "config", Value: config}},
			HeartbeatTimeout: heartbeat, Timeout: time.Duration(timeout) * time.Second,
			Token: rendezvous.Token(os.Getenv("HETERO_TOKEN"))})
	if err != nil {
		say(err)
		return codeFault
	}
	defer group.Close()
	fmt.Printf("%s; process %d\n", assigned, os.Getpid())
	for step := range steps {
		if _, err := group.Gather(context.Background(), "step", fmt.Append(nil, step)); err != nil {
			say(err)
			return codeLost
		}
		time.Sleep(time.Millisecond)
	}
	return 0
}

// output collects the output of all ranks.
type output struct{ logtest.Buffer }

// processes waits until n ranks have joined, and returns their PIDs by rank.
func (o *output) processes(t *testing.T, n int) map[int]int {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		pids := map[int]int{}
		for line := range strings.Lines(o.String()) {
			var rank, pid int
			if _, err := fmt.Sscanf(line, "rank %d of", &rank); err != nil {
				continue
			}
			if _, after, ok := strings.Cut(line, "; process "); ok {
				if _, err := fmt.Sscan(after, &pid); err == nil {
					pids[rank] = pid
				}
			}
		}
		if len(pids) == n {
			return pids
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d ranks joined, want %d:\n%s", len(pids), n, o)
		}
	}
}

// supervised returns the options of a run of three ranks.
func supervised(steps int, out *output) supervisor.Options {
	return supervisor.Options{
		Command: []string{os.Args[0]}, Env: append(os.Environ(), fmt.Sprintf("%s=%d", programVariable, steps)),
		Ranks:  3,
		Stdout: out, Stderr: out, Output: func(int) io.Writer { return out },
		Grace: 8 * time.Second, KillAfter: time.Second, Orderly: []int{75, 130}, Secondary: []int{codeLost},
	}
}

func TestARunOfThreeProcesses(t *testing.T) {
	out := &output{}
	if err := supervisor.Run(context.Background(), supervised(20, out)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for rank := range 3 {
		if want := fmt.Sprintf("rank %d of 3 (local rank %d of 3), decided by environment, rank 0 at 127.0.0.1:", rank,
			rank); !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

func TestFaultsNameTheRankOnEverySurvivor(t *testing.T) {
	t.Parallel()
	const closed, silent = "(the process ended or was killed)", "no message for "
	tests := []struct {
		name    string
		rank    int
		signal  syscall.Signal
		cause   string // part of the output of each survivor
		verdict string // part of the output of the supervisor
	}{
		{"a killed rank", 1, syscall.SIGKILL, closed, "was killed by SIGKILL"},
		{"rank 0 is killed", 0, syscall.SIGKILL, closed, "was killed by SIGKILL"},
		{"a frozen rank", 2, syscall.SIGSTOP, silent, "hangs: it is stopped (SIGSTOP, or a debugger)"},
		{"rank 0 is frozen", 0, syscall.SIGSTOP, silent, "hangs: it is stopped (SIGSTOP, or a debugger)"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out := &output{}
			done := make(chan error, 1)
			go func() { done <- supervisor.Run(context.Background(), supervised(1e6, out)) }()
			pids := out.processes(t, 3)
			if err := syscall.Kill(pids[test.rank], test.signal); err != nil {
				t.Fatal(err)
			}
			err := <-done
			var failed *supervisor.RankError
			if !errors.As(err, &failed) || failed.Rank != test.rank || failed.PID != pids[test.rank] ||
				!strings.Contains(err.Error(), test.verdict) {
				t.Errorf("got %v, want rank %d: %s", err, test.rank, test.verdict)
			}
			got, lost := 0, fmt.Sprintf("rank %d is lost: ", test.rank)
			for line := range strings.Lines(out.String()) {
				if strings.Contains(line, lost) && strings.Contains(line, test.cause) {
					got++
				}
			}
			if got != 2 {
				t.Errorf("%d survivors said %q and %q, want 2:\n%s", got, lost, test.cause, out)
			}
			for rank, pid := range pids {
				if syscall.Kill(pid, 0) == nil {
					t.Errorf("rank %d (process %d) is left", rank, pid)
				}
			}
		})
	}
}

func TestARankWithAnotherConfigurationEndsTheStart(t *testing.T) {
	out := &output{}
	options := supervised(10, out)
	options.Env = append(options.Env, oddVariable+"=2")
	err := supervisor.Run(context.Background(), options)
	var failed *supervisor.RankError
	if !errors.As(err, &failed) || failed.Code != codeFault {
		t.Errorf("got %v, want code %d", err, codeFault)
	}
	const want = `does not agree with rank 0: config is "lr = 0.2", but rank 0 has "lr = 0.1"`
	if got := strings.Count(out.String(), want); got != 3 || strings.Count(out.String(), "rank 2 (") != 3 {
		t.Errorf("%d ranks said of rank 2 %q, want all 3:\n%s", got, want, out)
	}
}

// There is no supervisor: a shell or srun starts each rank.
func TestRanksOfSeveralLaunchers(t *testing.T) {
	tests := []struct {
		name string
		env  func(rank, port int) []string
		says string
	}{
		{"two shells", func(rank, port int) []string {
			return []string{fmt.Sprint("RANK=", rank), "WORLD_SIZE=2", fmt.Sprint("LOCAL_RANK=", rank),
				"MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", port)}
		}, "decided by environment, rank 0 at 127.0.0.1:"},
		{"Slurm", func(rank, port int) []string {
			return []string{"SLURM_JOB_ID=77", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2",
				fmt.Sprint("SLURM_PROCID=", rank), fmt.Sprint("SLURM_LOCALID=", rank),
				"SLURM_NODEID=0", "SLURM_STEP_NODELIST=localhost", "SLURM_STEP_TASKS_PER_NODE=2",
				fmt.Sprint("MASTER_PORT=", port)}
		}, "decided by Slurm, rank 0 at 127.0.0.1:"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			port := porttest.Free(t)
			out := &output{}
			var ranks []*exec.Cmd
			for rank := range 2 {
				command := exec.Command(os.Args[0])
				command.Env = append(test.env(rank, port), programVariable+"=10")
				command.Stdout, command.Stderr = out, out
				if err := command.Start(); err != nil {
					t.Fatal(err)
				}
				ranks = append(ranks, command)
			}
			for rank, command := range ranks {
				if err := command.Wait(); err != nil {
					t.Errorf("rank %d: %v\n%s", rank, err, out)
				}
			}
			if got := strings.Count(out.String(), test.says); got != 2 {
				t.Errorf("%d ranks said %q, want 2:\n%s", got, test.says, out)
			}
		})
	}
}
