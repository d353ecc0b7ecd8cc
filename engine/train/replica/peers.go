package replica

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/gradsync"
)

// Agree returns a *gradsync.DifferenceError if the models or the buckets of the ranks differ.
func (r *Replica) Agree(ctx context.Context) error {
	if r.sums == nil {
		return nil
	}
	return gradsync.Compare(ctx, r.group.Grads, r.dev, r.sums.Fingerprint(r.now.train.plan))
}

// Spread copies the parameters, statistics, moments and averages of rank 0 to every rank. It returns rank 0's state,
// which may be nil. All ranks use the same layouts.
func (r *Replica) Spread(ctx context.Context, state *checkpoint.State) (*checkpoint.State, error) {
	if r.group == nil {
		return state, nil
	}
	grads := r.group.Grads
	var text []byte
	if grads.Rank() == 0 && state != nil {
		var err error
		if text, err = json.Marshal(state); err != nil {
			return nil, fmt.Errorf("state for the other ranks: %w", err)
		}
	}
	text, err := r.spreadBytes(ctx, text)
	if err != nil {
		return nil, err
	}
	params := r.state.Params
	buffers := []device.Region{{Buffer: r.state.Values, Bytes: params.Bytes},
		{Buffer: r.state.States, Bytes: params.StateBytes}}
	for _, m := range r.optim.Moments() {
		buffers = append(buffers, device.Region{Buffer: m.Flat, Bytes: params.TrainBytes})
	}
	for _, b := range append(buffers, r.averages()...) {
		if b.Bytes == 0 {
			continue
		}
		if err := grads.Enqueue(collective.Broadcast{Name: "weights", Buffer: b}); err != nil {
			return nil, err
		}
	}
	if err := grads.Sync(ctx); err != nil {
		return nil, err
	}
	if len(text) == 0 {
		return nil, nil
	}
	got := new(checkpoint.State)
	if err := json.Unmarshal(text, got); err != nil {
		return nil, fmt.Errorf("state of rank 0: %w", err)
	}
	return got, nil
}

// spreadBytes returns rank 0's bytes on every rank.
func (r *Replica) spreadBytes(ctx context.Context, text []byte) ([]byte, error) {
	comm := r.group.Grads
	send := func(bytes []byte) ([]byte, error) {
		host, err := r.dev.AllocHost(int64(len(bytes)))
		if err != nil {
			return nil, err
		}
		defer host.Free()
		copy(host.Host(), bytes)
		if err := comm.Enqueue(collective.Broadcast{Name: "state", Buffer: device.Whole(host)}); err != nil {
			return nil, err
		}
		if err := comm.Sync(ctx); err != nil {
			return nil, err
		}
		return append([]byte(nil), host.Host()...), nil
	}
	length, err := send(binary.LittleEndian.AppendUint64(nil, uint64(len(text))))
	if err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length)
	if n == 0 {
		return nil, nil
	}
	if comm.Rank() != 0 {
		text = make([]byte, n)
	}
	return send(text)
}

// gather returns the value of own on each rank.
func (r *Replica) gather(ctx context.Context, own int) ([]int, error) {
	rows, err := r.gatherNumbers(ctx, own)
	all := make([]int, len(rows))
	for i, row := range rows {
		all[i] = row[0]
	}
	return all, err
}

// gatherNumbers returns the numbers of all ranks, by rank.
func (r *Replica) gatherNumbers(ctx context.Context, own ...int) ([][]int, error) {
	var word []byte
	for _, n := range own {
		word = binary.LittleEndian.AppendUint64(word, uint64(n))
	}
	rows, err := r.group.Gather(ctx, r.dev, "limits", word)
	all := make([][]int, len(rows))
	for rank, row := range rows {
		for i := range own {
			all[rank] = append(all[rank], int(binary.LittleEndian.Uint64(row[8*i:])))
		}
	}
	return all, err
}
