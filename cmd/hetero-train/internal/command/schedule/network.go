package schedule

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/dqn"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/device"
)

// policyNames returns the names of all policies.
func policyNames() []string { return append(slices.Clone(scheduler.Names()), dqn.PolicyName) }

// networkMark is the beginning of names such as dqn:FOLDER: policy dqn with the network in a folder.
const networkMark = dqn.PolicyName + ":"

// learnt reports whether a name selects policy dqn: dqn with the network of --network, or dqn:FOLDER with the network
// in a folder.
func learnt(name string) bool {
	folder, found := strings.CutPrefix(name, networkMark)
	return name == dqn.PolicyName || found && folder != ""
}

// isPolicy reports whether a policy has this name.
func isPolicy(name string) bool { return slices.Contains(scheduler.Names(), name) || learnt(name) }

// cleaned returns the name of a policy with the shortest path to its folder, so that one network does not have several
// names.
func cleaned(name string) string {
	if folder, found := strings.CutPrefix(name, networkMark); found && folder != "" {
		return networkMark + filepath.Clean(folder)
	}
	return name
}

// unknownPolicy returns the error of a flag whose value is not the name of a policy.
func unknownPolicy(command, flag, name string) error {
	return exit.Usagef("%s: --%s: unknown policy: got %q, want one of %s, %sFOLDER", command, flag, name,
		strings.Join(policyNames(), ", "), networkMark)
}

// defaultPolicy is the policy without training that has the best results on the default cluster in
// docs/benchmarks/scheduling.md.
const defaultPolicy = "gang"

// baseline is the default baseline, the policy to which the other policies are compared.
const baseline = "fcfs"

// policyUsage is the help text of a flag whose value is the name of a policy.
func policyUsage(before string) string {
	return fmt.Sprintf("%s: `%s|%sFOLDER`", before, strings.Join(policyNames(), "|"), networkMark)
}

// policies creates policies by name, and keeps them for later runs. It is not safe for concurrent use.
type policies struct {
	command string // name of the command in errors
	network string // folder with checkpoints of policy dqn; "" selects the built-in network
	device  string // device that computes the network
	alone   bool   // policy dqn decides without gang
	agents  bool   // policy dqn decides with one agent for each machine
	explain bool
	keep    bool // never stop a running job
	warn    func(text string)

	bound *scheduler.Bound // limit on the waiting time of jobs under gang and dqn; nil: none

	networkFlags *pflag.FlagSet // flags to which addNetwork added its flags; nil: none

	made map[string]scheduler.Policy
	dev  device.Device
}

// addNetwork adds the flags of policies gang and dqn.
func (p *policies) addNetwork(flags *pflag.FlagSet) {
	p.networkFlags = flags
	bound, values, more := scheduler.DefaultBound, "easy|FACTOR,SECONDS|none", "easy stops running jobs for a job that has waited 1.9 times as long as any job of as many GPUs would have under policy easy; "
	if p.keep {
		bound, values, more = scheduler.StaticBound, "FACTOR,SECONDS|none", ""
	}
	p.bound = &bound
	flags.Var(waitBound{&p.bound, p.keep}, "wait-bound", fmt.Sprintf("`%s`: under gang and dqn, %sFACTOR,SECONDS gives a reservation to the job that has waited longest beyond FACTOR times its running time plus SECONDS", values, more))
	flags.StringVar(&p.network, "network", "", "`FOLDER` with a network of schedule train, or with one of its checkpoints, for policy dqn; default: the built-in network")
	flags.BoolVar(&p.alone, "alone", false, "policy dqn decides without policy gang: it always takes the action with the largest value, and moves no running job")
	flags.BoolVar(&p.agents, "agents", false, "policy dqn decides with one agent for each machine, which sees the queue and the GPUs of its machine; implies --alone")
	flags.StringVar(&p.device, "device", "cpu",
		"device that computes the network of policy dqn: `auto|cpu|cuda|reference`")
}

// checkNetwork refuses --agents --alone=false. It also refuses --network, --device, --alone, --agents and --wait-bound
// if no policy uses them.
func (p *policies) checkNetwork(names ...string) error {
	if p.agents && !p.alone && p.networkFlags.Changed("alone") {
		return exit.Usagef("%s: --agents: got --alone=false, want no --alone or --alone=true: agents decide without policy gang",
			p.command)
	}
	if !isPolicy(names[0]) {
		return nil
	}
	if p.networkFlags.Changed("wait-bound") && !slices.ContainsFunc(names, limited) {
		return exit.Usagef("%s: --wait-bound has no effect without policy gang or %s: got --policy %s", p.command,
			dqn.PolicyName, strings.Join(names, ","))
	}
	some := slices.ContainsFunc(names, learnt)
	for _, f := range []struct {
		name string
		used bool
	}{{"network", slices.Contains(names, dqn.PolicyName)}, {"device", some}, {"alone", some},
		{"agents", some}} {
		if p.networkFlags.Changed(f.name) && !f.used {
			return exit.Usagef("%s: --%s has no effect without policy %s: got --policy %s", p.command, f.name,
				dqn.PolicyName, strings.Join(names, ","))
		}
	}
	return nil
}

// own returns a copy for another goroutine. The copy has no open policies.
func (p *policies) own() *policies {
	return &policies{command: p.command, network: p.network, device: p.device, alone: p.alone, agents: p.agents,
		explain: p.explain, keep: p.keep, warn: p.warn, bound: p.bound}
}

// warnOnce returns a function that prints warnings, equal ones only once. The function is safe for concurrent use.
func warnOnce(a *cli.App) func(text string) {
	var seen sync.Map
	return func(text string) {
		if _, known := seen.LoadOrStore(text, true); !known {
			a.WarnOf(text)
		}
	}
}

// get returns the policy with a name.
func (p *policies) get(name string) (scheduler.Policy, error) {
	if made, ok := p.made[name]; ok {
		return made, nil
	}
	o := scheduler.Options{Explain: p.explain, Keep: p.keep}
	var policy scheduler.Policy
	var err error
	switch {
	case name == dqn.PolicyName:
		policy, err = p.openNetwork("--network", p.network, o)
	case learnt(name):
		policy, err = p.openNetwork("policy "+name, strings.TrimPrefix(name, networkMark), o)
	case !isPolicy(name):
		return nil, unknownPolicy(p.command, "policy", name)
	default:
		policy, err = scheduler.New(name, o)
	}
	if err != nil && p.keep && policy == nil && !learnt(name) {
		return nil, exit.Usagef("%s: --policy: %w", p.command, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.command, err)
	}
	if p.bound != nil && limited(name) {
		policy = scheduler.Limit(policy, *p.bound, o)
	}
	if p.made == nil {
		p.made = map[string]scheduler.Policy{}
	}
	p.made[name] = policy
	return policy, nil
}

// openNetwork opens policy dqn with the network of a folder, or with the built-in network if folder is "".
// Errors call the folder by the parameter what.
func (p *policies) openNetwork(what, folder string, o scheduler.Options) (policy *dqn.Policy, err error) {
	if p.dev == nil {
		if p.dev, err = devices.Open(p.device, devices.Alone(1)); err != nil {
			return nil, err
		}
	}
	if folder == "" {
		policy, err = dqn.OpenTrained(p.dev, o)
	} else {
		policy, err = p.loadNetwork(what, folder, o)
	}
	if err != nil {
		return nil, err
	}
	if p.keep { // the policy decides for a real cluster
		policy.SetPartial()
	}
	switch {
	case p.agents:
		policy.SetAgents()
	case p.alone:
		policy.SetAlone()
	}
	return policy, nil
}

// loadNetwork opens policy dqn with the newest network of a folder.
func (p *policies) loadNetwork(what, folder string, o scheduler.Options) (*dqn.Policy, error) {
	switch info, err := os.Stat(folder); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, exit.Usagef("%s: the folder %s does not exist; want the --output of schedule train", what, folder)
	case err != nil:
		return nil, exit.Usagef("%s: %w", what, err)
	case !info.IsDir():
		return nil, exit.Usagef("%s: got the file %s, want a folder: the --output of schedule train", what, folder)
	}
	c, skipped, err := checkpoint.Latest(folder)
	if errors.Is(err, checkpoint.ErrNone) {
		if _, missing := os.Stat(filepath.Join(folder, "MANIFEST")); missing == nil {
			c, err = checkpoint.Load(folder) // perhaps the folder is itself a checkpoint
		}
	}
	if err != nil {
		return nil, exit.With(exit.Data, fmt.Errorf("%s: %w", what, err))
	}
	for _, damaged := range skipped {
		p.warn(damaged.String())
	}
	defer c.Close()
	policy, err := dqn.OpenPolicy(p.dev, c, o)
	return policy, exit.With(exit.Data, err)
}

// failed returns the error with which policy dqn failed during its last run. It returns nil for other policies.
func (p *policies) failed(policy scheduler.Policy) error {
	if learnt, ok := unlimited(policy).(*dqn.Policy); ok {
		return learnt.Err()
	}
	return nil
}

// limited reports whether --wait-bound limits the waiting time of jobs under a policy. The other policies order jobs by
// their arrival, or are baselines from the literature.
func limited(name string) bool { return name == "gang" || learnt(name) }

// unlimited returns a policy without its limit on the waiting time of jobs.
func unlimited(policy scheduler.Policy) scheduler.Policy {
	if p, ok := policy.(interface{ Unwrap() scheduler.Policy }); ok {
		return p.Unwrap()
	}
	return policy
}

// waitBound is the value of flag --wait-bound.
type waitBound struct {
	to   **scheduler.Bound
	keep bool // the command knows no earlier waiting times, and never stops a job
}

func (w waitBound) Type() string { return "bound" }

func (w waitBound) String() string {
	if w.to == nil || *w.to == nil {
		return "none"
	}
	if **w.to == scheduler.DefaultBound {
		return "easy"
	}
	return fmt.Sprintf("%g,%g", (*w.to).Factor, (*w.to).Seconds)
}

func (w waitBound) Set(text string) error {
	if text == "none" {
		*w.to = nil
		return nil
	}
	if text == "easy" && !w.keep {
		bound := scheduler.DefaultBound
		*w.to = &bound
		return nil
	}
	var b scheduler.Bound
	factor, seconds, found := strings.Cut(text, ",")
	var faults [2]error
	b.Factor, faults[0] = strconv.ParseFloat(factor, 64)
	b.Seconds, faults[1] = strconv.ParseFloat(seconds, 64)
	if !found || faults[0] != nil || faults[1] != nil || !(b.Factor >= 0 && b.Factor <= 1e9) ||
		!(b.Seconds >= 0 && b.Seconds <= 1e15) {
		words := "easy, none"
		if w.keep {
			words = "none"
		}
		return fmt.Errorf("want %s, or FACTOR,SECONDS with numbers from 0 to 1e9 and from 0 to 1e15, such as 2,3600",
			words)
	}
	*w.to = &b
	return nil
}

// close frees the networks and the device.
func (p *policies) close() error {
	var faults []error
	for _, policy := range p.made {
		if learnt, ok := unlimited(policy).(*dqn.Policy); ok {
			faults = append(faults, learnt.Close())
		}
	}
	if p.dev != nil {
		faults = append(faults, p.dev.Close())
	}
	p.made, p.dev = nil, nil
	return errors.Join(faults...)
}
