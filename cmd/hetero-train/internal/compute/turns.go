package compute

import (
	"context"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/profiler/measure"
)

// Turns is the order in which ranks measure: ranks of one machine one after another, different machines at the same
// time.
type Turns struct {
	Own   int // turn of this rank; -1: it does not measure
	Count int // turns, as many as the measuring ranks of the machine that has most of them
}

// TurnsOf gives a turn on its machine to each rank that measures.
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

// Take measures in rounds of turns. All ranks call it; s is nil on a rank that does not measure. A rank that fails
// still waits for the others. After the deadline, a rank measures only in the first round.
func (t Turns) Take(ctx context.Context, team *process.Team, s *measure.Speed, rounds int, slice time.Duration, deadline time.Time) (failed error) {
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

// TensorBytes is the size of the tensors that measure memory bandwidth. On a GPU it is much larger than the caches, if
// memory allows.
func TensorBytes(info device.Info, host int64) int64 {
	const gpuTensor = 256 << 20
	if info.Kind == "cuda" && info.FreeBytes >= 8*gpuTensor {
		return gpuTensor
	}
	return host
}
