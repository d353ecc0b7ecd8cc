package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/engine/conformance"
)

const selftestLong = `Hold this machine's devices, and the communication between ranks, to what the program relies on: the conformance suites that its own tests run, on
your hardware. Every operation is compared with an oracle in plain Go, under each way to lay out memory; then streams, events, memory, wrong arguments;
of communicators values, order, and what happens when ranks die.

One line a suite, and below it every failure in full. Without --device the devices that "auto" can mean are checked, and all communicators. What is
not there is passed over with the reason, unless HETERO_REQUIRE names it (a list as cpu,shm): then it has failed, as has a check in it that is skipped.

Exit codes: 0 all passed; 5 a communicator failed; 6 a device failed, or both.`

const selftestExample = `  hetero-train selftest
  hetero-train selftest --short                      without those that take seconds each
  hetero-train selftest --device cpu --run /values/conv2d
  hetero-train selftest --json result.json
  HETERO_REQUIRE=cpu,shm hetero-train selftest       what is missing has failed`

// selftestFlags are those of selftest.
type selftestFlags struct {
	devices []string
	run     string
	json    string
	short   bool
	limit   time.Duration
}

// proof is a suite on something that it can run on.
type proof struct {
	name          string // "cpu", as HETERO_REQUIRE has it
	communication bool
	missing       func() error // why it cannot run here, nil if it can
	check         func(conformance.T)
}

func newSelftest(a *app) *cobra.Command {
	f := new(selftestFlags)
	cmd := &cobra.Command{Use: "selftest", Short: "Prove devices and communication on this machine", Long: selftestLong, Example: selftestExample, Args: noArguments}
	names := []string{"auto", "all"}
	for _, p := range proofs() {
		names = append(names, p.name)
	}
	cmd.Flags().StringSliceVar(&f.devices, "device", []string{"auto"}, "what to check, of "+strings.Join(names, ", "))
	cmd.Flags().StringVar(&f.run, "run", "", "only checks whose names match `REGEXP`, one for each depth between slashes: cpu/values/conv2d")
	cmd.Flags().StringVar(&f.json, "json", "", "write all results to `FILE`; - is standard output, and the lines go to standard error")
	cmd.Flags().BoolVar(&f.short, "short", false, "leave out checks that take seconds each")
	cmd.Flags().DurationVar(&f.limit, "limit", 3*time.Minute, "how long a single check may take")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if a.file != "" || len(a.overrides) > 0 {
			return usageError("selftest: -c and --set describe runs; what is checked does not depend on them")
		}
		if f.limit <= 0 {
			return usageError("--limit: got %s, want more than 0s", f.limit)
		}
		for _, d := range f.devices {
			if !slices.Contains(names, d) {
				return usageError("--device: got %q, want %s", d, strings.Join(names, ", "))
			}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.selftest(cmd.Context(), f, proofs()) }
	return cmd
}

// required are the names in HETERO_REQUIRE.
func (e environment) required() []string {
	text, _ := e.lookup("HETERO_REQUIRE")
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// namesOf lists what there are proofs for.
func namesOf(all []proof) string {
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.name
	}
	return strings.Join(names, ", ")
}

// chosen reports whether the flags ask for p.
func (f *selftestFlags) chosen(p proof) bool {
	automatic := p.communication
	for _, d := range drivers {
		automatic = automatic || d.Kind() == p.name && d.automatic
	}
	return slices.Contains(f.devices, p.name) || slices.Contains(f.devices, "all") || automatic && slices.Contains(f.devices, "auto")
}

// selfReport is the content of the file.
type selfReport struct {
	Program string                `json:"program"`
	Started time.Time             `json:"started"`
	Seconds float64               `json:"seconds"`
	Passed  int                   `json:"passed"`
	Failed  int                   `json:"failed"`
	Skipped int                   `json:"skipped"`
	Missing map[string]string     `json:"missing,omitempty"` // what could not be checked, and why
	Suites  []*conformance.Result `json:"suites"`
}

// selftest runs the suites that were asked for. A single one that has failed decides the exit code.
func (a *app) selftest(ctx context.Context, f *selftestFlags, all []proof) error {
	match, err := conformance.ParseMatch(f.run)
	if err != nil {
		return usageError("--run: %w", err)
	}
	out := a.env.stdout
	if f.json == "-" {
		out = a.env.stderr
	}
	required := a.env.required()
	for _, name := range required {
		if !slices.ContainsFunc(all, func(p proof) bool { return p.name == name }) {
			return usageError("HETERO_REQUIRE: nothing proves %q, want of %s", name, namesOf(all))
		}
	}
	r := selfReport{Program: versionText(), Started: time.Now(), Missing: map[string]string{}, Suites: []*conformance.Result{}}
	var failed, broken []string // devices, communicators
	for _, p := range all {
		if !f.chosen(p) && !slices.Contains(required, p.name) {
			continue
		}
		must := slices.Contains(required, p.name)
		good := true
		if why := p.missing(); why != nil {
			good, r.Missing[p.name] = !must, why.Error()
			fmt.Fprintf(out, "%-10s not there: %v\n", p.name, why)
		} else if result := p.prove(out, conformance.Options{Context: ctx, Match: match, Limit: f.limit, Short: f.short}); result != nil {
			passed, wrong, skipped := result.Count()
			r.Passed, r.Failed, r.Skipped, r.Suites = r.Passed+passed, r.Failed+wrong, r.Skipped+skipped, append(r.Suites, result)
			good = wrong == 0 && (skipped == 0 || !must || f.short)
		}
		switch {
		case good:
		case p.communication:
			broken = append(broken, p.name)
		default:
			failed = append(failed, p.name)
		}
	}
	if err := ctx.Err(); err != nil { // what has not begun has not passed
		return err
	}
	r.Seconds = time.Since(r.Started).Seconds()
	if f.json != "" {
		if err := writeReport(a.env.stdout, f.json, r); err != nil {
			return err
		}
	}
	return r.conclude(out, failed, broken)
}

// conclude says how it went, on the last line.
func (r selfReport) conclude(out io.Writer, failed, broken []string) error {
	fmt.Fprintf(out, "%d checks passed, %d failed, %d skipped in %.1f s\n", r.Passed, r.Failed, r.Skipped, r.Seconds)
	switch {
	case len(failed) > 0:
		return withCode(exitDevice, fmt.Errorf("selftest: failed: %s", strings.Join(append(failed, broken...), ", ")))
	case len(broken) > 0:
		return withCode(exitCommunication, fmt.Errorf("selftest: failed: %s", strings.Join(broken, ", ")))
	case r.Passed+r.Skipped == 0:
		return usageError("selftest: nothing was checked: --device and --run leave nothing, or what they name is not there")
	}
	return nil
}

// prove runs a suite and shows a line for each of its parts; nil where --run leaves it out.
func (p proof) prove(out io.Writer, o conformance.Options) *conformance.Result {
	o.Done = func(path []string, r *conformance.Result) {
		if len(path) == 2 {
			showSuite(out, path, r)
		}
	}
	result := conformance.Run(p.name, p.check, o)
	if result != nil && len(result.Within) == 0 && result.Status != conformance.Passed { // it never came to its parts
		showSuite(out, []string{p.name, ""}, result)
	}
	return result
}

// showSuite writes the line of a part of a suite, and its failures.
func showSuite(out io.Writer, path []string, r *conformance.Result) {
	passed, failed, skipped := r.Count()
	word := "ok"
	if r.Status == conformance.Failed {
		word = "FAILED"
	}
	fmt.Fprintf(out, "%-10s %-10s %-6s %5d passed", path[0], path[1], word, passed)
	if failed > 0 {
		fmt.Fprintf(out, ", %d failed", failed)
	}
	if skipped > 0 {
		fmt.Fprintf(out, ", %d skipped", skipped)
	}
	fmt.Fprintf(out, ", %.1f s\n", r.Seconds)
	showFailures(out, path, r)
}

// showFailures writes what failed checks have said.
func showFailures(out io.Writer, path []string, r *conformance.Result) {
	if r.Status == conformance.Failed && len(r.Output) > 0 {
		fmt.Fprintf(out, "    %s\n", strings.Join(path, "/"))
		for _, said := range r.Output {
			fmt.Fprintf(out, "        %s\n", strings.ReplaceAll(said, "\n", "\n        "))
		}
	}
	for _, sub := range r.Within {
		showFailures(out, append(slices.Clone(path), sub.Name), sub)
	}
}

// writeReport writes r to a file, or to stdout for "-".
func writeReport(stdout io.Writer, file string, r selfReport) error {
	if file == "-" {
		return writeJSON(stdout, r)
	}
	to, err := os.Create(file)
	if err != nil {
		return withCode(exitIO, err)
	}
	return withCode(exitIO, errors.Join(writeJSON(to, r), to.Close()))
}
