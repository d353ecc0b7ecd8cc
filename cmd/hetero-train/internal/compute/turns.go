package compute

import (
	"context"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/profiler/measure"
)

// Turns is the order in which ranks measure. The ranks of one machine measure one after another. Ranks of different
// machines measure at the same time.
type Turns struct {
	Own   int // turn of this rank; -1 if the rank does not measure
	Count int // number of turns: the maximum number of measuring ranks on one machine
}

// TurnsOf assigns to each measuring rank a turn on its machine.
func TurnsOf(members []rendezvous.Member, measures []int, own int) Turns {
	t, next := Turns{Own: -1}, map[string]int{}
	for _, rank := range measures {
		host := members[rank].Host
		if rank == own {
			t.Own = next[host]
		}
		next[host]++
		t.Count = max(t.Count, next[host])
	}
	return t
}

// Take measures in rounds; in each round, each measuring rank has one turn. All ranks must call Take; s is nil on a
// rank that does not measure. A rank whose measurement fails still waits for the other ranks. After the deadline, ranks
// measure only if the first round is not complete.
func (t Turns) Take(ctx context.Context, team *process.Team, s *measure.Speed, rounds int, slice time.Duration,
	deadline time.Time) (failed error) {
	for round := range rounds {
		for turn := range t.Count {
			if turn == t.Own && s != nil && failed == nil && (round == 0 || time.Now().Before(deadline)) {
				failed = s.Slice(ctx, slice)
			}
			if team == nil {
				continue
			}
			if err := team.Group.Barrier(ctx, "compute scores"); err != nil {
				return err
			}
		}
	}
	return failed
}

// TensorBytes returns the size, in bytes, of the tensors for measuring memory bandwidth. On a GPU with enough memory,
// the tensors are much larger than its caches. On other devices, the size is host.
func TensorBytes(info device.Info, host int64) int64 {
	const gpuTensor = 256 << 20
	if info.Kind == "cuda" && info.FreeBytes >= 8*gpuTensor {
		return gpuTensor
	}
	return host
}
