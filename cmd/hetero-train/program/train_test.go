package program

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
)

func TestFileAloneAndTrainWithFileAreTheSame(t *testing.T) {
	for _, more := range [][]string{
		nil,
		{"--set", "train.epochs=3", "--set", "train.epochs=4"},
		{"--resume", "none", "--set", "model.stem=cifar"},
		{"--set", "train.resume=auto", "--resume", "none"},
	} {
		alone := execute(append([]string{"-c", "../../../configs/resnet50.toml"}, more...))
		trained := execute(append([]string{"train", "-c", "../../../configs/resnet50.toml"}, more...))
		if alone.code != exit.Done || trained.code != exit.Done || !reflect.DeepEqual(alone.cfg, trained.cfg) {
			t.Errorf("%v: got exit codes %d and %d, difference %v", more, alone.code, trained.code,
				config.Diff(alone.cfg, trained.cfg))
		}
		if alone.opts.File != "../../../configs/resnet50.toml" {
			t.Errorf("file: got %q", alone.opts.File)
		}
	}
}

// value returns the resolved value of a key, from the output of config show.
func value(t *testing.T, cfg *config.Config, key string) string {
	t.Helper()
	table, name, _ := strings.Cut(key, ".")
	_, rest, _ := strings.Cut(string(cfg.TOML()), "["+table+"]\n")
	rest, _, _ = strings.Cut(rest, "\n[")
	for line := range strings.Lines(rest) {
		if k, v, _ := strings.Cut(strings.TrimSpace(line), " = "); k == name {
			return v
		}
	}
	t.Fatalf("%s is not in the resolved configuration", key)
	return ""
}

func TestFlagsOfTrainSetTheirKeys(t *testing.T) {
	t.Parallel()
	file := clitest.WriteConfig(t, "[balance]\npolicy = \"hybrid\"\n[train]\nepochs = 7\n")
	proportional := clitest.WriteConfig(t, "[balance]\npolicy = \"proportional\"\n")
	for _, c := range []struct {
		args []string
		key  string
		want string
	}{
		{[]string{"--model", "resnet18"}, "model.name", `"resnet18"`},
		{[]string{"--dataset", "cifar10"}, "data.dataset", `"cifar10"`},
		{[]string{"--num-samples", "1000"}, "data.num_samples", "1000"},
		{[]string{"--batch-size", "32"}, "data.batch_size", "32"},
		{[]string{"--batch-size=32", "--nproc-per-node=1"}, "data.batch_size", "32"},
		{[]string{"--batch-size=7", "--nproc-per-node=2", "--set=augment.mixup=0.2"}, "data.batch_size", "14"},
		{[]string{"--batch-size=9", "--nproc-per-node=2", "--set=train.grad_accumulation=2"}, "data.batch_size", "18"},
		{[]string{"--epochs", "2"}, "train.epochs", "2"},
		{[]string{"--lr", "0.001"}, "optimizer.lr", "0.001"},
		{[]string{"--backend", "gloo"}, "parallel.backend", `"gloo"`},
		{[]string{"--backend", "nccl"}, "parallel.backend", `"gloo"`},
		{[]string{"--master-addr", "10.0.0.1"}, "parallel.master_addr", `"10.0.0.1"`},
		{[]string{"--master-port", "29501"}, "parallel.master_port", "29501"},
		{[]string{"--nproc-per-node", "1"}, "parallel.ranks", "1"},
		{[]string{"--enable-profiling"}, "profile.enabled", "true"},
		{[]string{"--profile-interval", "5"}, "profile.interval", "5"},
		{[]string{"--rebalance-interval", "20"}, "balance.interval", "20"},
		{[]string{"--experiment-name", "first"}, "experiment.name", `"first"`},
		{[]string{"--output-dir", "/data/runs"}, "experiment.output_dir", `"/data/runs"`},
		{[]string{"--log-dir", "/data/logs"}, "experiment.log_dir", `"/data/logs"`},
		{[]string{"--resume", "none"}, "train.resume", `"none"`},
		{[]string{"--log-level", "debug"}, "train.epochs", "10"},

		{nil, "balance.policy", `"none"`},
		{[]string{"--enable-load-balancing"}, "balance.policy", `"dynamic"`},
		{[]string{"--enable-load-balancing", "--load-balance-policy", "proportional"}, "balance.policy",
			`"proportional"`},
		{[]string{"--load-balance-policy", "proportional"}, "balance.policy", `"proportional"`},
		{[]string{"--enable-load-balancing=false"}, "balance.policy", `"none"`},
		{[]string{"--set", "balance.policy=hybrid"}, "balance.policy", `"hybrid"`},

		{[]string{"-c", file}, "balance.policy", `"hybrid"`},
		{[]string{"-c", file, "--epochs", "2"}, "balance.policy", `"hybrid"`},
		{[]string{"-c", file, "--enable-load-balancing"}, "balance.policy", `"hybrid"`},
		{[]string{"-c", proportional, "--enable-load-balancing"}, "balance.policy", `"proportional"`},
		{[]string{"-c", proportional, "--enable-load-balancing=false"}, "balance.policy", `"none"`},
		{[]string{"-c", file, "--load-balance-policy", "proportional"}, "balance.policy", `"proportional"`},
		{[]string{"-c", file, "--load-balance-policy", "proportional", "--enable-load-balancing"}, "balance.policy",
			`"proportional"`},
		{[]string{"--enable-load-balancing", "--set", "balance.policy=hybrid"}, "balance.policy", `"hybrid"`},
		{[]string{"--enable-profiling", "--set", "profile.enabled=false"}, "profile.enabled", "false"},
		{[]string{"--set", "profile.enabled=false", "--enable-profiling"}, "profile.enabled", "true"},
		{[]string{"-c", file, "--epochs", "2"}, "train.epochs", "2"},
		{[]string{"-c", file}, "train.epochs", "7"},
		{[]string{"--epochs", "2", "--set", "train.epochs=3"}, "train.epochs", "3"},
		{[]string{"--set", "train.epochs=3", "--epochs", "2"}, "train.epochs", "2"},
		{[]string{"--set", "data.batch_size=64", "--batch-size", "32"}, "data.batch_size", "32"},
	} {
		o := execute(append([]string{"train"}, c.args...))
		if o.code != exit.Done {
			t.Errorf("%v: got exit code %d and %s", c.args, o.code, o.stderr)
			continue
		}
		if got := value(t, o.cfg, c.key); got != c.want {
			t.Errorf("%v: %s: got %s, want %s", c.args, c.key, got, c.want)
		}
	}
}

func TestChangedMeaningsOfFlagsAreWarnedOf(t *testing.T) {
	none := clitest.WriteConfig(t, "[balance]\npolicy = \"none\"\n")
	for _, c := range []struct {
		args []string
		says string // part of the expected warning; "": no warning
	}{
		{[]string{"--backend", "nccl"}, "--backend nccl: no GPU found, using gloo"},
		{[]string{"--backend", "gloo"}, ""},
		{[]string{"--load-balance-policy", "dynamic"}, "--load-balance-policy has no effect: the run has one rank"},
		{[]string{"--load-balance-policy", "dynamic", "--enable-load-balancing"},
			"--load-balance-policy has no effect: the run has one rank"},
		{[]string{"--enable-load-balancing", "--set", "balance.policy=hybrid"}, ""},
		{[]string{"--enable-load-balancing", "-c", none},
			"--enable-load-balancing has no effect: balance.policy is set (" + none + ":2)"},
		{[]string{"--enable-load-balancing", "--set", "balance.fixed_shares=[128]"},
			"--enable-load-balancing has no effect: balance.fixed_shares is set"},
		{[]string{"--load-balance-policy", "dynamic", "--set", "balance.policy=hybrid"},
			`the command line sets balance.policy several times: "hybrid" (--set balance.policy), the last one, overrides "dynamic" (--load-balance-policy)`},
		{[]string{"--enable-load-balancing=false", "--load-balance-policy", "dynamic"},
			`"dynamic" (--load-balance-policy), the last one, overrides "none" (--enable-load-balancing=false)`},
		{[]string{"--lr", "0.1", "--set", "optimizer.lr=0.2"},
			"0.2 (--set optimizer.lr), the last one, overrides 0.1 (--lr)"},
		{[]string{"--set", "optimizer.lr=0.2", "--lr", "0.1", "--lr", "0.3"},
			"0.3 (--lr), the last one, overrides 0.2 (--set optimizer.lr) and 0.1 (--lr)"},
		{[]string{"--lr", "0.1", "--set", "optimizer.lr=1e-1"}, ""},
		{[]string{"--batch-size", "32", "--set", "data.batch_size=64"},
			"64 (--set data.batch_size), the last one, overrides 32 (--batch-size)"},
		{[]string{"--enable-profiling", "--set", "profile.enabled=false"},
			"false (--set profile.enabled), the last one, overrides true (--enable-profiling)"},
	} {
		o := execute(append([]string{"train"}, c.args...))
		if warned := strings.Contains(o.stderr, " WRN "); o.code != exit.Done || warned != (c.says != "") ||
			!strings.Contains(o.stderr, c.says) {
			t.Errorf("%v: got exit code %d and %s, want %q", c.args, o.code, o.stderr, c.says)
		}
	}
}

func TestABatchSizeForEachRankIsRefusedUnderItsFlag(t *testing.T) {
	// The error must name the flag and the key.
	if o := execute([]string{"train", "--batch-size", "0"}); !strings.Contains(o.stderr,
		"--batch-size: data.batch_size: too small (got 0") {
		t.Errorf("got %s", o.stderr)
	}
}

func TestEnvironmentSaysWhichRankThisIs(t *testing.T) {
	const file = "../../../configs/simple_cnn.toml"
	for size, wantCode := range map[string]int{"1": exit.Done, "": exit.Usage, "many": exit.Usage, "0": exit.Usage} {
		o := execute([]string{"-c", file}, "WORLD_SIZE="+size, "RANK=0")
		if o.code != wantCode || wantCode != exit.Done && !strings.Contains(o.stderr, "WORLD_SIZE") {
			t.Errorf("WORLD_SIZE=%q: got exit code %d and %s, want %d", size, o.code, o.stderr, wantCode)
		}
	}
	o := execute([]string{"-c", file}, "WORLD_SIZE=3", "RANK=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2",
		"MASTER_ADDR=node-a", "MASTER_PORT=29600")
	if p := o.opts.Assignment; o.code != exit.Done || p.Rank != 2 || p.WorldSize != 3 || p.LocalWorldSize != 2 ||
		p.Master() != "node-a:29600" {
		t.Errorf("got exit code %d and %+v", o.code, p)
	}
	o = execute([]string{"-c", file, "--set", "parallel.ranks=4"})
	if p := o.opts.Assignment; o.code != exit.Done || !p.Launch || p.LocalWorldSize != 4 {
		t.Errorf("parallel.ranks: got exit code %d and %+v, want four ranks to start", o.code, p)
	}
	supervised := []string{"train", "-c", file, "--nnodes", "2", "--node-rank", "0", "--nproc-per-node", "2",
		"--master-addr", "node-a"}
	if p := execute(supervised).opts.Assignment; !p.Launch || p.WorldSize != 4 {
		t.Errorf("two machines: got %+v, want two of four ranks to start", p)
	}
	rank := []string{"RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=node-a",
		"MASTER_PORT=29500", session.SupervisedVariable + "=1"}
	if p := execute(supervised, rank...).opts.Assignment; p.Launch || p.Rank != 1 || p.WorldSize != 4 ||
		p.LocalWorldSize != 2 {
		t.Errorf("a rank of two machines: got %+v, want rank 1, which starts no other rank", p)
	}
	if o := execute([]string{"-c", file, "--set", "parallel.ranks=2"}, session.SupervisedVariable+"=1"); o.cfg != nil &&
		o.opts.Assignment.Launch {
		t.Errorf("a rank would start ranks: %+v", o.opts.Assignment)
	}
	o = execute([]string{"train", "-c", file, "--batch-size", "10", "--set", "balance.fixed_shares=[20, 10]",
		"--nproc-per-node", "3"})
	if o.code != exit.Usage || !strings.Contains(o.stderr, "one value for each rank") {
		t.Errorf("two shares for three ranks: got exit code %d and %s", o.code, o.stderr)
	}
}

func TestStartSaysGlobalBatchAndBatchOfEachRank(t *testing.T) {
	o := execute([]string{"train", "--batch-size", "32", "--num-samples", "1000", "--log-format", "json"})
	var line struct {
		Msg     string
		Model   string
		Global  int `json:"batch_size_global"`
		PerRank int `json:"batch_size_per_rank"`
		Ranks   int
	}
	if err := json.Unmarshal([]byte(o.stderr), &line); err != nil {
		t.Fatalf("%v in %s", err, o.stderr)
	}
	if line.Msg != "configuration" || line.Model != "simple_cnn" || line.Global != 32 || line.PerRank != 32 ||
		line.Ranks != 1 {
		t.Errorf("got %s", o.stderr)
	}
	if o.stdout != "" {
		t.Errorf("standard output: got %q, want nothing", o.stdout)
	}
}

func TestEveryModelCanBeNamed(t *testing.T) {
	for _, m := range parts.BuiltinCatalog.Models {
		args := []string{"train", "--model", m.Name}
		if m.Samples == config.Tokens {
			args = append(args, "--dataset", "synthetic_text")
		}
		if o := execute(args); o.code != exit.Done {
			t.Errorf("%s: got exit code %d and %s", m.Name, o.code, o.stderr)
		}
	}
}

func TestEveryDataSetCanBeNamed(t *testing.T) {
	for _, d := range parts.BuiltinCatalog.DataSets {
		args := []string{"train", "--dataset", d.Name}
		switch d.Name {
		case "images", "webdataset", "huggingface":
			args = append(args, "--set", "data.path=/data/flowers")
		case "text":
			args = append(args, "--model", "gpt2", "--set", "data.path=/data/tokens")
		case "labelled_text":
			args = append(args, "--model", "bert_base", "--set", "data.path=/data/reviews.tsv", "--set",
				"data.vocab_file=/data/vocab.txt")
		case "synthetic_text":
			args = append(args, "--model", "gpt2")
		}
		if o := execute(args); o.code != exit.Done {
			t.Errorf("%s: got exit code %d and %s", d.Name, o.code, o.stderr)
		}
	}
}

// Secrets must appear neither in the log nor in an error.
func TestNoSecretIsPrinted(t *testing.T) {
	secret := "canary-8e1f0a"
	for _, args := range [][]string{
		{"--set", "experiment.name=" + secret},
		{"--set", "train.epochs=" + secret},
		{"--set", "experiment.log_dir=" + secret, "--log-level", "debug"},
		{secret},
		{"-c", secret},
	} {
		o := execute(args, "HETERO_TOKEN="+secret)
		if strings.Contains(o.stderr, secret) {
			t.Errorf("%v: printed %s", args, o.stderr)
		}
	}
	var b bytes.Buffer
	log, err := logs.New(&b, logs.NewScreen(&b),
		logs.Options{Level: "info", Format: logs.FormatJSON, Hide: logs.SecretsIn([]string{"HETERO_TOKEN=" + secret})})
	if err != nil {
		t.Fatal(err)
	}
	log.Info("joined with " + secret)
	if got := b.String(); !strings.Contains(got, "joined with [redacted]") {
		t.Errorf("got %s", got)
	}
}
