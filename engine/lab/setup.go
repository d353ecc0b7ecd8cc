package lab

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
)

// Environment variables of a rank in the testbed.
const (
	GroupVariable     = "HETERO_LAB_CGROUP"
	CPUsVariable      = "HETERO_LAB_CPUS"
	SlowdownVariable  = "HETERO_LAB_SLOWDOWN"
	InterfaceVariable = "HETERO_LAB_INTERFACE"
	LinkVariable      = "HETERO_LAB_LINK"
)

const maxSlowdown = 1000 // limit of device.Slowable on the CPU

// Setup is the setup of the testbed for one rank.
type Setup struct {
	Group     string  // folder of the rank's CPU control group; "": none
	CPUs      float64 // quota of the group in CPUs; 0: unknown
	Slowdown  float64 // simulated slowdown factor of the device; 1: none
	Interface string  // network interface that only this rank uses; "": none
	Link      string  // rate limit of the interface in tc's syntax; "": no limit
}

var rate = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?[kmgt]?bit$`)

// Find reads the setup from the environment. lookup is os.LookupEnv, except in tests. An empty variable counts as
// unset. Outside the testbed, Find returns a Setup without a group, a slowdown and an interface.
func Find(lookup func(name string) (string, bool)) (Setup, error) {
	p := Setup{Slowdown: 1}
	text := func(name string) string {
		value, _ := lookup(name)
		return value
	}
	p.Group, p.Interface, p.Link = text(GroupVariable), text(InterfaceVariable), text(LinkVariable)
	if p.Link != "" && !rate.MatchString(p.Link) {
		return p, fmt.Errorf("environment variable %s: got %q, want a rate in the format of tc, for example 100mbit",
			LinkVariable, p.Link)
	}
	if p.Link != "" && p.Interface == "" {
		return p,
			fmt.Errorf(
				"environment variable %s: got %q, but %s is not set, want the network interface of the limit in it",
				LinkVariable, p.Link, InterfaceVariable)
	}
	for _, v := range []struct {
		name        string
		field       *float64
		above, most float64
		want        string
	}{
		{CPUsVariable, &p.CPUs, 0, 1 << 16, "a number of CPUs above 0"},
		{SlowdownVariable, &p.Slowdown, math.Nextafter(1, 0), maxSlowdown, "a factor from 1 to 1000"},
	} {
		value := text(v.name)
		if value == "" {
			continue
		}
		f, err := strconv.ParseFloat(value, 64)
		if err != nil || !(f > v.above && f <= v.most) {
			return p, fmt.Errorf("environment variable %s: got %q, want %s", v.name, value, v.want)
		}
		*v.field = f
	}
	return p, nil
}
