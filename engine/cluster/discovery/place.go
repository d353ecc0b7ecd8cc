package discovery

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

const (
	maxRanks    = 1 << 20 // more is a typing error
	defaultPort = 29500   // what torchrun takes

	loopback = "127.0.0.1"
)

// Value is a setting of the user: its text, and what the user calls it. An empty text means that it was not given.
type Value struct {
	Text string // "4"
	From string // "--nproc-per-node"
}

// Options are what the command line or a file says. All of them may be left out.
type Options struct {
	Rank, WorldSize           Value
	LocalRank, LocalWorldSize Value
	NodeRank, Nodes           Value // this machine's number, of how many: each starts ranks of its own
	RanksPerNode              Value
	MasterAddr, MasterPort    Value

	// Devices is how many ranks a node starts when nobody says it, one for each local device; 0 means 1.
	Devices int
}

// Place is where a process stands in a run.
type Place struct {
	Source string // who decided, as the package documentation names them

	// Launch says that this process is no rank but starts those of its node: Rank is the first of them,
	// LocalWorldSize their number, and LocalRank is -1.
	Launch bool

	Rank           int
	WorldSize      int
	LocalRank      int // -1: unknown; package rendezvous counts the ranks of each host
	LocalWorldSize int // 0: unknown

	// OwnOutput says that no launcher has numbered this rank among those of its machine: it was started by hand or is a pod's only process, so
	// its standard output and error are read apart from those of other ranks.
	OwnOutput bool

	Node  int // -1: unknown
	Nodes int // 0: unknown

	// Uncounted says that each node knows only its own number of ranks. Rank and WorldSize are those of nodes with
	// LocalWorldSize ranks each, until the nodes have counted their ranks (rendezvous.CountRanks) and Numbered is called.
	Uncounted bool

	MasterAddr string // host of rank 0
	MasterPort int    // 0: any free one, all ranks being started by this process
	MasterFrom string // what said so

	// Ports are set where no port was given and the launcher tells its starts apart: rank 0 listens on the first of them that is free, which
	// MasterPort is most likely. Start is then equal on all ranks of the start, and another number for any other start.
	Ports []int
	Start uint64

	Passed   []Passed // who did not decide, in the order asked
	Warnings []string // settings that were given but have no effect
}

// Passed is a source that did not decide, and why.
type Passed struct{ Source, Reason string }

// Numbered is the place after the nodes have counted their ranks: first is the number of this node's first rank, total the
// number of all ranks.
func (p Place) Numbered(first, total int) Place {
	p.Rank, p.WorldSize, p.Uncounted = first, total, false
	return p
}

// Master is the address of rank 0 as host:port, with brackets around IPv6.
func (p Place) Master() string { return net.JoinHostPort(p.MasterAddr, strconv.Itoa(p.MasterPort)) }

// String says in one line who this process is and who decided that.
func (p Place) String() string {
	var text strings.Builder
	switch {
	case p.Launch && p.Nodes > 1:
		fmt.Fprintf(&text, "node %d of %d, starts ranks %d to %d of %d", p.Node, p.Nodes, p.Rank, p.Rank+p.LocalWorldSize-1, p.WorldSize)
	case p.Launch:
		fmt.Fprintf(&text, "starts %d ranks", p.LocalWorldSize)
	default:
		fmt.Fprintf(&text, "rank %d of %d", p.Rank, p.WorldSize)
		if p.LocalRank >= 0 && p.LocalWorldSize > 0 {
			fmt.Fprintf(&text, " (local rank %d of %d)", p.LocalRank, p.LocalWorldSize)
		} else if p.LocalRank >= 0 {
			fmt.Fprintf(&text, " (local rank %d)", p.LocalRank)
		}
	}
	fmt.Fprintf(&text, ", decided by %s", p.Source)
	if p.WorldSize > 1 && p.MasterPort > 0 {
		fmt.Fprintf(&text, ", rank 0 at %s (%s)", p.Master(), p.MasterFrom)
	}
	return text.String()
}

// Find tells who this process is. environment is a list of NAME=value, as os.Environ gives it; where a name comes
// twice the last counts. The error is an *Error.
func Find(options Options, environment []string) (Place, error) {
	env := make(map[string]string, len(environment))
	for _, entry := range environment {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = value
		}
	}
	var winner *claim
	var passed []Passed
	for _, source := range sources {
		in := &input{env: env, options: options}
		found, reason := source.find(in)
		if reason != "" {
			passed = append(passed, Passed{source.name, reason})
			continue
		}
		found.source, found.in = source.name, in
		if winner == nil {
			winner = &found
			continue
		}
		passed = append(passed, Passed{source.name, found.summary() + ", but " + winner.source + " comes first"})
	}
	place := winner.settle()
	place.Passed = passed
	if len(winner.in.faults) > 0 {
		return Place{}, &Error{Source: winner.source, Faults: winner.in.faults}
	}
	return place, nil
}

// summary says what a source that was not needed would have answered.
func (c *claim) summary() string {
	switch {
	case len(c.in.faults) > 0:
		return c.in.faults[0].String()
	case c.byNode:
		return fmt.Sprintf("gives node %d of %d", c.node, c.nodes)
	case c.worldSize == 1:
		return "says this process is alone"
	}
	return fmt.Sprintf("says rank %d of %d", c.rank, c.worldSize)
}
