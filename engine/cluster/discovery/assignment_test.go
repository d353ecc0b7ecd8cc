package discovery

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// step returns the variables that srun sets for the second of two tasks on the second of two nodes, changed by
// variables.
func step(changes ...string) []string {
	return append([]string{
		"SLURM_JOB_ID=4711", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=3", "SLURM_LOCALID=1",
		"SLURM_NODEID=1",
		"SLURM_STEP_NODELIST=gpu[07-08]", "SLURM_NODELIST=gpu[05-08]", "SLURM_STEP_TASKS_PER_NODE=2(x2)",
	}, changes...)
}

func TestFindsTheRank(t *testing.T) {
	option := func(text string) Value { return Value{text, "--option"} }
	tests := []struct {
		name    string
		options Options
		env     []string
		want    string // Assignment.String
	}{
		{"nothing set", Options{}, nil, "rank 0 of 1 (local rank 0 of 1), decided by one process"},
		{"nothing set, two devices", Options{Devices: 2}, nil, "starts 2 ranks, decided by one process"},
		{"ranks of the configuration", Options{RanksPerNode: option("3"), Devices: 8}, nil,
			"starts 3 ranks, decided by one process"},
		{"options", Options{Rank: option("1"), WorldSize: option("2"), MasterAddr: option("10.0.0.1"),
			MasterPort: option("1234")}, nil,
			"rank 1 of 2, decided by options, rank 0 at 10.0.0.1:1234 (--option)"},
		{"options before the environment", Options{Rank: option("1"), WorldSize: option("2"), MasterAddr: option("a")},
			[]string{"RANK=5", "WORLD_SIZE=9", "MASTER_ADDR=b", "MASTER_PORT=77"},
			"rank 1 of 2, decided by options, rank 0 at a:77 (--option)"},
		{"nodes by options", Options{NodeRank: option("1"), Nodes: option("3"), RanksPerNode: option("4"),
			MasterAddr: option("::1")}, nil,
			"node 1 of 3, starts ranks 4 to 7 of 12, decided by options, rank 0 at [::1]:29500 (--option)"},
		{"variables of one machine need no address", Options{},
			[]string{"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"},
			"rank 1 of 2 (local rank 1 of 2), decided by environment, rank 0 at 127.0.0.1:29500 (all ranks are on this machine)"},
		{"variables without a local rank", Options{}, []string{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=[fe80::1%eth0]",
			"MASTER_PORT=1"},
			"rank 1 of 2, decided by environment, rank 0 at [fe80::1%eth0]:1 (MASTER_ADDR)"},
		{"variables before Slurm", Options{}, step("RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=h"),
			"rank 0 of 2 (local rank 0), decided by environment, rank 0 at h:29500 (MASTER_ADDR)"},
		{"the last of equal names counts", Options{}, []string{"RANK=7", "RANK=0", "WORLD_SIZE=1"},
			"rank 0 of 1 (local rank 0), decided by environment"},
		{"Kubeflow, a process a pod", Options{}, []string{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=m", "PET_NODE_RANK=1",
			"PET_NNODES=2", "PET_NPROC_PER_NODE=1"},
			"rank 1 of 2, decided by environment, rank 0 at m:29500 (MASTER_ADDR)"},
		{"Kubeflow, two processes a pod", Options{},
			[]string{"RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=m", "PET_MASTER_ADDR=n", "PET_MASTER_PORT=23456",
				"PET_NODE_RANK=1", "PET_NNODES=2:2", "PET_NPROC_PER_NODE=2"},
			"node 1 of 2, starts ranks 2 to 3 of 4, decided by Kubeflow or torchrun, rank 0 at n:23456 (PET_MASTER_ADDR)"},
		{"torchrun's variables, processes by devices", Options{Devices: 2},
			[]string{"PET_NODE_RANK=0", "PET_NNODES=2", "PET_NPROC_PER_NODE=auto", "MASTER_ADDR=m"},
			"node 0 of 2, starts ranks 0 to 1 of 4, decided by Kubeflow or torchrun, rank 0 at m:29500 (MASTER_ADDR)"},
		{"Open MPI", Options{}, []string{"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=4",
			"OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
			"MASTER_ADDR=m"}, "rank 2 of 4 (local rank 0 of 2), decided by MPI, rank 0 at m:29500 (MASTER_ADDR)"},
		{"MPICH", Options{}, []string{"PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2"},
			"rank 1 of 2 (local rank 1 of 2), decided by MPI, rank 0 at 127.0.0.1:29500 (all ranks are on this machine)"},
		{"MVAPICH", Options{}, []string{"MV2_COMM_WORLD_RANK=0", "MV2_COMM_WORLD_SIZE=1"},
			"rank 0 of 1 (local rank 0), decided by MPI"},
		{"srun with PMI", Options{}, step("PMI_RANK=3", "PMI_SIZE=4"),
			"rank 3 of 4, decided by MPI, rank 0 at gpu07:24711 (first host of SLURM_STEP_NODELIST)"},
		{"a process of MPI a node", Options{RanksPerNode: option("2")},
			[]string{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=3",
				"OMPI_COMM_WORLD_LOCAL_SIZE=1", "MASTER_ADDR=m"},
			"node 1 of 3, starts ranks 2 to 3 of 6, decided by MPI, rank 0 at m:29500 (MASTER_ADDR)"},
		{"Slurm", Options{}, step(), "rank 3 of 4 (local rank 1 of 2), decided by Slurm, rank 0 at gpu07:24711 (first host of SLURM_STEP_NODELIST)"},
		{"Slurm with an address", Options{}, step("MASTER_ADDR=ib7", "MASTER_PORT=30000"),
			"rank 3 of 4 (local rank 1 of 2), decided by Slurm, rank 0 at ib7:30000 (MASTER_ADDR)"},
		{"Slurm, a task a node", Options{RanksPerNode: option("4")},
			step("SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1", "SLURM_LOCALID=0", "SLURM_STEP_TASKS_PER_NODE=1(x2)"),
			"node 1 of 2, starts ranks 4 to 7 of 8, decided by Slurm, rank 0 at gpu07:24711 (first host of SLURM_STEP_NODELIST)"},
		{"Slurm, all on one node", Options{}, step("SLURM_STEP_NODELIST=gpu07", "SLURM_STEP_TASKS_PER_NODE=4",
			"SLURM_NODEID=0", "SLURM_LOCALID=3"),
			"rank 3 of 4 (local rank 3 of 4), decided by Slurm, rank 0 at 127.0.0.1:24711 (all ranks are on this machine)"},
		{"the body of a batch script", Options{}, []string{"SLURM_JOB_ID=1", "SLURM_PROCID=0", "SLURM_NTASKS=4",
			"SLURM_NODELIST=a,b"},
			"rank 0 of 1 (local rank 0 of 1), decided by one process"},
		{"an interactive shell of Slurm", Options{}, step("SLURM_STEP_ID=4294967290"),
			"rank 0 of 1 (local rank 0 of 1), decided by one process"},
		{"SageMaker", Options{}, []string{`SM_HOSTS=["algo-1","algo-2"]`, "SM_CURRENT_HOST=algo-2", "SM_NUM_GPUS=4"},
			"node 1 of 2, starts ranks 4 to 7 of 8, decided by SageMaker, rank 0 at algo-1:29500 (first host of SM_HOSTS)"},
		{"SageMaker without GPUs", Options{}, []string{`SM_HOSTS=["algo-1","algo-2"]`, "SM_CURRENT_HOST=algo-1",
			"SM_NUM_GPUS=0"},
			"rank 0 of 2 (local rank 0 of 1), decided by SageMaker, rank 0 at algo-1:29500 (first host of SM_HOSTS)"},
		{"SageMaker without its toolkit", Options{Devices: 2}, []string{"SM_RESOURCE_CONFIG=" + `{"current_host":"algo-2",
			"current_instance_type":"ml.c5.xlarge","current_group_name":"cpus","hosts":["algo-1","algo-2"],
			"instance_groups":[{"instance_group_name":"gpus","instance_type":"ml.g5.12xlarge","hosts":["algo-1"]},
			{"instance_group_name":"cpus","instance_type":"ml.c5.xlarge","hosts":["algo-2"]}],
			"network_interface_name":"eth0"}`},
			"node 1 of 2, starts ranks 2 to 3 of 4, decided by SageMaker, rank 0 at algo-1:29500 (first host of SM_RESOURCE_CONFIG)"},
		{"SageMaker's file", Options{Devices: 2, Resources: Value{`{"current_host":"b","hosts":["a","b"]}`, "/opt/r.json"}},
			[]string{"TRAINING_JOB_NAME=j"},
			"node 1 of 2, starts ranks 2 to 3 of 4, decided by SageMaker, rank 0 at a:29500 (first host of /opt/r.json)"},
		{"a job of another program, with options", Options{Nodes: option("1"),
			Resources: Value{"", "/opt/r.json"}, ResourcesFault: "is missing"},
			[]string{"TRAINING_JOB_NAME=j"}, "rank 0 of 1 (local rank 0 of 1), decided by options"},
		{"a job of Kubernetes", Options{Resources: Value{"", "/opt/r.json"}, ResourcesFault: "is missing"},
			[]string{"TRAINING_JOB_NAME=j", "JOB_COMPLETION_INDEX=0", "WORLD_SIZE=1"},
			"rank 0 of 1 (local rank 0), decided by Kubernetes"},
		{"Kubernetes", Options{}, []string{"JOB_COMPLETION_INDEX=2", "WORLD_SIZE=3", "MASTER_ADDR=train-0.train"},
			"rank 2 of 3, decided by Kubernetes, rank 0 at train-0.train:29500 (MASTER_ADDR)"},
		{"Kubernetes, a pod of the Job of rank 0", Options{}, []string{"JOB_COMPLETION_INDEX=2", "WORLD_SIZE=3",
			"MASTER_ADDR=train-0.train", "HOSTNAME=train-2"},
			"rank 2 of 3, decided by Kubernetes, rank 0 at train-0.train:29500 (MASTER_ADDR)"},
		{"Kubernetes, the name of a Service", Options{}, []string{"JOB_COMPLETION_INDEX=2", "WORLD_SIZE=3",
			"MASTER_ADDR=first-0", "HOSTNAME=train-2"},
			"rank 2 of 3, decided by Kubernetes, rank 0 at first-0:29500 (MASTER_ADDR)"},
		{"Kubernetes, the network of the host", Options{}, []string{"JOB_COMPLETION_INDEX=2", "WORLD_SIZE=3",
			"MASTER_ADDR=train-0.train", "HOSTNAME=gpu-node-2"},
			"rank 2 of 3, decided by Kubernetes, rank 0 at train-0.train:29500 (MASTER_ADDR)"},
		{"a JobSet of one Job, the network of the host", Options{}, []string{"JOB_COMPLETION_INDEX=2", "WORLD_SIZE=3",
			"MASTER_ADDR=train-node-0-0.train", "HOSTNAME=ip-10-0-0-2"},
			"rank 2 of 3, decided by Kubernetes, rank 0 at train-node-0-0.train:29500 (MASTER_ADDR)"},
		{"Kubernetes, a Service with the number of rank 0", Options{}, []string{"JOB_COMPLETION_INDEX=2",
			"WORLD_SIZE=3", "MASTER_ADDR=rank-0.ns.svc", "HOSTNAME=train-2"},
			"rank 2 of 3, decided by Kubernetes, rank 0 at rank-0.ns.svc:29500 (MASTER_ADDR)"},
		{"JobSet, by annotations", Options{Devices: 4}, []string{"JOB_COMPLETION_INDEX=0", "HOSTNAME=train-t4-1-0",
			"PET_NODE_RANK=3", "PET_NNODES=5", "PET_MASTER_ADDR=train-h100-0-0.train", "PET_MASTER_PORT=29500"},
			"node 3 of 5, starts ranks 12 to 15 of 20, decided by Kubeflow or torchrun, rank 0 at " +
				"train-h100-0-0.train:29500 (PET_MASTER_ADDR)"},
		{"Kubernetes, two ranks a pod", Options{RanksPerNode: option("2"), WorldSize: option("6")},
			[]string{"JOB_COMPLETION_INDEX=2", "MASTER_ADDR=m"},
			"node 2 of 3, starts ranks 4 to 5 of 6, decided by Kubernetes, rank 0 at m:29500 (MASTER_ADDR)"},
		{"an address that was left over", Options{}, []string{"MASTER_ADDR=elsewhere", "MASTER_PORT=x", "WORLD_SIZE=1"},
			"rank 0 of 1 (local rank 0 of 1), decided by one process"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			assigned, err := Find(test.options, test.env)
			if err != nil {
				t.Fatal(err)
			}
			if got := assigned.String(); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if assigned.LocalWorldSize > assigned.WorldSize || assigned.Rank >= assigned.WorldSize {
				t.Errorf("inconsistent: %+v", assigned)
			}
		})
	}
}

func TestFindsWhoHasItsOwnOutput(t *testing.T) {
	tests := []struct {
		name string
		env  []string
		want bool
	}{
		{"started by hand", []string{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=h"}, true},
		{"a pod", []string{"JOB_COMPLETION_INDEX=1", "WORLD_SIZE=2", "MASTER_ADDR=h"}, true},
		{"torchrun", []string{"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"}, false},
		{"MPI without local ranks", []string{"PMI_RANK=1", "PMI_SIZE=2", "MASTER_ADDR=h"}, false},
		{"Slurm", step(), false},
	}
	for _, test := range tests {
		assigned, err := Find(Options{}, test.env)
		if err != nil || assigned.OwnOutput != test.want {
			t.Errorf("%s: got %v and error %v, want %v", test.name, assigned.OwnOutput, err, test.want)
		}
	}
}

func TestNamesEveryFault(t *testing.T) {
	flag := func(text string) Value { return Value{text, "--nproc-per-node"} }
	tests := []struct {
		name    string
		options Options
		env     []string
		want    []string
	}{
		{"all of RANK's family", Options{}, []string{"RANK=one", "WORLD_SIZE=", "LOCAL_RANK=-1", "LOCAL_WORLD_SIZE= 2",
			"MASTER_ADDR=http://x:1", "MASTER_PORT=0"},
			[]string{`RANK: got "one", want the number of this rank, a whole number from 0 to 1048576`,
				`WORLD_SIZE: got an empty value`, `LOCAL_RANK: got "-1"`,
				`LOCAL_WORLD_SIZE: got " 2"`, `MASTER_ADDR: got "http://x:1"`,
				`MASTER_PORT: got "0", want the port of rank 0, a whole number from 1 to 65535`}},
		{"a family without its members", Options{}, []string{"LOCAL_RANK=0"},
			[]string{"RANK: not set", "WORLD_SIZE: not set"}},
		{"no address", Options{}, []string{"RANK=0", "WORLD_SIZE=2"},
			[]string{"MASTER_ADDR: not set, want the host of rank 0"}},
		{"an empty address", Options{}, []string{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR="},
			[]string{"MASTER_ADDR: got an empty value"}},
		{"a rank beyond the world", Options{}, []string{"RANK=2", "WORLD_SIZE=2", "MASTER_ADDR=h", "LOCAL_RANK=5",
			"LOCAL_WORLD_SIZE=3"},
			[]string{"RANK: got 2, want less than the number of ranks, 2 (environment)",
				"LOCAL_WORLD_SIZE: got 3, want at most the number of ranks, 2",
				"LOCAL_RANK: got 5, want less than the number of ranks on this machine, 3"}},
		{"a local rank beyond the world", Options{},
			[]string{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h", "LOCAL_RANK=2"},
			[]string{"LOCAL_RANK: got 2, want less than the number of ranks, 2"}},
		{"ranks without end", Options{}, []string{"RANK=0", "WORLD_SIZE=99999999999", "MASTER_ADDR=h"},
			[]string{`WORLD_SIZE: got "99999999999"`}},
		{"a world without a rank", Options{}, []string{"WORLD_SIZE=4"},
			[]string{"RANK: not set, want the number of this rank, because WORLD_SIZE is 4"}},
		{"MPI against WORLD_SIZE", Options{}, []string{"PMI_RANK=0", "PMI_SIZE=2", "WORLD_SIZE=4", "MASTER_ADDR=h"},
			[]string{`WORLD_SIZE: got "4", want 2, the value of MPI, or no value`}},
		{"MPI without an address", Options{}, []string{"PMI_RANK=0", "PMI_SIZE=2"},
			[]string{"MASTER_ADDR: not set, want the host of rank 0 (mpirun"}},
		{"Slurm's garbage", Options{}, step("SLURM_PROCID=x", "SLURM_LOCALID=", "SLURM_STEP_NODELIST=gpu[7-",
			"SLURM_STEP_TASKS_PER_NODE=2(3)"),
			[]string{`SLURM_PROCID: got "x"`, "SLURM_LOCALID: got an empty value", `SLURM_STEP_NODELIST: got "gpu[7-"`,
				`SLURM_STEP_TASKS_PER_NODE: got "2(3)"`}},
		{"Slurm's counts disagree", Options{}, step("SLURM_STEP_TASKS_PER_NODE=2(x3)"),
			[]string{"SLURM_STEP_TASKS_PER_NODE: got \"2(x3)\", want 4 tasks (SLURM_STEP_NUM_TASKS), not 6",
				"want 2 nodes (SLURM_STEP_NODELIST), not 3"}},
		{"Slurm already started the ranks", Options{RanksPerNode: flag("2")}, step(),
			[]string{"--nproc-per-node: got \"2\", want 1 or no value, because Slurm has already started 2 ranks"}},
		{"an elastic range", Options{}, []string{"PET_NODE_RANK=0", "PET_NNODES=1:4"},
			[]string{`PET_NNODES: got "1:4"`}},
		{"a node without a number", Options{}, []string{"PET_NNODES=2", "PET_NPROC_PER_NODE=all", "MASTER_ADDR=m"},
			[]string{"PET_NODE_RANK: not set", `PET_NPROC_PER_NODE: got "all"`}},
		{"a node beyond the nodes", Options{}, []string{"PET_NNODES=2", "PET_NODE_RANK=2", "MASTER_ADDR=m"},
			[]string{"PET_NODE_RANK: got 2, want less than the number of nodes, 2"}},
		{"nodes by options without a number", Options{Nodes: Value{"2", "--nnodes"}}, nil,
			[]string{"node rank option: not set", "MASTER_ADDR"}},
		{"SageMaker without this host", Options{}, []string{`SM_HOSTS=["a"]`, "SM_CURRENT_HOST=b"},
			[]string{`SM_CURRENT_HOST: got "b", want one of SM_HOSTS ["a"]`}},
		{"SageMaker's file without this host", Options{}, []string{`SM_RESOURCE_CONFIG={"hosts":["a"]}`},
			[]string{`current_host of SM_RESOURCE_CONFIG: not set, want one of hosts of SM_RESOURCE_CONFIG ["a"]`}},
		{"SageMaker's file", Options{}, []string{`SM_RESOURCE_CONFIG={}`},
			[]string{"hosts of SM_RESOURCE_CONFIG: got \"{}\", want a list of host names as JSON"}},
		{"SageMaker's file by its path", Options{Resources: Value{`{"hosts":"a"}`, "/opt/r.json"}}, nil,
			[]string{`hosts of /opt/r.json: got "{\"hosts\":\"a\"}", want a list of host names as JSON`}},
		{"SageMaker's file without this host, by its path", Options{Resources: Value{
			`{"hosts":["a"],"current_host":"b"}`, "/opt/r.json"}}, nil,
			[]string{`current_host of /opt/r.json: got "b", want one of hosts of /opt/r.json ["a"]`}},
		{"a variable of SageMaker in place of its file", Options{Resources: Value{`{"hosts":["a"]}`, "/opt/r.json"}},
			[]string{"SM_RESOURCE_CONFIG=x"}, []string{`hosts of SM_RESOURCE_CONFIG: got "x"`}},
		{"SageMaker's hosts twice", Options{}, []string{`SM_HOSTS=["a","b","a"]`, "SM_CURRENT_HOST=b"},
			[]string{`SM_HOSTS: got "a" twice, want each host once`}},
		{"SageMaker's file has a host twice", Options{}, []string{
			`SM_RESOURCE_CONFIG={"hosts":["a","a"],"current_host":"a"}`},
			[]string{`hosts of SM_RESOURCE_CONFIG: got "a" twice, want each host once`}},
		{"a job of SageMaker without its file", Options{Resources: Value{"", "/opt/r.json"}, ResourcesFault: "is missing"},
			[]string{"TRAINING_JOB_NAME=j"}, []string{`TRAINING_JOB_NAME: got "j", want the file /opt/r.json, in which ` +
				`SageMaker names the hosts of a job, but it is missing`}},
		{"SageMaker's list", Options{}, []string{`SM_HOSTS=a,b`, "SM_CURRENT_HOST=b"},
			[]string{`SM_HOSTS: got "a,b", want a list of host names as JSON`}},
		{"Kubernetes, a pod of another Job of a JobSet", Options{}, []string{"JOB_COMPLETION_INDEX=0", "WORLD_SIZE=5",
			"MASTER_ADDR=train-h100-0-0.train", "HOSTNAME=train-cpu-0-0"},
			[]string{"JOB_COMPLETION_INDEX: got pod 0 of the Job train-cpu-0, want a pod of the Job train-h100-0"}},
		{"Kubernetes without a number of pods", Options{}, []string{"JOB_COMPLETION_INDEX=1"},
			[]string{"WORLD_SIZE: not set, want the number of ranks (Kubernetes does not set this variable"}},
		{"pods that do not divide the world", Options{RanksPerNode: flag("2")},
			[]string{"JOB_COMPLETION_INDEX=1", "WORLD_SIZE=5", "MASTER_ADDR=m"},
			[]string{"WORLD_SIZE: got 5, want a multiple of the 2 ranks of each pod"}},
		{"ranks of the configuration", Options{RanksPerNode: Value{"many", "parallel.ranks"}}, nil,
			[]string{`parallel.ranks: got "many"`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			assigned, err := Find(test.options, test.env)
			var faults *Error
			if !errors.As(err, &faults) {
				t.Fatalf("got %v and error %v, want an *Error", assigned, err)
			}
			for _, want := range test.want {
				if !slices.ContainsFunc(faults.Faults, func(f Fault) bool {
					return strings.Contains(f.String(), want)
				}) {
					t.Errorf("%q is not among\n%v", want, err)
				}
			}
			if len(faults.Faults) != len(test.want) {
				t.Errorf("got %d faults, want %d:\n%v", len(faults.Faults), len(test.want), err)
			}
		})
	}
}

func TestSaysWhyOthersDidNotDecide(t *testing.T) {
	assigned, err := Find(Options{}, step("PMI_RANK=0", "PMI_SIZE=1", "JOB_COMPLETION_INDEX=a"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Passed{
		{"options", "no rank and no node number is given"},
		{"environment", "RANK is not set"},
		{"Kubeflow or torchrun", "PET_NODE_RANK is not set"},
		{"Slurm", "gives rank 3 of 4, but MPI comes first"},
		{"SageMaker", "SM_HOSTS is not set"},
		{"Kubernetes", `JOB_COMPLETION_INDEX: got "a", want the number of this pod, a whole number from 0 to 1048576, but MPI comes first`},
		{"one process", "gives node 0 of 1, but MPI comes first"},
	}
	if !slices.Equal(assigned.Passed, want) {
		t.Errorf("got\n%q\nwant\n%q", assigned.Passed, want)
	}
}

func TestUnusedRanksPerNodeWarns(t *testing.T) {
	flag := Options{RanksPerNode: Value{"2", "--nproc-per-node"}}
	tests := []struct {
		name string
		env  []string
		want int
	}{
		{"a rank of the user", []string{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h"}, 1},
		{"a rank that was started for it", []string{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2"}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			assigned, err := Find(flag, test.env)
			if err != nil || len(assigned.Warnings) != test.want {
				t.Errorf("got %q (error %v), want %d warnings", assigned.Warnings, err, test.want)
			}
		})
	}
}

func TestNodesCountTheirRanks(t *testing.T) {
	tests := []struct {
		name string
		env  []string
		want bool
	}{
		{"one machine", nil, false},
		{"nodes that say how many", []string{"PET_NODE_RANK=0", "PET_NNODES=2", "PET_NPROC_PER_NODE=2",
			"MASTER_ADDR=m"}, true},
		{"nodes that do not", []string{"PET_NODE_RANK=0", "PET_NNODES=2", "MASTER_ADDR=m"}, true},
		{"ranks by number", []string{"RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=m"}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			assigned, err := Find(Options{Devices: 2}, test.env)
			if err != nil || assigned.Uncounted != test.want {
				t.Errorf("got %+v (error %v), want uncounted %v", assigned, err, test.want)
			}
			if got := assigned.Numbered(5, 9); got.Rank != 5 || got.WorldSize != 9 || got.Uncounted ||
				got.LocalWorldSize != assigned.LocalWorldSize {
				t.Errorf("numbered: got %+v", got)
			}
		})
	}
}
