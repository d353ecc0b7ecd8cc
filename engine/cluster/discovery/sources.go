package discovery

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// claim is the information from one source. Unknown numbers are -1.
type claim struct {
	source string
	in     *input

	rank, worldSize           int
	localRank, localWorldSize int

	byNode      bool // the source gives the number of a node: rank and worldSize are unused
	node, nodes int
	perNode     int // number of ranks of this node

	pinned bool // this process is one rank, even if RanksPerNode is set

	addr, port Value  // the source's address of rank 0
	job        job    // identity of the start; "": the source gives none
	storePort  bool   // MASTER_PORT belongs to the launcher's own store
	addrWant   string // Fault.Want if the address of rank 0 is unknown; "": a fault is already recorded

	names claimNames
}

// claimNames are the names of the variables that gave the claim's numbers. Faults that settle finds show these names.
type claimNames struct{ rank, localRank, localWorldSize, node string }

func unknown() claim {
	return claim{rank: -1, worldSize: -1, localRank: -1, localWorldSize: -1, node: -1, nodes: -1, perNode: -1,
		addrWant: "the host of rank 0"}
}

// readRank reads the rank of this process; local and localSize are optional.
func (c *claim) readRank(in *input, rank, size, local, localSize Value) {
	c.rank = in.number(rank, 0, maxRanks, wantRank)
	c.worldSize = in.number(size, 1, maxRanks, wantWorldSize)
	c.localRank = in.optional(local, 0, maxRanks, -1, wantLocal)
	c.localWorldSize = in.optional(localSize, 1, maxRanks, -1, wantLocalSize)
	c.names = claimNames{rank: rank.From, localRank: local.From, localWorldSize: localSize.From}
}

// source is one possible origin of the rank. The function find returns a claim, or the reason why the source does not
// apply.
type source struct {
	name string
	find func(in *input) (found claim, reason string)
}

// sources lists the sources in the order in which Find tries them. The last one always returns a claim.
var sources = []source{
	{"options", fromOptions},
	{"environment", fromEnvironment},
	{"Kubeflow or torchrun", fromPET},
	{"MPI", fromMPI},
	{"Slurm", fromSlurm},
	{"SageMaker", fromSageMaker},
	{"Kubernetes", fromKubernetes},
	{"one process", fromNobody},
}

const (
	wantRank      = "the number of this rank"
	wantWorldSize = "the number of ranks"
	wantLocal     = "the number of this rank on its machine"
	wantLocalSize = "the number of ranks on this machine"
	wantNode      = "the number of this node"
	wantNodes     = "the number of nodes"
	wantPerNode   = "the number of ranks to start on this node"
)

func fromOptions(in *input) (claim, string) {
	o, c := in.options, unknown()
	switch {
	case o.Rank.given() || o.LocalRank.given():
		c.readRank(in, o.Rank.or("rank option"), o.WorldSize.or("world size option"), o.LocalRank, o.LocalWorldSize)
		c.pinned = true
	case o.NodeRank.given() || o.Nodes.given():
		c.byNode = true
		c.nodes = in.number(o.Nodes.or("nodes option"), 1, maxRanks, wantNodes)
		c.node = 0
		if o.NodeRank.given() || c.nodes != 1 {
			c.node = in.number(o.NodeRank.or("node rank option"), 0, maxRanks, wantNode)
			c.names.node = o.NodeRank.From
		}
	default:
		return c, "no rank and no node number is given"
	}
	return c, ""
}

// or returns v, or an empty Value with this name if v was not given.
func (v Value) or(name string) Value {
	if v.From == "" {
		v.From = name
	}
	return v
}

func fromEnvironment(in *input) (claim, string) {
	c := unknown()
	rank, local := in.variable("RANK"), in.variable("LOCAL_RANK")
	if !rank.given() && !local.given() {
		return c, "RANK is not set"
	}
	if n, err := wholeNumber(in.env["PET_NPROC_PER_NODE"]); err == nil && n > 1 && !local.given() &&
		rank.Text == in.env["PET_NODE_RANK"] {
		return c, fmt.Sprintf("RANK is the number of the pod (PET_NPROC_PER_NODE is %d, LOCAL_RANK is not set)", n)
	}
	c.readRank(in, rank, in.variable("WORLD_SIZE"), local, in.variable("LOCAL_WORLD_SIZE"))
	c.pinned = true
	c.job, c.storePort = in.torchrunJob()
	return c, ""
}

// fromPET reads the PET_* variables, with which Kubeflow configures torchrun.
func fromPET(in *input) (claim, string) {
	c := unknown()
	node, nodes := in.variable("PET_NODE_RANK"), in.variable("PET_NNODES")
	if !node.given() && !nodes.given() {
		return c, "PET_NODE_RANK is not set"
	}
	c.byNode, c.names.node = true, node.From
	c.node = in.number(node, 0, maxRanks, wantNode)
	if least, most, isRange := strings.Cut(nodes.Text, ":"); isRange && least == most {
		nodes.Text = least
	}
	c.nodes = in.number(nodes, 1, maxRanks, wantNodes+", or a range with equal ends")
	switch per := in.variable("PET_NPROC_PER_NODE"); per.Text {
	case "", "auto", "gpu", "cpu": // one rank per device
	default:
		c.perNode = in.number(per, 1, maxRanks, wantPerNode+" or auto, gpu, cpu")
	}
	c.addr, c.port = in.variable("PET_MASTER_ADDR"), in.variable("PET_MASTER_PORT")
	return c, ""
}

// mpiFamilies has, for each family of MPI launchers, the names of the variables for rank, size, local rank and local
// size.
var mpiFamilies = [][4][]string{
	{{"PMI_RANK"}, {"PMI_SIZE"}, {"PMI_LOCAL_RANK", "MPI_LOCALRANKID"}, {"PMI_LOCAL_SIZE", "MPI_LOCALNRANKS"}},
	{{"OMPI_COMM_WORLD_RANK"}, {"OMPI_COMM_WORLD_SIZE"}, {"OMPI_COMM_WORLD_LOCAL_RANK"},
		{"OMPI_COMM_WORLD_LOCAL_SIZE"}},
	{{"MV2_COMM_WORLD_RANK"}, {"MV2_COMM_WORLD_SIZE"}, {"MV2_COMM_WORLD_LOCAL_RANK"}, {"MV2_COMM_WORLD_LOCAL_SIZE"}},
}

func fromMPI(in *input) (claim, string) {
	c := unknown()
	for _, names := range mpiFamilies {
		rank, size := in.firstOf(names[0]...), in.firstOf(names[1]...)
		if !rank.given() && !size.given() {
			continue
		}
		if in.inherited("PMI", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_", "MV2_COMM_WORLD_") {
			return c, fmt.Sprintf("an interactive shell started this process: %s is that of the shell", rank.From)
		}
		c.readRank(in, rank, size, in.firstOf(names[2]...), in.firstOf(names[3]...))
		c.addrWant = "the host of rank 0 (mpirun -x MASTER_ADDR=HOST, or -genv MASTER_ADDR HOST)"
		if name := in.env["PMIX_NAMESPACE"]; name != "" {
			c.job = job("MPI " + name)
		}
		if reason := notInStep(in); reason == "" {
			// srun --mpi=pmi2 also sets PMI_*. The host of rank 0 is then in Slurm's node list. Ignore faults of the
			// list here.
			if step, _ := fromSlurm(&input{env: in.env}); validHost(step.addr.Text) {
				c.addr, c.port = step.addr, step.port
			}
		}
		return c, ""
	}
	return c, "neither PMI_RANK, OMPI_COMM_WORLD_RANK nor MV2_COMM_WORLD_RANK is set"
}

// SageMakerJob and SageMakerARN are variables that SageMaker sets in each container of a training job. Other programs
// also use the first name.
const (
	SageMakerJob = "TRAINING_JOB_NAME"
	SageMakerARN = "TRAINING_JOB_ARN"
)

// SageMakerVariables are the variables with the hosts of a job. The toolkit of SageMaker sets them in its images. The
// last one has the text of resourceconfig.json.
var SageMakerVariables = []string{"SM_HOSTS", "SM_CURRENT_HOST", "SM_RESOURCE_CONFIG"}

// fromSageMaker reads SageMakerVariables, or the file resourceconfig.json, which all images have.
func fromSageMaker(in *input) (claim, string) {
	c := unknown()
	list, current := in.variable(SageMakerVariables[0]), in.variable(SageMakerVariables[1])
	whole := in.variable(SageMakerVariables[2])
	if !whole.given() {
		whole = in.options.Resources
	}
	if !list.given() && !current.given() && !whole.given() {
		return c, "SM_HOSTS is not set"
	}
	c.byNode, c.addrWant = true, ""
	var hosts []string
	var err error
	names, origin := list.From, list.From
	if list.given() || current.given() {
		err = json.Unmarshal([]byte(list.Text), &hosts)
	} else { // this image is without the toolkit of SageMaker
		var resources struct {
			Hosts   []string `json:"hosts"`
			Current string   `json:"current_host"`
		}
		err = json.Unmarshal([]byte(whole.Text), &resources)
		names, origin, list = "hosts of "+whole.From, whole.From, whole
		hosts, current = resources.Hosts, Value{resources.Current, "current_host of " + whole.From}
	}
	if err != nil || len(hosts) == 0 || len(hosts) > maxHosts || !allValid(hosts) {
		in.fault(names, got(list.Text), `a list of host names as JSON, such as ["algo-1","algo-2"]`)
		return c, ""
	}
	for i, host := range hosts {
		if slices.Contains(hosts[:i], host) {
			in.fault(names, fmt.Sprintf("got %q twice", host), "each host once")
			break
		}
	}
	c.nodes = len(hosts)
	if c.node = slices.Index(hosts, current.Text); c.node < 0 {
		in.fault(current.From, got(current.Text), "one of %s %q", names, hosts[:min(len(hosts), 8)])
	}
	if gpus := in.variable("SM_NUM_GPUS"); gpus.given() {
		if n := in.number(gpus, 0, maxRanks, "the number of GPUs of this host"); n > 0 {
			c.perNode = n
		}
	}
	c.addr = Value{hosts[0], "first host of " + origin}
	return c, ""
}

func allValid(hosts []string) bool {
	return !slices.ContainsFunc(hosts, func(host string) bool { return !validHost(host) })
}

// fromKubernetes reads the number of this pod in an indexed Job. Kubernetes does not provide the number of pods, so
// WORLD_SIZE is necessary.
func fromKubernetes(in *input) (claim, string) {
	c := unknown()
	index := in.variable("JOB_COMPLETION_INDEX")
	if !index.given() {
		return c, "JOB_COMPLETION_INDEX is not set"
	}
	c.rank = in.number(index, 0, maxRanks, "the number of this pod")
	c.names.rank = index.From
	size := in.options.WorldSize
	if !size.given() {
		size = in.variable("WORLD_SIZE")
	}
	c.worldSize = in.number(size, 1, maxRanks,
		wantWorldSize+" (Kubernetes does not set this variable: set it to the completions of the Job)")
	// Each Job of a JobSet numbers its own pods. The name of a pod is JOB-INDEX, and its address JOB-INDEX.SERVICE.
	job, named := strings.CutSuffix(in.env["HOSTNAME"], "-"+index.Text)
	pod, _, inService := strings.Cut(firstGiven(in.options.MasterAddr, in.variable("MASTER_ADDR")).Text, ".")
	if first, isFirst := strings.CutSuffix(pod, "-0"); named && inService && isFirst && first != job &&
		ofOneJobSet(first, job) {
		in.fault(index.From, fmt.Sprintf("got pod %s of the Job %s", index.Text, job), "a pod of the Job %s, whose first "+
			"pod is rank 0; if a run has several Jobs, as in a JobSet, set PET_NODE_RANK, PET_NNODES and "+
			"PET_MASTER_ADDR (deploy/kubernetes/overlays/jobset)", first)
	}
	c.addrWant = "the host name of the pod of rank 0 (JOB-0.SERVICE)"
	return c, ""
}

// ofOneJobSet reports whether a and b are the names of Jobs of one JobSet, of the form SET-GROUP-NUMBER. Other names
// may legitimately differ: a pod in the network of its host has the host's name, and a Service may name rank 0.
func ofOneJobSet(a, b string) bool {
	set := func(name string) (string, bool) {
		parts := strings.Split(name, "-")
		_, err := wholeNumber(parts[len(parts)-1])
		return parts[0], len(parts) >= 3 && err == nil
	}
	setA, isA := set(a)
	setB, isB := set(b)
	return isA && isB && setA == setB
}

func fromNobody(in *input) (claim, string) {
	c := unknown()
	c.byNode, c.node, c.nodes = true, 0, 1
	size := in.options.WorldSize
	if !size.given() {
		size = in.variable("WORLD_SIZE")
	}
	if in.optional(size, 1, maxRanks, 1, wantWorldSize) > 1 {
		in.fault("RANK", got(""), "%s, because %s is %s", wantRank, size.From, size.Text)
	}
	// Without this fault, each host of a job would train a separate run, because it does not know the other hosts.
	if why := in.options.ResourcesFault; why != "" {
		job := in.variable(SageMakerJob)
		in.fault(job.From, got(job.Text), "the file %s, in which SageMaker names the hosts of a job, but it %s; "+
			"outside SageMaker, unset the variable, or pass --nnodes 1", in.options.Resources.From, why)
	}
	return c, ""
}
