package program

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/golden"
)

// outcome is the result of one command line.
type outcome struct {
	code           int
	stdout, stderr string
	cfg            *config.Config // configuration of the training run that the command started; nil: it started none
	opts           session.Options
}

// execute runs a command line. It does not train, but records the configuration that training would use.
func execute(args []string, environ ...string) outcome {
	var out, messages bytes.Buffer
	var o outcome
	o.code = runLine(context.Background(), args, session.Environment{
		Stdout: &out, Stderr: &messages, Environ: environ,
		Train: func(_ context.Context, cfg *config.Config, opts session.Options) error {
			o.cfg, o.opts = cfg, opts
			return nil
		},
		// All nodes have the same number of ranks.
		Count: func(_ context.Context, meeting rendezvous.Options, ranks int) (first, total int, err error) {
			return meeting.Rank * ranks, meeting.WorldSize * ranks, nil
		},
	})
	o.stdout, o.stderr = out.String(), messages.String()
	return o
}

// The flags are a public interface. The golden files make each change of them visible.
func TestHelp(t *testing.T) {
	for name, args := range map[string][]string{
		"help.txt":        {"--help"},
		"help_train.txt":  {"train", "--help"},
		"help_config.txt": {"config"},
	} {
		o := execute(args)
		if o.code != exit.Done || o.stderr != "" {
			t.Errorf("%v: got exit code %d and %q", args, o.code, o.stderr)
		}
		golden.Check(t, filepath.Join("testdata", name), o.stdout)
	}
	if got, want := execute(nil).stdout, execute([]string{"--help"}).stdout; got != want {
		t.Errorf("no arguments: got %q, want the help", got)
	}
}

// If a command refuses -c and --set, its help must not list these flags.
func TestHelpHidesRefusedFlags(t *testing.T) {
	for _, test := range []struct {
		args  []string
		lists bool
	}{
		{[]string{"balance", "simulate", "--help"}, false},
		{[]string{"help", "status"}, false},
		{[]string{"balance", "compare", "--help"}, true},
	} {
		if got := execute(test.args).stdout; strings.Contains(got, "--config FILE") != test.lists ||
			!strings.Contains(got, "--log-level") {
			t.Errorf("%v: got %q, want --log-level, and --config: %v", test.args, got, test.lists)
		}
	}
}

func TestWrongCommandLinesExitWith2AndSayWhatIsWrong(t *testing.T) {
	file := clitest.WriteConfig(t, "[train]\nepochs = -1\n")
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"tarin"}, `unknown command "tarin" for "hetero-train"; nearest: train`},
		{[]string{"balance", "extra"},
			`unknown command "extra" for "hetero-train balance"; hetero-train balance --help lists the commands`},
		{[]string{"configs/resnet50.toml"}, "given with -c FILE"},
		{[]string{"balance", "simulat", "--curves", "x.csv"},
			`unknown command "simulat" for "hetero-train balance"; nearest: simulate`},
		{[]string{"config", "shwo"}, `unknown command "shwo" for "hetero-train config"`},
		{[]string{"version", "now"}, `takes no arguments, got "now"`},
		{[]string{"completion", "dos"}, `unknown command "dos"`},
		{[]string{"train", "--epoch", "3"}, "unknown flag: --epoch; nearest: --epochs"},
		{[]string{"-c", file, "--load-balance-policy", "proportional"},
			"it is a flag of a subcommand: hetero-train train -c FILE --load-balance-policy"},
		{[]string{"--epochs", "3"}, "hetero-train train -c FILE --epochs"},
		// Command eval also has this flag; the message names train.
		{[]string{"-c", file, "--precision", "f32"}, "hetero-train train -c FILE --precision"},
		{[]string{"-c", file, "--batch-size", "8"}, "hetero-train train -c FILE --batch-size"},
		{[]string{"--device", "cpu"}, "hetero-train train -c FILE --device"},
		{[]string{"--experiment-name", "x"}, "hetero-train train -c FILE --experiment-name"},
		{[]string{"train", "-c", "a.toml", "-c", "b.toml"}, `-c: got ["a.toml" "b.toml"], want one file`},
		{[]string{"config", "show", "--config", "a.toml", "-c", "a.toml"}, "want one file"},
		{[]string{"train", "--lr", "1e-400"}, "--lr: optimizer.lr: too close to 0 to represent"},
		{[]string{"train", "--set", "batch=3"}, "--set batch: unknown key, nearest valid key: data.batch_size"},
		{[]string{"train", "--epochs"}, "flag needs an argument"},
		{[]string{"-c"}, "flag needs an argument"},
		{[]string{"train", "--enable-profiling=perhaps"}, "--enable-profiling"},
		{[]string{"--set", "train.epochs"}, `got "train.epochs", want table.key=value`},
		{[]string{"--set", "train.epochs=3", "--log-level", "loud"}, `got "loud", want debug, info, warn or error`},
		{[]string{"-c", "missing.toml"}, "missing.toml"},
		{[]string{"-c", t.TempDir()}, "read the configuration"},
		{[]string{"-c", file}, file + ": line 2: train.epochs: too small (got -1"},
		{[]string{"config", "show", "-c", file}, file + ": line 2: train.epochs: too small (got -1"},
		{[]string{"config", "schema", "-c", file}, file + ": line 2: train.epochs: too small (got -1"},
		{[]string{"train", "--model", "resnet51"}, `--model: model.name: unknown value (got "resnet51"`},
		{[]string{"train", "--model", "resnet50", "--set", "balance.fixed_shares=[64, 64]"},
			"needs one value for each rank (got 2 values, want 1)"},
		{[]string{"bench", "peak", "--device", "gpu"}, `device: got "gpu", want auto, cuda, cpu, reference, null`},
		{[]string{"train", "--nproc-per-node", "-2"}, "--nproc-per-node: parallel.ranks: too small"},
	} {
		o := execute(c.args)
		if o.code != exit.Usage || !strings.Contains(o.stderr, c.says) ||
			!strings.HasPrefix(o.stderr, "hetero-train: error: ") {
			t.Errorf("%v: got exit code %d and\n%swant 2 and %q", c.args, o.code, o.stderr, c.says)
		}
		if o.stdout != "" || o.cfg != nil {
			t.Errorf("%v: printed %q, trained: %v", c.args, o.stdout, o.cfg != nil)
		}
	}
}

func TestAllFaultsOfFileAndCommandLineAreListedTogether(t *testing.T) {
	file := clitest.WriteConfig(t, "[train]\nepochs = -1\nepoch = 3\n")
	o := execute([]string{"-c", file, "--set", "optimizer.lr=fast", "--resume", ""})
	want := "hetero-train: error: 4 faults in the configuration\n" +
		"  " + file + ": line 2: train.epochs: too small (got -1, want an integer of at least 0)\n" +
		"  " + file + ": line 3: train.epoch: unknown key, nearest valid key: train.epochs\n" +
		"  --set optimizer.lr: not a TOML value (got \"fast\", want a number of at least 0)\n" +
		"  --resume: train.resume: must not be empty\n"
	if o.code != exit.Usage || o.stderr != want {
		t.Errorf("got exit code %d and\n%swant\n%s", o.code, o.stderr, want)
	}
}

func TestExitCodes(t *testing.T) {
	plain := errors.New("broken")
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{plain, 1},
		{&config.Error{}, 2},
		{exit.With(exit.Data, plain), 3},
		{errors.Join(plain, exit.With(exit.Diverged, plain)), 4},
		{exit.With(exit.IO, exit.With(exit.Data, plain)), 7},
		{exit.With(exit.Data, nil), 0},
	} {
		var got int
		var messages bytes.Buffer
		got = runLine(context.Background(), []string{"--set", "train.epochs=1"}, session.Environment{
			Stdout: &bytes.Buffer{}, Stderr: &messages,
			Train: func(context.Context, *config.Config, session.Options) error { return c.err },
		})
		if got != c.want || c.err == plain && !strings.Contains(messages.String(), "hetero-train: error: broken\n") {
			t.Errorf("%v: got %d and %q, want %d", c.err, got, messages.String(), c.want)
		}
	}
}

// Go exits with code 2 after a panic, but code 2 means a usage error in this program. The message of a panic may also
// contain a secret.
func TestPanicExitsWith1AndHidesSecrets(t *testing.T) {
	var messages bytes.Buffer
	code := runLine(context.Background(), []string{"--set", "train.epochs=1"}, session.Environment{
		Stdout: &bytes.Buffer{}, Stderr: &messages, Environ: []string{"HETERO_TOKEN=hunter2hunter2"},
		Train: func(context.Context, *config.Config, session.Options) error { panic("peer said hunter2hunter2") },
	})
	got := messages.String()
	if code != exit.Unexpected || !strings.Contains(got, "panic: peer said [redacted]") ||
		strings.Contains(got, "hunter2") || !strings.Contains(got, "command_line_test.go") {
		t.Errorf("got exit code %d and\n%s", code, got)
	}
}

func TestVersion(t *testing.T) {
	want := version.Text() + "\n"
	// --version must take precedence over arguments, and over errors in other flags.
	for _, args := range [][]string{{"version", "--short"}, {"--version"}, {"-v"}, {"--version", "now"},
		{"--version", "-c", "a", "-c", "b"}, {"--log-level", "x", "--version"}} {
		if o := execute(args); o.code != exit.Done || o.stdout != want {
			t.Errorf("%v: got exit code %d and %q, want %q", args, o.code, o.stdout, want)
		}
	}
	if !strings.Contains(want, version.Build().Version) || !strings.Contains(want, "go1.") {
		t.Errorf("got %q, want release and compiler", want)
	}
}

func TestCompletionKnowsModelsAndPolicies(t *testing.T) {
	for flag, want := range map[string]string{"--model": "resnet50\n", "--dataset": "cifar10\n",
		"--load-balance-policy": "proportional\n"} {
		if o := execute([]string{"__complete", "train", flag, ""}); !strings.Contains(o.stdout, want) {
			t.Errorf("%s: got %q, want %q in it", flag, o.stdout, want)
		}
	}
	if o := execute([]string{"completion", "bash"}); o.code != exit.Done ||
		!strings.Contains(o.stdout, "bash completion") {
		t.Errorf("got exit code %d and %.60q", o.code, o.stdout)
	}
}

// If the learning rate in the file is for another optimizer, the program must warn.
func TestARateOfAnotherOptimizerWarns(t *testing.T) {
	of := func(text string) string { return clitest.WriteConfig(t, "[optimizer]\n"+text) }
	both, rate, none := of("name = \"sgd\"\nlr = 0.1\n"), of("lr = 0.1\n"), of("momentum = 0.9\n")
	for _, c := range []struct {
		args  []string
		warns int
	}{
		{[]string{"-c", both, "--set", "optimizer.name=adamw"}, 1},
		{[]string{"-c", rate, "--set", "optimizer.name=adamw"}, 1},
		{[]string{"-c", both, "--set", "optimizer.name=sgd"}, 0},
		{[]string{"-c", both, "--set", "optimizer.name=adamw", "--set", "optimizer.lr=0.001"}, 0},
		{[]string{"-c", none, "--set", "optimizer.name=adamw"}, 0},
		{[]string{"-c", both}, 0},
	} {
		o := execute(append([]string{"config", "show"}, c.args...))
		if n := strings.Count(o.stderr, "optimizer.lr = 0.1"); o.code != exit.Done || n != c.warns {
			t.Errorf("%v: got exit code %d and %d warnings, want %d:\n%s", c.args, o.code, n, c.warns, o.stderr)
		}
		if c.warns > 0 && (!strings.Contains(o.stderr, "was made for optimizer sgd") ||
			!strings.Contains(o.stderr, "selects adamw")) {
			t.Errorf("%v: got %s", c.args, o.stderr)
		}
	}
}
