package discovery

import (
	"errors"
	"strings"
	"testing"
)

// FuzzFind passes any environment to Find, which must return a consistent assignment or faults, and never panic.
func FuzzFind(f *testing.F) {
	f.Add("RANK=0\nWORLD_SIZE=2\nLOCAL_RANK=0\nMASTER_ADDR=h", "")
	f.Add(strings.Join(step(), "\n"), "2")
	f.Add("PET_NODE_RANK=1\nPET_NNODES=2:2\nPET_NPROC_PER_NODE=auto\nPET_MASTER_ADDR=[::1]", "")
	f.Add(
		"OMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=2\nOMPI_COMM_WORLD_LOCAL_SIZE=1\nMASTER_ADDR=h\nMASTER_PORT=70000",
		"3")
	f.Add("SM_HOSTS=[\"a\",\"b\"]\nSM_CURRENT_HOST=b\nSM_NUM_GPUS=1", "")
	f.Add("SM_HOSTS=[\"a\",\"a\"]\nSM_CURRENT_HOST=a", "")
	f.Add("JOB_COMPLETION_INDEX=1\nWORLD_SIZE=4\nMASTER_ADDR=h", "2")
	f.Add("RANK=\x00\nWORLD_SIZE", "-1")
	f.Fuzz(func(t *testing.T, environment, perNode string) {
		assigned, err := Find(Options{RanksPerNode: Value{perNode, "--nproc-per-node"}, Devices: 2},
			strings.Split(environment, "\n"))
		var faults *Error
		switch {
		case err != nil:
			if !errors.As(err, &faults) || len(faults.Faults) == 0 {
				t.Fatalf("got error %v, want an *Error with faults", err)
			}
			for _, fault := range faults.Faults {
				if fault.Name == "" || fault.Got == "" || fault.Want == "" {
					t.Errorf("a fault that does not say all: %+v", fault)
				}
			}
		case assigned.WorldSize < 1 || assigned.Rank < 0 || assigned.Rank >= assigned.WorldSize ||
			assigned.LocalWorldSize > assigned.WorldSize ||
			assigned.Rank+assigned.LocalWorldSize > assigned.WorldSize && assigned.Launch:
			t.Errorf("inconsistent: %+v", assigned)
		case !validHost(assigned.MasterAddr) || assigned.MasterPort < 0 || assigned.MasterPort > 65535:
			t.Errorf("no address: %+v", assigned)
		}
	})
}

// FuzzExpandHosts checks that a node list becomes host names or an error.
func FuzzExpandHosts(f *testing.F) {
	for _, list := range []string{"a[1-3,7],b", "r[1-2]n[01-02]-x", "a[0-65536]", "[[", "a[1-2", ",", "a[1-2-3]"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		hosts, err := expandHosts(list)
		if err == nil && (len(hosts) == 0 || len(hosts) > maxHosts) {
			t.Errorf("%d hosts", len(hosts))
		}
	})
}
