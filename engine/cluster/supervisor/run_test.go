//go:build unix

package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestTheFirstCauseIsReported(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		grace time.Duration // grace period: short if the supervisor must kill ranks
		plan  string
		want  string // "": no error; PID stands for a number
		code  int
	}{
		{"all is well", patience, "exit 0;await ended-0,exit 0", "", 0},
		{"an exit code", short, "wait;say broken,say pipe,exit 3;wait",
			"rank 1 (process PID) ended with exit code 3; it last wrote:\n\tbroken\n\tpipe", 3},
		{"a cause", short, "wait;say broken,report full,exit 3;wait",
			"rank 1 (process PID) ended with exit code 3: full", 3},
		{"a cause that all ranks have", patience, "report full,exit 3;report full,exit 3", "full", 3},
		{"causes that differ", patience, "report full,exit 3;await ended-0,report empty,exit 3",
			"rank 0 (process PID) ended with exit code 3: full", 3},
		{"a signal", short, "wait;signal SEGV", "rank 1 (process PID) was killed by SIGSEGV", -1},
		{"a kill, and what follows from it", patience, "await ended-1,exit 5;await ended-2,exit 5;signal KILL",
			"rank 2 (process PID) was killed by SIGKILL", -1},
		{"what follows is seen first", patience, "exit 5;await ended-0,await ended-2,exit 6;exit 5",
			"rank 1 (process PID) ended with exit code 6", 6},
		{"no rank knows more", patience, "exit 5;await ended-0,exit 5", "rank 0 (process PID) ended with exit code 5",
			5},
		{"a stopped rank", short, "stopped 1,exit 5;signal STOP", "rank 1 (process PID) hangs: it is stopped (SIGSTOP, or a debugger), and did not exit within 300ms after rank 0",
			5},
		{"a rank that hangs and one that is slow", short, "await deaf,exit 5;wait;stubborn,mark deaf,wait", "rank 2 (process PID) hangs: it is running, and did not exit within 300ms after rank 0 had lost the connection to another rank",
			5},
		{"stopped as told, and saved", patience, "exit 75;await ended-0,exit 75",
			"rank 0 (process PID) ended with exit code 75", 75},
		{"frozen at the end", short, "stopped 1,exit 0;signal STOP", "rank 1 (process PID) hangs: it is stopped (SIGSTOP, or a debugger), and did not exit within 300ms after the stop",
			-1},
		{"killed by SIGTERM while it was being loaded", patience, "await ended-1,exit 5;signal TERM",
			"rank 1 (process PID) was killed by SIGTERM", -1},
		{"stopped as told, others lost it", patience, "await ended-1,exit 5;exit 75",
			"rank 1 (process PID) ended with exit code 75", 75},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			options, _, _ := planned(t, test.plan)
			options.Grace = test.grace
			if strings.Contains(test.name, "slow") {
				options.KillAfter = 10 * time.Second // the slow rank must obey within this time
			}
			err := Run(context.Background(), options)
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var failed *RankError
			if !errors.As(err, &failed) {
				t.Fatalf("got %v, want a *RankError", err)
			}
			got := strings.Replace(err.Error(), fmt.Sprint(failed.PID), "PID", 1)
			if !strings.HasPrefix(got, test.want) || failed.Code != test.code {
				t.Errorf("got  %s (code %d)\nwant %s (code %d)", got, failed.Code, test.want, test.code)
			}
		})
	}
}

func TestOthersGetGraceThenEnd(t *testing.T) {
	t.Parallel()
	const killing = "rank did not exit: killing it"
	tests := []struct {
		name             string
		others, failing  string // plan of ranks 0 and 2; plan of rank 1
		grace, killAfter time.Duration
		least            time.Duration // shortest time from the failure of rank 1 to the end
		kills            int
	}{
		{"they end by themselves", "await ended-1,exit 5", "", patience, patience, 0, 0},
		{"the ranks obey the signal", "wait", "", short, patience, short, 0},
		{"they do not", "stubborn,mark deaf-%d,wait", "await deaf-0,await deaf-2,", short, short, 2 * short, 2},
		{"they cannot", "signal STOP", "stopped 0,stopped 2,", short, short, 2 * short, 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			other := func(rank string) string { return strings.ReplaceAll(test.others, "%d", rank) }
			options, _, log := planned(t, other("0")+";"+test.failing+"print RANK,exit 1;"+other("2"))
			options.Grace, options.KillAfter = test.grace, test.killAfter
			err := Run(context.Background(), options)
			took := time.Since(log.failed())
			var failed *RankError
			if !errors.As(err, &failed) || failed.Rank != 1 {
				t.Errorf("got %v, want that rank 1 failed", err)
			}
			// On a busy machine, the end may come late, but never early.
			if took < test.least || test.grace == patience && took > patience {
				t.Errorf("ended %v after the failure, want at least %v, and less than the grace period %v if the others end on their own",
					took, test.least, test.grace)
			}
			if got := strings.Count(log.String(), killing); got != test.kills {
				t.Errorf("%d ranks were killed, want %d:\n%s", got, test.kills, log)
			}
		})
	}
}

func TestSignalsArePassedOn(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		plan    string
		signals []os.Signal
		prints  string // line that every rank prints
		code    int
	}{
		{"SIGTERM", "save 75;save 75", []os.Signal{syscall.SIGTERM}, "got terminated", 75},
		{"SIGINT", "save 130;save 130", []os.Signal{syscall.SIGINT}, "got interrupt", 130},
		{"SIGHUP", "save 75;save 75", []os.Signal{syscall.SIGHUP}, "got hangup", 75},
		// A rank sends a heartbeat every half second.
		{"a rank that saves for longer than the time of grace", "save 75 saving 4s;save 75",
			[]os.Signal{syscall.SIGTERM}, "got terminated", 75},
		{"a second SIGINT ends who does not", "stubborn,wait;stubborn,wait",
			[]os.Signal{syscall.SIGINT, syscall.SIGINT}, "waits", 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			run := func(plan string, grace time.Duration) (err error, out *buffer, pids []int) {
				options, out, _ := planned(t, plan)
				options.Grace = grace
				signals := make(chan os.Signal, 2)
				options.Signals = signals
				done := make(chan error, 1)
				go func() { done <- Run(context.Background(), options) }()
				pids = out.waitFor(t, 2)
				for _, signal := range test.signals {
					signals <- signal
				}
				select {
				case err = <-done:
				case <-time.After(patience):
					t.Fatalf("the run has not ended after %v", test.signals)
				}
				return err, out, pids
			}
			var failed *RankError
			grace := time.Hour // grace period: a second signal must end the run before it is over
			if strings.Contains(test.plan, "saving") {
				grace = 2700 * time.Millisecond
			}
			err, out, pids := run(test.plan, grace)
			if grace < patience && errors.As(err, &failed) && failed.Hung {
				// The machine was so busy that no heartbeat arrived within the grace period. Use longer times.
				noneLeft(t, pids)
				err, out, pids = run(strings.ReplaceAll(test.plan, "4s", "34s"), 30*time.Second)
			}
			if test.code != 0 && (!errors.As(err, &failed) || failed.Code != test.code) {
				t.Errorf("got %v, want code %d", err, test.code)
			}
			if got := strings.Count(out.String(), test.prints); got != 2 {
				t.Errorf("%d ranks printed %q, want 2:\n%s", got, test.prints, out)
			}
			noneLeft(t, pids)
		})
	}
}

// For every signal that ends the supervisor, it must kill ranks that neither end nor send heartbeats.
func TestFrozenRanksAreKilled(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		options, out, _ := planned(t, "stubborn,wait;stubborn,wait")
		options.Grace = short
		signals := make(chan os.Signal, 1)
		options.Signals = signals
		done := make(chan error, 1)
		go func() { done <- Run(context.Background(), options) }()
		pids := out.waitFor(t, 2)
		signals <- signal
		var failed *RankError
		if err := <-done; !errors.As(err, &failed) || !failed.Hung || failed.Code != -1 {
			t.Errorf("%v: got %v, want a rank that hangs", signal, err)
		}
		noneLeft(t, pids)
	}
}

// If a user or a scheduler repeats a signal, the repetitions must not postpone the end.
func TestRepeatedSignalsDoNotPostponeTheEnd(t *testing.T) {
	t.Parallel()
	options, out, _ := planned(t, "stubborn,wait;stubborn,wait")
	options.Grace = time.Hour
	signals := make(chan os.Signal)
	options.Signals = signals
	done := make(chan error, 1)
	go func() { done <- Run(context.Background(), options) }()
	pids := out.waitFor(t, 2)
	signals <- syscall.SIGTERM
	time.Sleep(oneStop + short)
	again, limit := time.NewTicker(short/3), time.After(patience)
	defer again.Stop()
	for ended := false; !ended; {
		select {
		case <-again.C:
			select {
			case signals <- syscall.SIGTERM:
			case <-done:
				ended = true
			}
		case <-done:
			ended = true
		case <-limit:
			t.Error("the ranks are not killed while signals repeat")
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			<-done
			ended = true
		}
	}
	noneLeft(t, pids)
}

// If a rank saves for longer than the grace period, the supervisor must not kill it.
func TestSavingRanksGetTheirTime(t *testing.T) {
	t.Parallel()
	for _, grace := range []time.Duration{3 * time.Second, 30 * time.Second} {
		// The grace period is much longer than the half second between two heartbeats, except on a very busy machine.
		// The save is longer than the grace period.
		save := grace + time.Second
		options, _, log := planned(t, fmt.Sprintf("hold,mark held,await ended-1,pause %v,mark saved,exit 5;await held,exit 3",
			save))
		options.Grace = grace
		err := Run(context.Background(), options)
		var failed *RankError
		if !errors.As(err, &failed) || failed.Rank != 1 || failed.Code != 3 {
			t.Errorf("got %v, want that rank 1 failed", err)
		}
		if _, err := os.Stat(filepath.Join(log.marks, "saved")); err == nil {
			return
		}
	}
	t.Error("rank 0 had no time to save")
}

func TestContextEndsTheRanks(t *testing.T) {
	options, out, _ := planned(t, "save 75;stubborn,wait")
	ctx, cancel := context.WithCancelCause(context.Background())
	stopped := errors.New("stopped by a test")
	done := make(chan error, 1)
	go func() { done <- Run(ctx, options) }()
	pids := out.waitFor(t, 2)
	cancel(stopped)
	if err := <-done; !errors.Is(err, stopped) {
		t.Errorf("got %v, want %v", err, stopped)
	}
	noneLeft(t, pids)
}

func TestRanksKnowWhoTheyAre(t *testing.T) {
	options, out, _ := planned(t,
		strings.Join(
			slices.Repeat(
				[]string{"print RANK,print WORLD_SIZE,print LOCAL_RANK,print LOCAL_WORLD_SIZE,print MASTER_ADDR," +
					"print MASTER_PORT,print OMP_NUM_THREADS,print OWN,print " + ListenerVariable}, 7), ";"))
	options.Ranks, options.FirstRank, options.WorldSize, options.Threads = 3, 4, 7, 8
	options.MasterAddr, options.MasterPort = "node-a", 1234
	options.Env = append(options.Env, "RANK=77", ListenerVariable+"=9")
	options.RankEnv = func(rank int) []string { return []string{fmt.Sprint("OWN=", rank*rank)} }
	if err := Run(context.Background(), options); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	slices.Sort(got)
	var want []string
	for local, threads := range []int{3, 3, 2} {
		rank := local + 4
		want = append(want, fmt.Sprintf("%d RANK=%d", rank, rank), fmt.Sprintf("%d WORLD_SIZE=7", rank),
			fmt.Sprintf("%d LOCAL_RANK=%d", rank, local),
			fmt.Sprintf("%d LOCAL_WORLD_SIZE=3", rank), fmt.Sprintf("%d MASTER_ADDR=node-a", rank),
			fmt.Sprintf("%d MASTER_PORT=1234", rank),
			fmt.Sprintf("%d OMP_NUM_THREADS=%d", rank, threads), fmt.Sprintf("%d OWN=%d", rank, rank*rank),
			fmt.Sprintf("%d %s=", rank, ListenerVariable))
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestRank0GetsAPortThatNobodyCanTake(t *testing.T) {
	options, out, _ := planned(t, "accept;connect")
	if err := Run(context.Background(), options); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !strings.Contains(out.String(), "rank 1 has <nil> <nil>") {
		t.Errorf("got %s", out)
	}
	// Only rank 0 has the port open. After the end of rank 0, another program can take the port, but not three times in
	// a row.
	for attempt := 1; ; attempt++ {
		options, out, _ = planned(t, "exit 1;await ended-0,connect")
		err := Run(context.Background(), options)
		if err != nil && strings.Contains(out.String(), "connection refused") {
			return
		}
		if err == nil || attempt == 3 {
			t.Fatalf("got %v and %s, want that the port is closed with rank 0", err, out)
		}
	}
}

func TestWhatARankLeavesBehindIsEnded(t *testing.T) {
	options, out, _ := planned(t, "exit 0;child,exit 0")
	if err := Run(context.Background(), options); err != nil { // it must not wait for the child, which runs for an hour
		t.Error(err)
	}
	noneLeft(t, out.waitFor(t, 1))
}

func TestOutputThatFailsDoesNotStopARank(t *testing.T) {
	options, _, log := planned(t, "exit 0;say lost,say lost,say lost,exit 0")
	options.Output = func(int) io.Writer { return full{} }
	if err := Run(context.Background(), options); err != nil {
		t.Error(err)
	}
	if got := strings.Count(log.String(), "the output of a rank cannot be written: later lines are lost"); got != 1 {
		t.Errorf("the log says it %d times, want once:\n%s", got, log)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestACommandThatCannotStart(t *testing.T) {
	options, _, _ := planned(t, "wait;wait")
	options.Command = []string{"/no/such/program"}
	if err := Run(context.Background(), options); err == nil ||
		!strings.Contains(err.Error(), "start rank 0: fork/exec /no/such/program: no such file") {
		t.Errorf("got %v", err)
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	tests := []struct {
		name    string
		options Options
		want    []string
	}{
		{"nothing", Options{}, []string{"no command", "got 0 ranks"}},
		{"ranks beyond the world", Options{Command: []string{"x"}, Ranks: 2, FirstRank: 3, WorldSize: 4, MasterPort: 1},
			[]string{"got 2 ranks from rank 3 on"}},
		{"several machines without a port", Options{Command: []string{"x"}, Ranks: 2, WorldSize: 4},
			[]string{"got no port for rank 0, want one"}},
		{"an address without a port", Options{Command: []string{"x"}, Ranks: 1, MasterAddr: "node-a"},
			[]string{"got no port for rank 0 at node-a"}},
		{"negative numbers", Options{Command: []string{"x"}, Ranks: 1, Threads: -1, MasterPort: -1},
			[]string{"got -1 threads", "got port -1"}},
	}
	for _, test := range tests {
		err := Run(context.Background(), test.options)
		for _, want := range test.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", test.name, err, want)
			}
		}
	}
}

func TestPartDividesEvenly(t *testing.T) {
	for _, test := range []struct{ total, n, sum int }{{16, 4, 16}, {8, 3, 8}, {2, 4, 4}, {1, 1, 1}} {
		sum := 0
		for i := range test.n {
			sum += Part(test.total, test.n, i)
		}
		if sum != test.sum {
			t.Errorf("%d among %d: got %d in all, want %d", test.total, test.n, sum, test.sum)
		}
	}
}

// The supervisor must log each cause once, except for the cause in the error of Run.
func TestEachCauseIsLoggedOnce(t *testing.T) {
	options, _, log := planned(t, "report full,exit 3;await ended-0,report empty,exit 3;await ended-1,report empty,exit 3;await ended-2,report full,exit 3")
	if err := Run(context.Background(), options); err == nil || strings.Count(err.Error(), "full") != 1 {
		t.Errorf("got %v, want the cause of rank 0", err)
	}
	if text := log.String(); strings.Count(text, "empty") != 1 || strings.Contains(text, "full") ||
		strings.Count(text, "rank=0") != 1 || strings.Contains(text, "rank=3") {
		t.Errorf("got log\n%s\nwant cause \"empty\" once, and not that of the result", text)
	}
}

// If a rank is lost, the other ranks repeat its cause, as in "rank 0 is lost: full". The supervisor must not log this
// text again.
func TestARepeatedCauseIsNotLogged(t *testing.T) {
	options, _, log := planned(t,
		"report full,exit 3;await ended-0,report rank-0-is-lost:full,exit 5;await ended-1,report rank-1-is-gone,exit 5")
	if err := Run(context.Background(), options); err == nil || strings.Count(err.Error(), "full") != 1 ||
		strings.Contains(err.Error(), "lost") {
		t.Errorf("got %v, want the cause of rank 0", err)
	}
	errorsOnly := ""
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "level=ERROR") {
			errorsOnly += line
		}
	}
	if strings.Contains(errorsOnly, "is-lost") || strings.Count(errorsOnly, "rank-1-is-gone") != 1 {
		t.Errorf("got errors\n%s\nwant the cause of rank 2, which is another one, and not that of rank 1", errorsOnly)
	}
}

func TestTailKeepsTheLastLines(t *testing.T) {
	var end tail
	for i := range 2000 {
		fmt.Fprintf(&end, "line %d\n", i)
	}
	lines := strings.Split(end.String(), "\n")
	if len(lines) != tailLines || lines[0] != "line 1980" || lines[19] != "line 1999" {
		t.Errorf("got %q", lines)
	}
	fmt.Fprint(&end, strings.Repeat("x", 10*tailBytes))
	if got := end.String(); len(got) != tailBytes {
		t.Errorf("of a line without end got %d bytes, want %d", len(got), tailBytes)
	}
}

func TestKilledRankFromOutside(t *testing.T) {
	options, out, _ := planned(t, "wait;wait;wait")
	options.Grace = short
	done := make(chan error, 1)
	go func() { done <- Run(context.Background(), options) }()
	pids := out.waitFor(t, 3)
	if err := syscall.Kill(pids[1], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	err := <-done
	var failed *RankError
	if !errors.As(err, &failed) || failed.PID != pids[1] || failed.Signal != syscall.SIGKILL {
		t.Errorf("got %v, want that process %d was killed", err, pids[1])
	}
	noneLeft(t, pids)
}

// journal is a log that records the time of the first failure, and writes a mark when the supervisor logs the end of a
// rank.
type journal struct {
	buffer
	mu    sync.Mutex
	at    time.Time
	marks string // folder of the marks
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// ending matches the messages about the end of a rank.
var ending = regexp.MustCompile(`msg="rank (?:ended|failed|stopped as requested)[^"]*" rank=([0-9]+)`)

func (j *journal) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("rank failed")) {
		j.mu.Lock()
		if j.at.IsZero() {
			j.at = time.Now()
		}
		j.mu.Unlock()
	}
	if rank := ending.FindSubmatch(p); rank != nil {
		mark(j.marks, "ended-"+string(rank[1]), "")
	}
	if bytes.Contains(p, []byte("level=DEBUG")) {
		return len(p), nil
	}
	return j.buffer.Write(p)
}

func (j *journal) failed() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.at
}
