package schedule

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/uncertain"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// estimates contains the flags for jobs whose exact work the policies do not know.
type estimates struct {
	uncertain.Options
	from  string // source of the estimates: "stated", "history" or "censored"
	flags *pflag.FlagSet
}

// estimatesLong is the part of the help that describes the flags of estimates.
const estimatesLong = `

With --estimate-error, the policies see an estimate of the work of each job, and only the simulator knows the work. The logarithm of the
error is normal with standard deviation SIGMA: at 0.5, two of three estimates are within a factor of 1.65, at 1 within 2.7. If a job does
more work than its estimate, the estimate doubles. Files state estimates in columns estimate and estimate_error of table jobs, which take
precedence. With --estimates history, finished jobs of the same kind correct the estimates of later jobs. With --estimates censored, jobs
that have not finished count, too, with the work that they have done as a lower limit of their work.`

func (e *estimates) add(flags *pflag.FlagSet) {
	e.flags = flags
	flags.Float64Var(&e.Sigma, "estimate-error", 0,
		"standard deviation `SIGMA` of the logarithm of the error with which the policies know the work of a job; 0: exact")
	flags.Float64Var(&e.Drift, "estimate-drift", 0,
		"standard deviation over kinds of the logarithm of a systematic error that grows from 0 to its end value during the run")
	flags.StringVar(&e.from, "estimates", "stated",
		"estimates that the policies see, `stated|history|censored`: as stated, or corrected by finished jobs, or by finished and unfinished jobs of the same kind")
	flags.Uint64Var(&e.Seed, "estimate-seed", 1, "seed of the errors of estimates")
}

// check refuses invalid values, and flags that have no effect on the jobs. If there are neither flags nor estimates in
// files, the policies see the exact work.
func (e *estimates) check(command string, listed []*scheduler.Workload) error {
	if !slices.Contains([]string{"stated", "history", "censored"}, e.from) {
		return exit.Usagef("%s: --estimates: got %q, want stated, history or censored", command, e.from)
	}
	e.History, e.Running = e.from != "stated", e.from == "censored"
	for _, f := range []struct {
		flag  string
		value float64
	}{{"estimate-error", e.Sigma}, {"estimate-drift", e.Drift}} {
		if !(f.value >= 0 && f.value <= uncertain.MostSigma) {
			return exit.Usagef("%s: --%s: got %v, want a number from 0 to %d", command, f.flag, f.value,
				uncertain.MostSigma)
		}
	}
	if e.Sigma > 0 || e.Drift > 0 || stateEstimates(listed) {
		return nil
	}
	for _, flag := range []string{"estimates", "estimate-seed"} {
		if e.flags.Changed(flag) {
			return exit.Usagef("%s: --%s has no effect, because the policies know the exact work: "+
				"add --estimate-error SIGMA, or column estimate or estimate_error to table jobs", command, flag)
		}
	}
	return nil
}

// stateEstimates reports whether at least one job of the files has an estimate.
func stateEstimates(listed []*scheduler.Workload) bool {
	return slices.ContainsFunc(listed, func(w *scheduler.Workload) bool {
		return slices.ContainsFunc(w.Jobs, func(j scheduler.Job) bool { return j.Estimate > 0 || j.Error > 0 })
	})
}

// text describes in one line the estimates that the policies see. It returns "" if the policies see the exact work.
func (e *estimates) text(listed []*scheduler.Workload) string {
	var parts []string
	if e.Sigma > 0 {
		parts = append(parts, fmt.Sprintf("sigma %v: two of three are within a factor of %.3g", e.Sigma,
			math.Exp(e.Sigma)))
	}
	if e.Drift > 0 {
		parts = append(parts, fmt.Sprintf("drift %v", e.Drift))
	}
	if stateEstimates(listed) {
		parts = append(parts, "estimates of the files")
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("the policies see estimates of the work (%s), %s", strings.Join(parts, ", "),
		map[string]string{"stated": "as stated", "history": "corrected by finished jobs of the same kind",
			"censored": "corrected by finished and unfinished jobs of the same kind"}[e.from])
}
