package policies

import (
	"fmt"
	"strings"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/hybrid"
)

// Makers are the built-in policies, the baseline first.
func Makers() []balancer.Maker {
	return []balancer.Maker{
		{Name: "none", Doc: "equal shares", New: newNone, Traits: balancer.Traits{Static: true, Scoreless: true}},
		{Name: "proportional", Doc: "shares by the static compute score of each rank", New: newProportional,
			Traits: balancer.Traits{Static: true, WithoutScores: "all shares stay equal, as with policy none"}},
		{Name: "dynamic", Doc: "shares by compute score and measured speed, utilization and memory", New: newDynamic,
			Traits: balancer.Traits{
				WithoutScores: "it starts with equal shares and uses the same static score for all ranks"}},
		{Name: "hybrid", Doc: "starts like proportional, then fits step-time curves during training and computes the shares with the shortest step from them",
			New: hybrid.New, Traits: balancer.Traits{Learns: true, Objectives: true}},
	}
}

// New creates one of the policies of [Makers].
func New(name string, o balancer.Options) (balancer.Policy, error) {
	for _, m := range Makers() {
		if m.Name == name {
			return m.Make(o)
		}
	}
	return nil, fmt.Errorf("policy: got %q, want %s", name, strings.Join(Names(), ", "))
}

// Names returns the names of [Makers].
func Names() []string {
	var names []string
	for _, m := range Makers() {
		names = append(names, m.Name)
	}
	return names
}
