package compute

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// seat is the message with which a rank describes its device.
type seat struct {
	Device string `json:"device"`
	UUID   string `json:"uuid"` // UUID of the GPU; "" for another device
	Shared bool   `json:"shared"`
	PIDs   string `json:"pids"` // PID namespace; see pidSpace
}

// refuseSharing returns an error if two ranks compute on the same GPU and device.share_gpu is false on one of them.
// Each of them would have half of the memory, and at most half of the speed.
func (k *Rank) refuseSharing(ctx context.Context) error {
	info, members := k.Device.Info(), k.Team.Group.Members()
	own, err := json.Marshal(seat{info.Name, info.UUID, k.Process.Cfg.Device.ShareGPU, pidSpace()})
	if err != nil {
		return err
	}
	words, err := k.Team.Group.Gather(ctx, "device", own)
	if err != nil {
		return err
	}
	first := map[string]int{}
	k.pidSpaces = nil
	seats := make([]seat, len(words))
	for rank, word := range words {
		if err := json.Unmarshal(word, &seats[rank]); err != nil {
			return fmt.Errorf("device of rank %d: %w", rank, err)
		}
		s := seats[rank]
		k.pidSpaces = append(k.pidSpaces, s.PIDs)
		if s.UUID == "" {
			continue
		}
		if s.UUID == info.UUID {
			k.sharers++
		}
		other, taken := first[s.UUID]
		if !taken {
			first[s.UUID] = rank
			continue
		}
		if !s.Shared || !seats[other].Shared {
			return exit.Usagef("ranks %d (process %d) and %d (process %d) of %s would share one GPU, %s (%s): start one rank per GPU (parallel.ranks, device.index, CUDA_VISIBLE_DEVICES), or set device.share_gpu = true",
				other, members[other].PID, rank, members[rank].PID, members[rank].Name, s.UUID,
				strings.Join([]string{seats[other].Device, s.Device}, " and "))
		}
	}
	return nil
}
