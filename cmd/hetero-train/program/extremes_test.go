package program

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/run"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// extremes contains very large, very small and invalid numbers as texts.
var extremes = []string{"0", "-1", "5e-324", "1e-320", "1.7976931348623157e308", "-1e308", "nan", "inf", "2147483647",
	"2147483648", "9223372036854775807", "-9223372036854775808", "18446744073709551615"}

// Each numeric flag of each command must accept each extreme, or refuse it with the exit code of a usage error. An
// accepted value may request years of work, so the command must end without a crash soon after its context is canceled.
func TestExtremeNumbersOfFlags(t *testing.T) {
	needtest.Hostile.Need(t, "runs some hundred commands for a moment each")
	tested := 0
	var walk func(cmd *cobra.Command, path []string)
	walk = func(cmd *cobra.Command, path []string) {
		for _, sub := range cmd.Commands() {
			walk(sub, append(slices.Clone(path), sub.Name()))
		}
		// The test skips commands that measure the machine.
		if cmd.RunE == nil || cmd.Hidden ||
			slices.Contains([]string{"profile", "selftest", "nccl", "devices"}, path0(path)) {
			return
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if !slices.Contains([]string{"int", "int64", "uint64", "float64", "duration"}, f.Value.Type()) {
				return
			}
			for _, value := range extremes {
				tested++
				args := append(slices.Clone(path), "--"+f.Name+"="+value)
				if path0(path) == "bench" {
					args = append(args, "--device", "null")
				}
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				var out, messages bytes.Buffer
				began := time.Now()
				code := runLine(ctx, args, session.Environment{Stdout: &out, Stderr: &messages, Train: run.Train})
				cancel()
				if strings.Contains(messages.String(), "panic") || time.Since(began) > time.Minute {
					t.Errorf("%q: exit code %d after %v: %s", args, code, time.Since(began), messages.String())
				}
			}
		})
	}
	walk(newRoot(&cli.App{Env: session.Environment{Catalog: parts.BuiltinCatalog}}), nil)
	if tested < 100 {
		t.Errorf("%d flags and values, want at least 100", tested)
	}
}

func path0(path []string) string {
	if len(path) == 0 {
		return ""
	}
	return path[0]
}

// Each numeric key must accept or refuse each extreme. With an accepted value, a run of one step must end.
func TestExtremeNumbersOfKeys(t *testing.T) {
	needtest.Hostile.Need(t, "a thousand runs")
	var schema struct{ Properties map[string]any }
	if err := json.Unmarshal(config.Schema(parts.BuiltinCatalog), &schema); err != nil {
		t.Fatal(err)
	}
	p, tested := buildProgram(t), 0
	var walk func(prefix string, properties map[string]any)
	walk = func(prefix string, properties map[string]any) {
		for name, v := range properties {
			key := v.(map[string]any)
			if below, ok := key["properties"].(map[string]any); ok {
				walk(prefix+name+".", below)
				continue
			}
			text := fmt.Sprint(key["type"], key["items"])
			if !strings.Contains(text, "integer") && !strings.Contains(text, "number") {
				continue
			}
			values := slices.Clone(extremes)
			for _, bound := range []string{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"} {
				if b, ok := key[bound]; ok {
					values = append(values, fmt.Sprint(b))
				}
			}
			for _, value := range values {
				if key["type"] == "array" {
					value = "[" + value + ", " + value + "]"
				}
				set := prefix + name + "=" + value
				if slices.Contains([]string{"data.num_samples", "data.image_size", "data.batch_size", "parallel.ranks"},
					prefix+name) && len(value) > 3 {
					continue // the result depends on the memory of the machine
				}
				tested++
				cmd := p.command(t.TempDir(), "train.steps=1", "train.max_seconds=1", set)
				cmd.WaitDelay = time.Second
				kill := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
				out, _ := cmd.CombinedOutput()
				kill.Stop()
				code := cmd.ProcessState.ExitCode()
				if !slices.Contains([]int{exit.Done, exit.Usage, exit.Diverged, exit.Device}, code) ||
					bytes.Contains(out, []byte("panic")) {
					t.Errorf("%s: exit code %d\n%s", set, code, out[max(len(out)-500, 0):])
				}
			}
		}
	}
	walk("", schema.Properties)
	t.Logf("%d keys and values", tested)
	if tested < 500 {
		t.Errorf("%d keys and values, want at least 500", tested)
	}
}

func TestRefusedExtremes(t *testing.T) {
	const huge = "9223372036854775807"
	for _, test := range []struct {
		want string
		args []string
	}{
		{"want at most 1000000", []string{"bench", "train", "--warmup", huge}},
		{"want at most 1000000", []string{"bench", "train", "--steps", huge}},
		{"--block: got " + huge + ", want 3 to 1000000",
			[]string{"balance", "compare", "--block", huge, "--set", "parallel.ranks=2"}},
		{"--rounds: got " + huge + ", want 3 to 1000000",
			[]string{"balance", "compare", "--rounds", huge, "--set", "parallel.ranks=2"}},
	} {
		if o := execute(test.args); o.code != exit.Usage || !strings.Contains(o.stderr, test.want) {
			t.Errorf("%q: got exit code %d and %q", test.args, o.code, o.stderr)
		}
	}
}

// The reciprocals of these numbers are infinite. Drawing mixup's lambda must end even then.
func TestTheSmallestMixup(t *testing.T) {
	t.Parallel()
	for _, set := range []string{"augment.mixup=1e-320", "augment.cutmix=5e-324"} {
		o := trainIn(t, filepath.Join(t.TempDir(), "runs"), set)
		if o.code != exit.Done {
			t.Errorf("%s: got exit code %d: %s", set, o.code, o.stderr)
		}
	}
}
