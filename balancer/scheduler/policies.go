package scheduler

import (
	"fmt"
	"slices"
	"strings"
)

// policies lists the policies of this package, in the order of their documentation.
var policies = []struct {
	name string
	make func(Options) Policy
}{
	{"fcfs", func(o Options) Policy { return &fcfs{placer{explain: o.Explain}} }},
	{"easy", func(o Options) Policy { return &easy{backfill: backfill{placer: placer{explain: o.Explain}}} }},
	{"static", func(o Options) Policy { return &static{placer: placer{explain: o.Explain}} }},
	{"rule", func(o Options) Policy { return &rule{placer: placer{explain: o.Explain}} }},
	{"srf", func(o Options) Policy { return &srf{placer: placer{explain: o.Explain}} }},
	{"srpt", func(o Options) Policy { return &srpt{preemptor: newPreemptor(o)} }},
	{"las", func(o Options) Policy { return &las{preemptor: newPreemptor(o)} }},
	{"allox", func(o Options) Policy { return &allox{placer: placer{explain: o.Explain}} }},
	{"maxmin", func(o Options) Policy { return &maxmin{placer: placer{explain: o.Explain}, byType: o.TypeByType} }},
	{"sia", func(o Options) Policy { return &sia{placer: placer{explain: o.Explain}, keep: o.Keep} }},
	{"gang", func(o Options) Policy {
		return &gang{placer: placer{explain: o.Explain}, keep: o.Keep, short: o.ShortPlan}
	}},
}

// Names lists the policies of this package.
func Names() []string {
	var names []string
	for _, p := range policies {
		names = append(names, p.name)
	}
	return names
}

// stops lists the policies that cannot keep running jobs (Options.Keep).
var stops = []string{"srpt", "las", "maxmin"}

// Stops reports whether a policy needs to stop running jobs, so that New refuses [Options.Keep].
func Stops(name string) bool { return slices.Contains(stops, name) }

// New returns a policy of this package by its name.
func New(name string, o Options) (Policy, error) {
	for _, p := range policies {
		if p.name == name {
			if o.Keep && Stops(name) {
				return nil,
					fmt.Errorf(
						"policy %s stops running jobs, so it does not support this setting: choose another policy",
						name)
			}
			return p.make(o), nil
		}
	}
	return nil, fmt.Errorf("unknown scheduling policy: got %q, want one of %s", name, strings.Join(Names(), ", "))
}
