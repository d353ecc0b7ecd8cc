// Package discovery answers a process's first question: which rank of how many am I, and where is rank 0?
//
//	place, err := discovery.Find(discovery.Options{
//		RanksPerNode: discovery.Value{Text: flags.ranks, From: "--nproc-per-node"},
//	}, os.Environ())
//	if err != nil { … every fault at once, each with variable, got and want: exit code 2 … }
//	log.Info(place.String()) // rank 1 of 4, decided by Slurm, rank 0 at node-a:29500 (first host of SLURM_STEP_NODELIST)
//	if place.Launch {
//		… start place.LocalWorldSize ranks, the first of them place.Rank: package supervisor …
//	}
//
// # Who is asked, in this order
//
//	options             Rank, WorldSize, … from the command line or a file
//	environment         RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
//	Kubeflow, torchrun  PET_NODE_RANK PET_NNODES PET_NPROC_PER_NODE
//	MPI                 PMI_RANK PMI_SIZE, OMPI_COMM_WORLD_*, MV2_COMM_WORLD_*
//	Slurm               SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID, inside a step that srun started
//	SageMaker           SM_CURRENT_HOST SM_HOSTS
//	Kubernetes          JOB_COMPLETION_INDEX of an indexed Job, with WORLD_SIZE
//	one process         nobody says anything
//
// The first that says who this process is decides alone; Place.Passed tells why each of the others did not. A batch
// script's own body has SLURM_PROCID too, but nobody else ever comes: only a real step counts. Kubeflow sets RANK to the number
// of the pod: where PET_NPROC_PER_NODE asks for several processes a pod, and LOCAL_RANK is not set, PET_* decide.
//
// # A rank, or a node that starts ranks
//
// RANK or LOCAL_RANK, MPI and Slurm mean that this process is one rank. PET_*, SageMaker and NodeRank number nodes: the
// process starts its node's ranks (Place.Launch) unless that is one. RanksPerNode makes a node of a lone Slurm task, MPI
// process or pod as well. Without such a number a node has Options.Devices ranks. Several nodes may start different numbers
// of ranks, so Place.Uncounted is set: the nodes count their ranks with rendezvous.CountRanks before any rank starts.
//
// # Where rank 0 is
//
// Options, then MASTER_ADDR and MASTER_PORT (PET_MASTER_ADDR, PET_MASTER_PORT), then what the source knows: the first
// host of Slurm's node list, of SM_HOSTS. Where all ranks are on this machine it is 127.0.0.1. Without MASTER_PORT it is
// 29500; of a Slurm job, whose neighbours may share a machine, 20000 plus the last four digits of its number.
//
// torchrun keeps a store of its own on MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE). Its ranks derive eight other ports from that port and the
// run's id, all the same ones, and rank 0 listens on the first that is free (Place.Ports). Place.Start tells the ranks of this start from
// those of another that has come to the same port. Open MPI's ranks derive theirs from the name of the job (PMIX_NAMESPACE), so that two jobs
// on one machine do not meet.
//
// # Errors
//
// An empty, malformed or contradicting value is a fault in [Error], which lists all that were found. Nothing panics,
// whatever the environment holds.
package discovery
