package discovery

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// torchrun returns the environment that torchrun sets for one of two ranks, changed by variables.
func torchrun(rank int, changes ...string) []string {
	return append([]string{
		fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("LOCAL_RANK=%d", rank), "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2",
		"GROUP_RANK=0",
		"MASTER_ADDR=node-a.example", "MASTER_PORT=29500", "TORCHELASTIC_USE_AGENT_STORE=True",
		"TORCHELASTIC_RUN_ID=none",
	}, changes...)
}

func TestPortsOfAStartAreDerived(t *testing.T) {
	store := torchrun(0)
	openMPI := []string{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=0",
		"OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=1911947265"}
	two := []string{"LOCAL_WORLD_SIZE=1", "LOCAL_RANK=0"}
	tests := []struct {
		name    string
		options Options
		env     []string
		derived bool
		host    string
	}{
		{"torchrun on one machine", Options{}, store, true, "127.0.0.1"},
		{"torchrun on two machines", Options{}, torchrun(0, two...), true, "node-a.example"},
		{"torchrun without a store", Options{}, torchrun(0, "TORCHELASTIC_USE_AGENT_STORE=False"), false,
			"node-a.example"},
		{"a value that is none", Options{}, torchrun(0, "TORCHELASTIC_USE_AGENT_STORE=maybe"), false, "node-a.example"},
		{"a port of the user", Options{MasterPort: Value{"29500", "--master-port"}}, store, false, "127.0.0.1"},
		{"an address of the user", Options{MasterAddr: Value{"node-b", "--master-addr"}}, store, true, "node-b"},
		{"Open MPI", Options{}, openMPI, true, "127.0.0.1"},
		{"Open MPI with a port", Options{}, append([]string{"MASTER_PORT=1234"}, openMPI...), false, "127.0.0.1"},
		{"MPICH, whose jobs have no name", Options{},
			[]string{"PMI_RANK=0", "PMI_SIZE=2", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=2"}, false, "127.0.0.1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			assigned, err := Find(test.options, test.env)
			if err != nil {
				t.Fatal(err)
			}
			if derived := len(assigned.Ports) > 0; derived != test.derived || derived != (assigned.Start != 0) ||
				assigned.MasterAddr != test.host {
				t.Fatalf("got %+v, want derived ports %v and host %s", assigned, test.derived, test.host)
			}
			for i, port := range assigned.Ports {
				if port < firstDerived || port >= firstDerived+derivedRange || slices.Index(assigned.Ports, port) != i {
					t.Errorf("got ports %v, want different ones from %d on, below %d", assigned.Ports, firstDerived,
						firstDerived+derivedRange)
				}
			}
			addresses := assigned.Addresses()
			if addresses[0] != assigned.Master() || len(addresses) != max(len(assigned.Ports), 1) {
				t.Errorf("got addresses %v, want %s first", addresses, assigned.Master())
			}
		})
	}
}

func TestRanksOfAStartDeriveTheSamePorts(t *testing.T) {
	find := func(env []string) Assignment {
		assigned, err := Find(Options{}, env)
		if err != nil {
			t.Fatal(err)
		}
		return assigned
	}
	a, b := find(torchrun(0)), find(torchrun(1))
	if !slices.Equal(a.Ports, b.Ports) || a.Start != b.Start {
		t.Errorf("got %+v and %+v", a, b)
	}
	for _, change := range []string{"MASTER_PORT=29501", "TORCHELASTIC_RUN_ID=another"} {
		if other := find(torchrun(0, change)); other.Start == a.Start || slices.Equal(other.Ports, a.Ports) {
			t.Errorf("%s: another start has the same ports %v", change, other.Ports)
		}
	}
	if text := a.String(); !strings.Contains(text, "port 29500 belongs to torchrun's store") {
		t.Errorf("got %q, want a reason for the port", text)
	}
}
