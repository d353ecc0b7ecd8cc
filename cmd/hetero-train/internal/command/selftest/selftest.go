package selftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/conformance"
)

const selftestLong = `Test the devices of this machine and the communication between ranks.

The command runs the same conformance suites as the program's own tests. The device suites check the result of every operation
in every memory layout against plain Go code. They also test streams, events, memory and the handling of wrong arguments. The
suites of a communicator test values, order and lost ranks.

The output starts with the versions of hardware and libraries. One line per suite follows, with all failures in full.

Without --device, the command tests the devices that device.kind = "auto" can select, and all communicators. It skips missing parts
and prints the reason. If a part listed in HETERO_REQUIRE (for example cuda,nccl) is missing, or one of its checks is skipped, the
test fails.

In the nccl suite, each rank is a process. With four or more GPUs, each rank uses its own GPU; with fewer, ranks share GPUs. NCCL
2.30.3 and later support shared GPUs. For earlier versions, the program makes NCCL treat the ranks as if each ran on its own
machine.

Exit codes:
  0  all checks passed
  5  a communicator failed
  6  a device failed, whether or not a communicator failed too`

const selftestExample = `  hetero-train selftest
  hetero-train selftest --short                      skip slow checks
  hetero-train selftest --device cpu --run /values/conv2d
  hetero-train selftest --json result.json
  HETERO_REQUIRE=cpu,shm hetero-train selftest       fail if a part is missing
  HETERO_REQUIRE=cuda,nccl hetero-train selftest --device cuda,nccl --time 2m`

// selftestFlags are the flags of command selftest.
type selftestFlags struct {
	devices []string
	run     string
	json    string
	short   bool
	limit   time.Duration
	time    time.Duration
}

// New returns the command that checks devices and communicators on this machine.
func New(a *cli.App) *cobra.Command {
	f := new(selftestFlags)
	cmd := &cobra.Command{Use: "selftest", Short: "Test the devices and communication of this machine",
		Long: selftestLong, Example: selftestExample, Args: cli.NoArguments}
	names := []string{"auto", "all"}
	for _, p := range proofs() {
		names = append(names, p.name)
	}
	cmd.Flags().StringSliceVar(&f.devices, "device", []string{"auto"}, "parts to test, from "+strings.Join(names, ", "))
	cmd.Flags().StringVar(&f.run, "run", "", "run only checks whose names match `REGEXP`; as in go test, REGEXP is split at slashes and each piece matches one part of the name: cpu/values/conv2d")
	cmd.Flags().StringVar(&f.json, "json", "",
		"write all results to `FILE`; -: write them to standard output, and all other output to standard error")
	cmd.Flags().BoolVar(&f.short, "short", false, "skip checks that take several seconds")
	cmd.Flags().DurationVar(&f.limit, "limit", 3*time.Minute, "time limit of each check")
	cmd.Flags().DurationVar(&f.time, "time", 0,
		"time limit of all checks together; unfinished checks fail; 0: no limit")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if f.limit <= 0 {
			return exit.Usagef("--limit: got %s, want more than 0s", f.limit)
		}
		if f.time < 0 {
			return exit.Usagef("--time: got %s, want 0s or more", f.time)
		}
		for _, d := range f.devices {
			if !slices.Contains(names, d) {
				return exit.Usagef("--device: got %q, want %s", d, strings.Join(names, ", "))
			}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return checkAll(cmd.Context(), a, f, proofs()) }
	return cmd
}

// required returns the names in the variable HETERO_REQUIRE.
func required(e session.Environment) []string {
	text, _ := e.Lookup("HETERO_REQUIRE")
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// chosen reports whether the flags select the suite p.
func (f *selftestFlags) chosen(p proof) bool {
	automatic := p.communication
	for _, d := range devices.Drivers {
		automatic = automatic || d.Kind() == p.name && d.Automatic
	}
	return slices.Contains(f.devices, p.name) || slices.Contains(f.devices, "all") || automatic &&
		slices.Contains(f.devices, "auto")
}

// Report is the content of the report file.
type Report struct {
	Program string                `json:"program"`
	Started time.Time             `json:"started"`
	Seconds float64               `json:"seconds"`
	Passed  int                   `json:"passed"`
	Failed  int                   `json:"failed"`
	Skipped int                   `json:"skipped"`
	About   map[string]string     `json:"about,omitempty"`   // hardware and libraries, by suite
	Missing map[string]string     `json:"missing,omitempty"` // reasons why suites could not run, by suite
	Late    []string              `json:"late,omitempty"`    // checks that did not end in time
	Suites  []*conformance.Result `json:"suites"`
}

// checkAll runs the selected suites. If exactly one suite fails, it determines the exit code.
func checkAll(ctx context.Context, a *cli.App, f *selftestFlags, all []proof) error {
	match, err := conformance.ParseMatch(f.run)
	if err != nil {
		return exit.Usagef("--run: %w", err)
	}
	out := a.Env.Stdout
	if f.json == "-" {
		if out = a.Env.Stderr; a.LogFormat == logs.FormatJSON {
			records := &logs.LineRecords{Log: slog.New(slog.NewJSONHandler(a.Env.Stderr, nil))}
			defer records.Flush()
			out = records
		}
	}
	required := required(a.Env)
	for _, name := range required {
		if !slices.ContainsFunc(all, func(p proof) bool { return p.name == name }) {
			return exit.Usagef("HETERO_REQUIRE: unknown part %q, want some of %s", name, namesOf(all))
		}
	}
	r := Report{Program: version.Text(), Started: time.Now(), About: map[string]string{}, Missing: map[string]string{},
		Suites: []*conformance.Result{}}
	inTime, cancel := ctx, context.CancelFunc(func() {})
	if f.time > 0 {
		inTime, cancel = context.WithTimeout(ctx, f.time)
	}
	defer cancel()
	var failed, broken []string // names of devices and communicators that failed
	for _, p := range all {
		if !f.chosen(p) && !slices.Contains(required, p.name) {
			continue
		}
		must := slices.Contains(required, p.name)
		good := true
		if why := p.missing(); why != nil {
			good, r.Missing[p.name] = !must, strings.TrimPrefix(why.Error(), p.name+": ")
			fmt.Fprintf(out, "%-10s missing: %s\n", p.name, r.Missing[p.name])
		} else if result := p.prove(out, conformance.Options{Context: inTime, Match: match, Limit: f.limit,
			Short: f.short}, r.About); result != nil {
			passed, wrong, skipped := result.Count()
			r.Passed, r.Failed, r.Skipped, r.Suites = r.Passed+passed, r.Failed+wrong, r.Skipped+skipped,
				append(r.Suites, result)
			good = wrong == 0 && (skipped == 0 || !must || f.short)
		}
		if err := ctx.Err(); err != nil { // checks that have not begun count as failed
			return err
		}
		if inTime.Err() != nil {
			good, r.Late = false, append(r.Late, p.name)
			fmt.Fprintf(out, "%-10s time limit of %v reached (--time): not all checks have run\n", p.name, f.time)
		}
		switch {
		case good:
		case p.communication:
			broken = append(broken, p.name)
		default:
			failed = append(failed, p.name)
		}
	}
	r.Seconds = time.Since(r.Started).Seconds()
	if f.json != "" {
		if err := writeReport(a.Env.Stdout, f.json, r); err != nil {
			return err
		}
	}
	return r.conclude(out, failed, broken)
}

// conclude prints the last line, which contains the result.
func (r Report) conclude(out io.Writer, failed, broken []string) error {
	fmt.Fprintf(out, "%d checks passed, %d failed, %d skipped in %.1f s\n", r.Passed, r.Failed, r.Skipped, r.Seconds)
	switch {
	case len(failed) > 0:
		return exit.With(exit.Device, fmt.Errorf("selftest: failed: %s", strings.Join(append(failed, broken...), ", ")))
	case len(broken) > 0:
		return exit.With(exit.Communication, fmt.Errorf("selftest: failed: %s", strings.Join(broken, ", ")))
	case r.Passed+r.Skipped == 0:
		return exit.Usagef(
			"selftest: no check ran: --device and --run select no check, or the selected parts are missing")
	}
	return nil
}

// writeReport writes r to a file, or to stdout for "-".
func writeReport(stdout io.Writer, file string, r Report) error {
	if file == "-" {
		return show.JSON(stdout, r)
	}
	to, err := os.Create(file)
	if err != nil {
		return exit.With(exit.IO, err)
	}
	return exit.With(exit.IO, errors.Join(show.JSON(to, r), to.Close()))
}
