package selftest

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/conformance"
)

// proof is a conformance suite for one device or communicator.
type proof struct {
	name          string // name in the variable HETERO_REQUIRE, for example "cpu"
	communication bool
	missing       func() error  // returns the reason why the suite cannot run here, or nil
	about         func() string // returns hardware and library of the device; may be nil
	check         func(conformance.T)
}

// namesOf returns the names of all suites.
func namesOf(all []proof) string {
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.name
	}
	return strings.Join(names, ", ")
}

// prove runs a suite. It prints the hardware, and then one line for each part of the suite. It returns nil if --run
// excludes the suite.
func (p proof) prove(out io.Writer, o conformance.Options, about map[string]string) *conformance.Result {
	o.Done = func(path []string, r *conformance.Result) {
		if _, told := about[p.name]; !told && p.about != nil {
			about[p.name] = p.about()
			fmt.Fprintf(out, "%-10s on %s\n", p.name, about[p.name])
		}
		if len(path) == 2 {
			showSuite(out, path, r)
		}
	}
	result := conformance.Run(p.name, p.check, o)
	// If there are no parts, the suite failed before its first part.
	if result != nil && len(result.Within) == 0 && result.Status != conformance.Passed {
		showSuite(out, []string{p.name, ""}, result)
	}
	return result
}

// showSuite prints the line of a part of a suite, and its failures.
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

// showFailures prints the output of failed checks.
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
