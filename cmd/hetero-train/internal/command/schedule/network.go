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

// policyNames are the names of all policies.
func policyNames() []string { return append(slices.Clone(scheduler.Names()), dqn.PolicyName) }

// policyUsage is the help text of flag --policy.
func policyUsage(before string) string {
	return fmt.Sprintf("%s: `%s`", before, strings.Join(policyNames(), "|"))
}

// policies creates policies by name, and keeps them for later runs. It is not safe for concurrent use.
type policies struct {
	command string // for errors
	network string // folder with checkpoints of policy dqn; "" is the built-in network
	device  string // device that computes the network
	explain bool
	keep    bool // never stop a running job
	warn    func(text string)

	bound *scheduler.Bound // limit on the waiting time of jobs under gang and dqn; nil: none

	networkFlags *pflag.FlagSet // that have --network and --device; nil: none

	made map[string]scheduler.Policy
	dev  device.Device
}

// addNetwork adds the flags of policies gang and dqn.
func (p *policies) addNetwork(flags *pflag.FlagSet) {
	p.networkFlags = flags
	bound := scheduler.DefaultBound
	p.bound = &bound
	flags.Var(waitBound{&p.bound}, "wait-bound", "`FACTOR,SECONDS|none`: under gang and dqn, the job that has waited longest beyond FACTOR times its running time plus SECONDS gets a reservation")
	flags.StringVar(&p.network, "network", "", "`FOLDER` with a network of schedule train, or with one of its checkpoints, for policy dqn; default: the built-in network")
	flags.StringVar(&p.device, "device", "cpu",
		"device that computes the network of policy dqn: `auto|cpu|cuda|reference`")
}

// checkNetwork refuses --network, --device and --wait-bound if no policy uses them.
func (p *policies) checkNetwork(names ...string) error {
	if !slices.Contains(policyNames(), names[0]) {
		return nil
	}
	if p.networkFlags.Changed("wait-bound") && !slices.ContainsFunc(names, limited) {
		return exit.Usagef("%s: --wait-bound has no effect without policy gang or %s: got --policy %s", p.command,
			dqn.PolicyName, strings.Join(names, ","))
	}
	if slices.Contains(names, dqn.PolicyName) {
		return nil
	}
	for _, flag := range []string{"network", "device"} {
		if p.networkFlags.Changed(flag) {
			return exit.Usagef("%s: --%s has no effect without policy %s: got --policy %s", p.command, flag,
				dqn.PolicyName, strings.Join(names, ","))
		}
	}
	return nil
}

// own returns a copy without open policies, for another goroutine.
func (p *policies) own() *policies {
	return &policies{command: p.command, network: p.network, device: p.device, explain: p.explain, keep: p.keep,
		warn: p.warn, bound: p.bound}
}

// warnOnce returns a function that prints each different warning only once. It is safe for concurrent use.
func warnOnce(a *cli.App) func(text string) {
	var seen sync.Map
	return func(text string) {
		if _, known := seen.LoadOrStore(text, true); !known {
			a.WarnOf(text)
		}
	}
}

// get returns a policy.
func (p *policies) get(name string) (scheduler.Policy, error) {
	if made, ok := p.made[name]; ok {
		return made, nil
	}
	o := scheduler.Options{Explain: p.explain, Keep: p.keep}
	var policy scheduler.Policy
	var err error
	switch {
	case name == dqn.PolicyName:
		policy, err = p.learnt(o)
	case !slices.Contains(policyNames(), name):
		return nil, exit.Usagef("%s: --policy: unknown policy: got %q, want one of %s", p.command, name,
			strings.Join(policyNames(), ", "))
	default:
		policy, err = scheduler.New(name, o)
	}
	if err != nil && p.keep && policy == nil && name != dqn.PolicyName {
		return nil, exit.Usagef("%s: --policy: %w", p.command, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.command, err)
	}
	if p.bound != nil && limited(name) {
		policy = scheduler.Limit(policy, *p.bound, p.explain)
	}
	if p.made == nil {
		p.made = map[string]scheduler.Policy{}
	}
	p.made[name] = policy
	return policy, nil
}

func (p *policies) learnt(o scheduler.Options) (*dqn.Policy, error) {
	var err error
	if p.dev == nil {
		if p.dev, err = devices.Open(p.device, devices.Alone(1)); err != nil {
			return nil, err
		}
	}
	if p.network == "" {
		return dqn.OpenTrained(p.dev, o)
	}
	switch info, err := os.Stat(p.network); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, exit.Usagef("--network: the folder %s does not exist; want the --output of schedule train",
			p.network)
	case err != nil:
		return nil, exit.Usagef("--network: %w", err)
	case !info.IsDir():
		return nil, exit.Usagef("--network: got the file %s, want a folder: the --output of schedule train", p.network)
	}
	c, skipped, err := checkpoint.Latest(p.network)
	if errors.Is(err, checkpoint.ErrNone) {
		if _, missing := os.Stat(filepath.Join(p.network, "MANIFEST")); missing == nil {
			c, err = checkpoint.Load(p.network) // the folder of one checkpoint
		}
	}
	if err != nil {
		return nil, exit.With(exit.Data, fmt.Errorf("--network: %w", err))
	}
	for _, damaged := range skipped {
		p.warn(damaged.String())
	}
	defer c.Close()
	policy, err := dqn.OpenPolicy(p.dev, c, o)
	return policy, exit.With(exit.Data, err)
}

// failed returns the failure of a learnt policy during its last run.
func (p *policies) failed(policy scheduler.Policy) error {
	if learnt, ok := unlimited(policy).(*dqn.Policy); ok {
		return learnt.Err()
	}
	return nil
}

// limited reports whether a policy limits the waiting time of jobs. The other policies order jobs by their arrival, or
// are baselines from the literature.
func limited(name string) bool { return name == "gang" || name == dqn.PolicyName }

// unlimited returns a policy without its bound.
func unlimited(policy scheduler.Policy) scheduler.Policy {
	if p, ok := policy.(interface{ Unwrap() scheduler.Policy }); ok {
		return p.Unwrap()
	}
	return policy
}

// waitBound is the value of flag --wait-bound.
type waitBound struct{ to **scheduler.Bound }

func (w waitBound) Type() string { return "bound" }

func (w waitBound) String() string {
	if w.to == nil || *w.to == nil {
		return "none"
	}
	return fmt.Sprintf("%g,%g", (*w.to).Factor, (*w.to).Seconds)
}

func (w waitBound) Set(text string) error {
	if text == "none" {
		*w.to = nil
		return nil
	}
	var b scheduler.Bound
	factor, seconds, found := strings.Cut(text, ",")
	var faults [2]error
	b.Factor, faults[0] = strconv.ParseFloat(factor, 64)
	b.Seconds, faults[1] = strconv.ParseFloat(seconds, 64)
	if !found || faults[0] != nil || faults[1] != nil || !(b.Factor >= 0 && b.Factor <= 1e9) ||
		!(b.Seconds >= 0 && b.Seconds <= 1e15) {
		return errors.New("want none, or FACTOR,SECONDS with numbers from 0 to 1e9 and from 0 to 1e15, such as 2,3600")
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
