package discovery

import "fmt"

// settle converts the claim of a source to an Assignment. It checks that the values agree with each other and with the
// options, and records faults in c.in.
func (c *claim) settle() Assignment {
	in := c.in
	perNode := in.optional(in.options.RanksPerNode, 1, maxRanks, -1, wantPerNode)
	assigned := Assignment{Source: c.source}
	if !c.byNode && !c.pinned && perNode > 1 {
		c.asNode(perNode)
	}
	if c.byNode {
		c.settleNode(&assigned, perNode)
	} else {
		c.settleRank(&assigned, perNode)
	}
	if len(in.faults) == 0 {
		c.checkWorldSize(assigned)
	}
	c.findMaster(&assigned)
	return assigned
}

// asNode changes a claim about a single process of a machine to a claim about a node, which starts the ranks of this
// machine.
func (c *claim) asNode(perNode int) {
	if c.localWorldSize > 1 {
		c.in.fault(c.in.options.RanksPerNode.From, got(c.in.options.RanksPerNode.Text),
			"1 or no value, because %s has already started %d ranks on this machine", c.source, c.localWorldSize)
		return
	}
	c.byNode, c.node, c.nodes, c.perNode = true, c.rank, c.worldSize, perNode
	c.names.node = c.names.rank
	if c.source == "Kubernetes" { // WORLD_SIZE counts ranks
		if c.worldSize%perNode != 0 {
			c.in.fault("WORLD_SIZE", fmt.Sprintf("got %d", c.worldSize), "a multiple of the %d ranks of each pod",
				perNode)
		}
		c.nodes = c.worldSize / perNode
	}
}

func (c *claim) settleNode(assigned *Assignment, perNode int) {
	switch {
	case perNode > 0:
		c.perNode = perNode
	case c.perNode < 0:
		c.perNode = max(c.in.options.Devices, 1)
	}
	assigned.Uncounted = c.nodes > 1
	if c.nodes > 0 && c.node >= c.nodes {
		c.in.fault(c.names.node, fmt.Sprintf("got %d", c.node), "less than the number of nodes, %d (%s)", c.nodes,
			c.source)
	}
	if c.nodes > maxRanks/c.perNode {
		c.in.fault("total number of ranks", fmt.Sprintf("got %d nodes of %d ranks", c.nodes, c.perNode), "at most %d",
			maxRanks)
		return
	}
	assigned.Node, assigned.Nodes = c.node, c.nodes
	assigned.Rank, assigned.WorldSize = c.node*c.perNode, c.nodes*c.perNode
	assigned.LocalRank, assigned.LocalWorldSize = 0, c.perNode
	if c.perNode > 1 {
		assigned.Launch, assigned.LocalRank = true, -1
	}
}

func (c *claim) settleRank(assigned *Assignment, perNode int) {
	in := c.in
	if c.worldSize > 0 && c.rank >= c.worldSize {
		in.fault(c.names.rank, fmt.Sprintf("got %d", c.rank), "less than the number of ranks, %d (%s)", c.worldSize,
			c.source)
	}
	if c.worldSize > 0 && c.localWorldSize > c.worldSize {
		in.fault(c.names.localWorldSize, fmt.Sprintf("got %d", c.localWorldSize),
			"at most the number of ranks, %d (%s)", c.worldSize, c.source)
	}
	locals, of := c.localWorldSize, "ranks on this machine"
	if locals < 0 {
		locals, of = c.worldSize, "ranks"
	}
	if locals > 0 && c.localRank >= locals {
		in.fault(c.names.localRank, fmt.Sprintf("got %d", c.localRank), "less than the number of %s, %d (%s)", of,
			locals, c.source)
	}
	if perNode > 1 && perNode != c.localWorldSize {
		assigned.Warnings = append(assigned.Warnings,
			fmt.Sprintf("%s %d has no effect: %s started this process as a single rank",
				in.options.RanksPerNode.From, perNode, c.source))
	}
	// the launchers of MPI and Slurm combine the output of all ranks
	assigned.OwnOutput = c.localRank < 0 && c.source != "MPI" && c.source != "Slurm"
	if c.localRank < 0 && (c.localWorldSize == 1 || c.worldSize == 1) {
		c.localRank = 0
	}
	if c.localRank < 0 && c.localWorldSize == c.worldSize {
		c.localRank = c.rank
	}
	assigned.Rank, assigned.WorldSize = c.rank, c.worldSize
	assigned.LocalRank, assigned.LocalWorldSize = c.localRank, max(c.localWorldSize, 0)
	assigned.Node, assigned.Nodes = c.node, max(c.nodes, 0)
}

// checkWorldSize compares the source's world size with WORLD_SIZE and the option.
func (c *claim) checkWorldSize(assigned Assignment) {
	for _, size := range []Value{c.in.options.WorldSize, c.in.variable("WORLD_SIZE")} {
		// No check in two cases: Kubeflow's WORLD_SIZE counts pods in some versions and ranks in others, and options
		// override the environment.
		if !size.given() || size.From == "WORLD_SIZE" && (c.source == "Kubeflow or torchrun" || c.source == "options") {
			continue
		}
		n := c.in.number(size, 1, maxRanks, wantWorldSize)
		if n > 0 && n != assigned.WorldSize && n != c.worldSize {
			c.in.fault(size.From, got(size.Text), "%d, the value of %s, or no value", assigned.WorldSize, c.source)
		}
	}
}

// findMaster determines the address of rank 0.
func (c *claim) findMaster(assigned *Assignment) {
	in := c.in
	local := assigned.Nodes == 1 || assigned.WorldSize == 1 || assigned.WorldSize > 0 &&
		assigned.LocalWorldSize == assigned.WorldSize
	// A node that starts all ranks needs no address from the environment. It must not listen on a network because of an
	// old variable.
	alone := c.source == "one process"
	port := firstGiven(in.options.MasterPort, c.petOnly(c.port), in.variableUnless(alone, "MASTER_PORT"), c.port)
	addr := firstGiven(in.options.MasterAddr, c.petOnly(c.addr), in.variableUnless(alone, "MASTER_ADDR"))
	if local && c.storePort && !in.options.MasterAddr.given() {
		addr = Value{} // it is the address of torchrun's store, which other machines may reach
	}
	if !addr.given() && !local {
		addr = c.addr
	}
	switch {
	case addr.given():
		assigned.MasterAddr, assigned.MasterFrom = in.host(addr), addr.From
	case local:
		assigned.MasterAddr, assigned.MasterFrom = loopback, "all ranks are on this machine"
	case assigned.WorldSize > 1 && c.addrWant != "":
		in.fault("MASTER_ADDR", got(""), "%s", c.addrWant)
	}
	assigned.MasterPort = in.optional(port, 1, 65535, defaultPort, "the port of rank 0")
	if alone && !port.given() && !addr.given() {
		assigned.MasterPort = 0
	}
	if c.job != "" && (!port.given() || c.storePort && !in.options.MasterPort.given()) {
		assigned.Ports, assigned.Start = c.job.ports(), c.job.key()
		assigned.MasterPort = assigned.Ports[0]
	}
	if c.storePort && assigned.MasterFrom != "" && len(assigned.Ports) > 0 {
		assigned.MasterFrom += "; port " + in.env["MASTER_PORT"] + " belongs to torchrun's store"
	}
}

// petOnly returns the source's value if the value has precedence over MASTER_ADDR and MASTER_PORT.
func (c *claim) petOnly(value Value) Value {
	if c.source == "Kubeflow or torchrun" {
		return value
	}
	return Value{}
}

func (in *input) variableUnless(skip bool, name string) Value {
	if skip {
		return Value{}
	}
	return in.variable(name)
}

func firstGiven(values ...Value) Value {
	for _, value := range values {
		if value.given() {
			return value
		}
	}
	return Value{}
}
