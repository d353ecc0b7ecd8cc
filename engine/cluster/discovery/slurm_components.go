package discovery

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// slurmComponents corrects a claim in a step that spans several components of a heterogeneous job (srun
// --het-group=0,1). It also detects other steps whose tasks are not in the order of the step's node list.
//
// Slurm numbers the tasks and nodes of a heterogeneous step component by component. It sorts the step's node list, and
// the list of tasks per node, by the names of the nodes. The first host of the list is therefore not always the host of
// rank 0. The entry SLURM_NODEID of the task list may belong to another node. testdata/slurm has the variables that
// Slurm 22.05 sets.
func (in *input) slurmComponents(c *claim, listName string, hosts []string) {
	if listName != "SLURM_STEP_NODELIST" || len(hosts) < 2 || len(in.faults) > 0 {
		return
	}
	order, groups := in.slurmOrder(hosts)
	at, err := wholeNumber(in.env["SLURM_NODEID"])
	if err != nil {
		return
	}
	name := in.env["SLURMD_NODENAME"]
	switch {
	case at >= len(order), name != "" && order[at] != name, name != "" && c.rank == 0 && order[0] != name:
		// No variable gives the order of the tasks in two kinds of steps. One is srun --distribution=arbitrary, the
		// other has several components inside an ordinary job (srun A : B).
		c.addr, c.addrWant = Value{}, fmt.Sprintf("the host of rank 0, because the tasks of this step do not follow "+
			"SLURM_STEP_NODELIST: rank %d is on node %s; a heterogeneous job (#SBATCH hetjob) needs no address", c.rank,
			cmp.Or(name, strconv.Itoa(at)))
		in.slurmLocal(c, at, len(hosts))
	case groups > 1:
		c.addr = Value{order[0], "first host of the first component in SLURM_STEP_NODELIST"}
		in.slurmLocal(c, at, len(hosts))
	}
}

// slurmOrder returns the hosts of a step in the order of their node numbers (nil if unknown), and the number of
// components in the step.
func (in *input) slurmOrder(hosts []string) (order []string, groups int) {
	size := in.firstOf("SLURM_HET_SIZE", "SLURM_PACK_SIZE") // Slurm before 20.02 says PACK
	n, err := wholeNumber(size.Text)
	if err != nil || n < 2 || n > maxHosts {
		return hosts, 1
	}
	step := make(map[string]bool, len(hosts))
	for _, host := range hosts {
		step[host] = true
	}
	for group := range n {
		list := in.firstOf(fmt.Sprint("SLURM_JOB_NODELIST_HET_GROUP_", group),
			fmt.Sprint("SLURM_JOB_NODELIST_PACK_GROUP_", group))
		members, err := expandHosts(list.Text)
		if err != nil {
			return nil, n // the order is unknown
		}
		before := len(order)
		for _, host := range members {
			if step[host] {
				order = append(order, host)
			}
		}
		if len(order) > before {
			groups++
		}
	}
	if len(order) != len(hosts) {
		return nil, n
	}
	return order, groups
}

// slurmLocal gets the number of local tasks from SLURM_GTIDS, the list of their task numbers, because the nodes in
// SLURM_STEP_TASKS_PER_NODE have another order.
func (in *input) slurmLocal(c *claim, node, nodes int) {
	c.node, c.nodes = node, nodes
	ids := strings.Split(in.env["SLURM_GTIDS"], ",")
	if slices.Index(ids, in.env["SLURM_PROCID"]) == c.localRank && c.localRank >= 0 {
		c.localWorldSize, c.names.localWorldSize = len(ids), "SLURM_GTIDS"
		return
	}
	c.localRank, c.localWorldSize = -1, -1 // unknown: package rendezvous will number the ranks of the machine
}
