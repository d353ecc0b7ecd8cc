package discovery

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

const (
	maxRanks    = 1 << 20 // a larger number is probably a typing error
	defaultPort = 29500   // torchrun's default

	loopback = "127.0.0.1"
)

// Value is a setting of the user: its text, and the name of the flag or variable. An empty text means that the setting
// is missing.
type Value struct {
	Text string // text of the setting, such as "4"
	From string // flag or variable, such as "--nproc-per-node"
}

// Options are settings from the command line or from a file. All of them are optional.
type Options struct {
	Rank, WorldSize           Value
	LocalRank, LocalWorldSize Value
	// this machine's number and the number of machines; each machine starts its own ranks
	NodeRank, Nodes        Value
	RanksPerNode           Value
	MasterAddr, MasterPort Value

	// Devices is the default number of ranks of a node: one for each local device. 0 means 1.
	Devices int

	// Resources is the content of SageMaker's file resourceconfig.json; its From is the path. In a SageMaker job, the
	// caller must read this file. If that fails, the caller must set ResourcesFault to the reason, such as "is
	// missing". Find reports the reason only if no other source gives the rank.
	Resources      Value
	ResourcesFault string

	// Shell is the environment with which an interactive shell above this process started (ShellEnvironment). If a
	// launcher's variables are in Shell, the launcher has started the shell, not this process.
	Shell []string
}

// Assignment describes the position of a process in a run.
type Assignment struct {
	Source string // the source that decided, as named in the package comment

	// Launch means that this process is not a rank but starts the ranks of its node. Rank is then the node's first
	// rank, LocalWorldSize is the number of its ranks, and LocalRank is -1.
	Launch bool

	Rank           int
	WorldSize      int
	LocalRank      int // -1: unknown; package rendezvous then numbers the ranks of each host
	LocalWorldSize int // 0: unknown

	// OwnOutput means that no launcher combines this rank's output with the output of other ranks. The user started the
	// rank by hand, or it is the only process of a pod.
	OwnOutput bool

	Node  int // number of this node; -1: unknown
	Nodes int // number of nodes; 0: unknown

	// Uncounted means that each node knows only its own number of ranks. Until the nodes have counted their ranks
	// (rendezvous.CountRanks) and Numbered is called, Rank and WorldSize assume LocalWorldSize ranks on each node.
	Uncounted bool

	MasterAddr string // host of rank 0
	MasterPort int    // port of rank 0; 0: any free port, because this process starts all ranks
	MasterFrom string // the source that gave the address

	// Ports and Start are set if no port was given and the launcher gives each start of the run an identity. Rank 0
	// listens on the first free port of Ports, usually MasterPort. Start is the same on all ranks of a start, and
	// differs between starts.
	Ports []int
	Start uint64

	Passed   []Passed // earlier sources that did not decide, in order
	Warnings []string // settings that were given but have no effect
}

// Passed is a source that did not decide, with the reason.
type Passed struct{ Source, Reason string }

// Numbered returns the assignment after the nodes have counted their ranks. The parameter first is this node's first
// rank, and total is the number of all ranks.
func (p Assignment) Numbered(first, total int) Assignment {
	p.Rank, p.WorldSize, p.Uncounted = first, total, false
	return p
}

// Master returns the address of rank 0 as host:port, with brackets around IPv6 addresses.
func (p Assignment) Master() string {
	return net.JoinHostPort(p.MasterAddr, strconv.Itoa(p.MasterPort))
}

// String describes the assignment, and the source that decided, in one line.
func (p Assignment) String() string {
	var text strings.Builder
	switch {
	case p.Launch && p.Nodes > 1:
		fmt.Fprintf(&text, "node %d of %d, starts ranks %d to %d of %d", p.Node, p.Nodes, p.Rank,
			p.Rank+p.LocalWorldSize-1, p.WorldSize)
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

// Find determines the assignment of this process. The parameter environment has the form of os.Environ. If a name
// occurs several times, the last entry applies. The error is an *Error.
func Find(options Options, environment []string) (Assignment, error) {
	env, shell := variables(environment), variables(options.Shell)
	var winner *claim
	var passed []Passed
	for _, source := range sources {
		in := &input{env: env, shell: shell, options: options}
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
	assigned := winner.settle()
	assigned.Passed = passed
	if text := winner.in.otherTasks(winner.source); text != "" {
		assigned.Warnings = append(assigned.Warnings, text)
	}
	if len(winner.in.faults) > 0 {
		return Assignment{}, &Error{Source: winner.source, Faults: winner.in.faults}
	}
	return assigned, nil
}

func variables(environment []string) map[string]string {
	env := make(map[string]string, len(environment))
	for _, entry := range environment {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = value
		}
	}
	return env
}

// summary describes the position that a source gives although it did not decide, or its first fault.
func (c *claim) summary() string {
	switch {
	case len(c.in.faults) > 0:
		return c.in.faults[0].String()
	case c.byNode:
		return fmt.Sprintf("gives node %d of %d", c.node, c.nodes)
	case c.worldSize == 1:
		return "describes a run of one process"
	}
	return fmt.Sprintf("gives rank %d of %d", c.rank, c.worldSize)
}
