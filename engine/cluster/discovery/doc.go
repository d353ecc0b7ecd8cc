// Package discovery determines the rank and world size of this process, and the address of rank 0.
//
//	place, err := discovery.Find(discovery.Options{
//		RanksPerNode: discovery.Value{Text: flags.ranks, From: "--nproc-per-node"},
//	}, os.Environ())
//	if err != nil { … err lists all faults, each with variable, got and want; exit with code 2 … }
//	log.Info(place.String()) // "rank 1 of 4, decided by Slurm, rank 0 at node-a:29500 (first host of SLURM_STEP_NODELIST)"
//	if place.Launch {
//		… package supervisor starts place.LocalWorldSize ranks, beginning with rank place.Rank …
//	}
//
// # Sources, in order
//
//	options             Rank, WorldSize, … from the command line or a file
//	environment         RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
//	Kubeflow, torchrun  PET_NODE_RANK PET_NNODES PET_NPROC_PER_NODE
//	MPI                 PMI_RANK PMI_SIZE, OMPI_COMM_WORLD_*, MV2_COMM_WORLD_*
//	Slurm               SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID, inside a step that srun started
//	SageMaker           SM_CURRENT_HOST SM_HOSTS, or SM_RESOURCE_CONFIG, or Resources
//	Kubernetes          JOB_COMPLETION_INDEX of an indexed Job, with WORLD_SIZE
//	one process         no other source applies
//
// The first source that identifies this process decides alone. Assignment.Passed gives the reason why each earlier
// source did not decide. Slurm also sets SLURM_PROCID in the body of a batch script, which is a single process. Slurm's
// variables therefore decide only inside a step that srun started. Kubeflow sets RANK to the number of the pod.
// Therefore the PET_* variables decide if PET_NPROC_PER_NODE requests several processes per pod and LOCAL_RANK is not
// set.
//
// A launcher may also start an interactive shell (srun --pty bash). The programs that the user starts in the shell
// inherit the launcher's variables, but are not ranks. Options.Shell is the environment of the shell. If the variables
// of MPI or of the Slurm step have the same values in Options.Shell, Find ignores this source.
//
// # Ranks and nodes
//
// RANK or LOCAL_RANK, MPI and Slurm identify a single rank. PET_*, SageMaker and NodeRank identify a node: the process
// starts the ranks of its node (Assignment.Launch), unless the node has only one rank. RanksPerNode also turns a single
// Slurm task, MPI process or pod into a node. Without RanksPerNode a node has Options.Devices ranks. Several nodes may
// then have different numbers of ranks, and Find sets Assignment.Uncounted. In this case the nodes count their ranks
// with rendezvous.CountRanks before any rank starts.
//
// # Address of rank 0
//
// The address comes from the first of these sources: the options; MASTER_ADDR and MASTER_PORT (PET_MASTER_ADDR,
// PET_MASTER_PORT); the first host of Slurm's node list or of SM_HOSTS. In a heterogeneous step of Slurm, it is the
// first host of the first component. If all ranks are on this machine, the address is 127.0.0.1. Without MASTER_PORT
// the port is 29500. A Slurm job may share a machine with other jobs, so its port is 20000 plus the last four digits of
// the job id.
//
// torchrun runs its own store on MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE). Ranks under torchrun therefore derive
// eight other ports from MASTER_PORT and the run's id. All ranks derive the same ports, and rank 0 listens on the first
// free one (Assignment.Ports). Assignment.Start distinguishes the ranks of this start from those of another start on
// the same port. Ranks of Open MPI derive their ports from the name of the job (PMIX_NAMESPACE), so two jobs on one
// machine use different ports.
//
// # Errors
//
// An empty, malformed or contradictory value is a fault. [Error] lists all faults that were found. No environment makes
// this package panic.
package discovery
