package dqn

import "errors"

// agents decide for a policy, with one agent for each machine. All agents have the same network. An agent sees the
// queue, the facts of the cluster and the GPUs of its own machine. Its bid is the largest value of a start on its
// machine, minus the value of waiting. The agent with the largest bid acts. This repeats until no bid is above 0.
//
// For a job that fits on no single machine, an agent also uses free GPUs of the same type on other machines. The pairs
// of this job then also describe these GPUs, and a start takes them.
//
// For all other jobs, the agents of a real cluster could run on their machines and exchange only bids. Here, the
// observation of an agent is a part of the observation of the whole cluster, and one pass computes the bids of several
// agents.
type agents struct {
	shape    Shape   // size of the observation of one agent
	machines [][]int // rows of the agent's machine, by agent
	seen     []*Observation
	whole    []int // index into machines, by agent of the batch
	pass     *pass
}

// agentBatch is the number of agents whose bids one pass of the network computes.
const agentBatch = 16

// reset prepares the agents for the cluster of an encoder.
func (a *agents) reset(n *encoder, net *net) (err error) {
	a.machines = a.machines[:0]
	at := make([]int, len(n.cluster.Machines)) // number of the agent + 1, by machine
	rows := 0
	for row, g := range n.groups {
		if at[g.machine] == 0 {
			a.machines = append(a.machines, nil)
			at[g.machine] = len(a.machines)
		}
		mine := &a.machines[at[g.machine]-1]
		*mine = append(*mine, row)
		rows = max(rows, len(*mine))
	}
	shape := n.shape
	if shape.Rows = rows; a.pass != nil && shape == a.shape {
		return nil
	}
	if a.pass != nil {
		err = a.pass.close()
		a.pass = nil
	}
	a.shape, a.seen, a.whole = shape, nil, make([]int, 0, agentBatch)
	for range agentBatch {
		a.seen = append(a.seen, NewObservation(shape))
	}
	if err == nil {
		a.pass, err = net.newPass(net.online, shape, agentBatch, false)
	}
	return err
}

// decide returns the action of the agent with the largest bid, as an action of the whole cluster, and the bid. The
// parameter o is the observation of the whole cluster.
func (a *agents) decide(n *encoder, o *Observation) (action int, bid float32, err error) {
	action, a.whole = -1, a.whole[:0] // a failed pass has left agents in whole
	for agent := range a.machines {
		if a.view(n, o, agent, a.seen[len(a.whole)]) {
			a.whole = append(a.whole, agent)
		}
		if len(a.whole) < agentBatch && (agent < len(a.machines)-1 || len(a.whole) == 0) {
			continue
		}
		for i := range a.whole {
			a.pass.set(i, a.seen[i].State)
		}
		if err := a.pass.forward(); err != nil {
			return -1, 0, err
		}
		for i, agent := range a.whole {
			values := a.pass.value(i)
			start := best(values[:a.shape.Wait()], a.seen[i].Mask[:a.shape.Wait()])
			if gain := values[start] - values[a.shape.Wait()]; action < 0 || gain > bid {
				way, row := start/a.shape.Rows, start%a.shape.Rows
				action, bid = way*n.shape.Rows+a.machines[agent][row], gain
			}
		}
		a.whole = a.whole[:0]
	}
	if action < 0 {
		return -1, 0, errors.New("no agent has a possible action")
	}
	return action, bid, nil
}

// view writes the observation of an agent, and reports whether a start on its machine is possible.
func (a *agents) view(n *encoder, o *Observation, agent int, to *Observation) (possible bool) {
	clear(to.State)
	clear(to.Mask)
	slots, all, own, gpus := n.shape.Slots, n.shape.Rows*n.shape.Slots, a.shape.Rows*a.shape.Slots, 0
	for k, row := range a.machines[agent] {
		gpus += n.ups[row]
		for way := range n.shape.Jobs * n.shape.Ways {
			from, at := way*n.shape.Rows+row, way*a.shape.Rows+k
			copy(to.Pairs[at*a.shape.Pair:(at+1)*a.shape.Pair], o.Pairs[from*a.shape.Pair:])
			to.Mask[at] = o.Mask[from]
			possible = possible || o.Mask[from]
		}
	}
	if !possible {
		return false
	}
	for k, row := range a.machines[agent] {
		for channel := range n.shape.Channels {
			copy(to.Image[channel*own+k*slots:][:slots], o.Image[channel*all+row*slots:])
		}
		for slot := range n.ups[row] {
			to.Image[WeightCluster*own+k*slots+slot] = 1 / float32(gpus)
		}
	}
	copy(to.Facts, o.Facts)
	to.Mask[a.shape.Wait()] = o.Mask[n.shape.Wait()]
	return true
}
