package program

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
)

func TestFaultsAreRecordsWhereJSONIsAskedFor(t *testing.T) {
	for _, args := range [][]string{
		{"--log-format", "json", "--no-such-flag"},
		{"train", "--set", "train.epochs=many", "--set", "optimizer.lr=fast", "--log-format=json"},
		{"analyze", "no-such-run", "--log-format", "json"},
	} {
		o := execute(args)
		all := clitest.Objects(t, o.stderr)
		if len(all) != 1 || all[0]["level"] != "ERROR" || all[0]["exit_code"] != float64(o.code) ||
			o.code != exit.Usage {
			t.Errorf("%q: got exit code %d and %s, want one record of it", args, o.code, o.stderr)
		}
	}
	if o := execute([]string{"--log-format", "xml", "version"}); o.code != exit.Usage ||
		!strings.Contains(o.stderr, "want text or json") {
		t.Errorf("an unknown format: got exit code %d and %s", o.code, o.stderr)
	}
}

func TestTheStartSaysWhereBatchSizeAndPolicyComeFrom(t *testing.T) {
	file := clitest.WriteConfig(t, "[data]\nbatch_size = 64\n")
	for _, c := range []struct {
		args        []string
		batch, from string
	}{
		{[]string{"train"}, "default, global", "default without a file and without --enable-load-balancing"},
		{[]string{"train", "--batch-size", "32", "--enable-load-balancing"}, "--batch-size, per rank",
			"default of --enable-load-balancing"},
		{[]string{"train", "--enable-load-balancing", "--load-balance-policy", "hybrid"}, "default, global",
			"--load-balance-policy"},
		{[]string{"-c", file}, file + ":2, global", "default with a configuration file"},
		{[]string{"-c", file, "--set", "balance.policy=none", "--set", "data.batch_size=16"},
			"--set data.batch_size, global", "--set balance.policy"},
	} {
		o := execute(append(c.args, "--log-format", "json"))
		all := clitest.Objects(t, o.stderr)
		ignored := strings.Count(o.stderr, "has no effect: the run has one rank, so there is nothing to balance")
		if want := min(strings.Count(strings.Join(c.args, " "), "-load-balanc"), 1); ignored != want ||
			len(all) != 1+want || all[0]["batch_size_from"] != c.batch || all[0]["policy_from"] != c.from {
			t.Errorf("%q: got %s, want %q, %q and %d warnings", c.args, o.stderr, c.batch, c.from, want)
		}
	}
}

func TestPipedOutputIsText(t *testing.T) {
	p := buildRanks(t)
	e := finish(t, p.command(t.TempDir(), "train.steps=20", "parallel.ranks=2"), 0)
	e.check(t, exit.Done, "load_balancer: Registered 2 nodes")
	for _, text := range []string{e.stdout, e.stderr} {
		if strings.Contains(text, `{"`) || strings.Contains(text, "\x1b[") {
			t.Errorf("got JSON or colours in\n%s", text)
		}
	}
	for _, want := range []string{"images 8x8, random crop (padding 1), flip", "ms, p50 ", ", p99 "} {
		if !strings.Contains(e.stdout, want) {
			t.Errorf("got no %q in\n%s", want, e.stdout)
		}
	}
	if n := strings.Count(e.stderr, "configuration file="); n != 1 {
		t.Errorf("got the configuration %d times, want once:\n%s", n, e.stderr)
	}
}

// With JSON, the program writes only to standard error, and every line is a record: progress, the end of the run, and
// the error of a failed run.
func TestEveryLineOfJSONOutputIsARecord(t *testing.T) {
	t.Parallel()
	p, dir := buildRanks(t), t.TempDir()
	run := func(set ...string) ended {
		cmd := p.command(dir, append(set, "parallel.ranks=2")...)
		cmd.Args = append(cmd.Args, "--log-format", "json", "--log-level", "debug")
		return finish(t, cmd, 0)
	}
	e := run("train.steps=20", "train.log_interval=5")
	e.check(t, exit.Done, "")
	if e.stdout != "" {
		t.Errorf("standard output: got %q, want nothing", e.stdout)
	}
	all := clitest.Objects(t, e.stderr)
	said := clitest.Messages(all)
	for _, want := range []string{"configuration", "Registered 2 nodes", "data", "step", "evaluation", "done",
		"results", "load balancer status"} {
		if !slices.Contains(said, want) {
			t.Errorf("got no record %q in\n%s", want, e.stderr)
		}
	}
	ranks := map[any]bool{}
	for _, o := range all {
		if text := fmt.Sprint(o["msg"]); strings.HasPrefix(text, "Rank ") &&
			strings.Contains(text, "| Epoch 0 | Batch 5/10 | Loss: ") {
			ranks[o["from_rank"]] = true
		}
	}
	if len(ranks) != 2 {
		t.Errorf("got lines of the batch from ranks %v, want both", ranks)
	}
	// The run is already complete. The lines on standard output must also be records.
	if e = run("train.steps=20"); e.code != exit.Done {
		t.Errorf("a finished run: got exit code %d", e.code)
	}
	if clitest.Objects(t, e.stderr); e.stdout != "" {
		t.Errorf("a finished run: standard output: got %q, want nothing", e.stdout)
	}
	e = run("train.steps=30", "model.channels=[5, 6]",
		"train.resume="+filepath.Join(dir, "run", "checkpoints", "latest"))
	if clitest.Objects(t, e.stderr); e.code == exit.Done {
		t.Errorf("another model: got exit code %d, want a failure", e.code)
	}
}

func TestATerminalHasColoursAndABar(t *testing.T) {
	t.Parallel()
	p := buildProgram(t)
	for _, c := range []struct {
		name    string
		args    []string
		colours bool
	}{{"text", nil, true}, {"json", []string{"--log-format", "json"}, false}} {
		master, slave := openTerminal(t)
		cmd := p.command(t.TempDir(), "train.steps=600", "parallel.ranks=1", "checkpoint.interval_steps=0")
		cmd.Args = append(cmd.Args, c.args...)
		cmd.Stdout, cmd.Stderr = slave, slave
		cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NO_COLOR=") })
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		slave.Close()
		shown := make(chan string)
		go func() {
			text, _ := io.ReadAll(master) // the read fails when the last writer closes the terminal
			shown <- string(text)
		}()
		code, text := exitOf(t, cmd.Wait()), <-shown
		if code != exit.Done {
			t.Fatalf("%s: got exit code %d\n%s", c.name, code, text)
		}
		if !c.colours {
			clitest.Objects(t, strings.ReplaceAll(text, "\r\n", "\n"))
			continue
		}
		for _, want := range []string{"\x1b[", "trainer: configuration", "step 1/600 | epoch 0", " left "} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: got no %q in\n%q", c.name, want, text)
			}
		}
	}
}

// finishBoth runs two commands at the same time.
func finishBoth(t *testing.T, first, second *exec.Cmd) (ended, ended) {
	t.Helper()
	other := make(chan ended, 1)
	go func() { other <- finish(t, second, 0) }()
	return finish(t, first, 0), <-other
}

// showTheRun checks the output of two commands of a run of 20 steps. Only the second one must show the text joined.
func showTheRun(t *testing.T, first, second ended, joined string) {
	t.Helper()
	first.check(t, exit.Done, "")
	for _, want := range []string{joined, "\nstep 1/20 | epoch 0 | loss ", "\nstep 20/20 | ", "\neval after step 20 ",
		"\ndone: 20 steps"} {
		if !strings.Contains("\n"+second.stdout, want) {
			t.Errorf("the second command does not show %q:\n%s%s", want, second.stdout, second.stderr)
		}
	}
	if strings.Contains(first.stdout, "joined: ") {
		t.Errorf("rank 0 shows that it joined itself:\n%s", first.stdout)
	}
}

// The terminal of each machine must show that the ranks have joined, the progress of the run, and its end. The test
// simulates two machines by two nodes on one machine.
func TestTheSecondMachineShowsTheRun(t *testing.T) {
	t.Parallel()
	p, dir, port := buildRanks(t), t.TempDir(), porttest.Free(t)
	node := func(rank int) *exec.Cmd {
		return exec.Command(p.path, "train", "-c", p.config, "--set", "experiment.output_dir="+
			filepath.Join(dir, fmt.Sprint(rank)), "--set", "train.steps=20",
			"--nnodes", "2", "--node-rank", fmt.Sprint(rank), "--nproc-per-node", "2", "--master-addr", "127.0.0.1",
			"--master-port", fmt.Sprint(port))
	}
	first, second := finishBoth(t, node(0), node(1))
	second.check(t, exit.Done, "cluster: node 1 of 2, starts ranks 2 to 3 of 4")
	showTheRun(t, first, second, "joined: ranks 2, 3 of 4; rank 0 at 127.0.0.1:")
	if _, err := os.Stat(filepath.Join(dir, "1")); err == nil {
		t.Error("node 1 has a folder of the run, which is rank 0's")
	}
}

// Machines with different numbers of GPUs have different numbers of ranks. --batch-size counts the samples of each
// rank.
func TestNodesMayStartUnequalNumbersOfRanks(t *testing.T) {
	p, dir, port := buildRanks(t), t.TempDir(), porttest.Free(t)
	node := func(rank, ranks int) *exec.Cmd {
		return exec.Command(p.path, "train", "-c", p.config, "--set", "experiment.output_dir="+
			filepath.Join(dir, fmt.Sprint(rank)), "--set", "train.steps=5", "--batch-size", "4",
			"--nnodes", "2", "--node-rank", fmt.Sprint(rank), "--nproc-per-node", fmt.Sprint(ranks), "--master-addr",
			"127.0.0.1", "--master-port", fmt.Sprint(port))
	}
	first, second := finishBoth(t, node(0, 1), node(1, 2))
	first.check(t, exit.Done, "batch_size_global=12 batch_size_per_rank=4")
	second.check(t, exit.Done, "cluster: node 1 of 2, starts ranks 1 to 2 of 3")
	if want := "joined: ranks 1, 2 of 3;"; !strings.Contains(second.stdout, want) {
		t.Errorf("node 1 does not show %q:\n%s", want, second.stdout)
	}
}

// A rank that the user started must print the run on its own terminal, even on the machine of rank 0.
func TestARankStartedByHandShowsTheRun(t *testing.T) {
	p, dir, port := buildRanks(t), t.TempDir(), porttest.Free(t)
	rank := func(rank int) *exec.Cmd { return asRank(p.command(dir, "train.steps=20"), rank, 2, port) }
	first, second := finishBoth(t, rank(0), rank(1))
	second.check(t, exit.Done, "cluster: waiting for the other ranks")
	showTheRun(t, first, second, "joined: rank 1 of 2; rank 0 at 127.0.0.1:")
}
