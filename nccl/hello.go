package nccl

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// hello is the message that describes a rank to the other ranks before they join.
type hello struct {
	Version  Version `json:"version"`
	Path     string  `json:"path"` // path of NCCL's library
	Host     string  `json:"host"`
	GPU      string  `json:"gpu"` // PCI bus id
	ShareGPU bool    `json:"share"`
	Fault    string  `json:"fault"` // why this rank cannot join; "" if it can
}

// helloBytes is the maximum length of a hello.
const helloBytes = 8 << 10

// agree returns an error if the ranks cannot join: a rank has a fault or a different NCCL, or two ranks use one GPU.
func agree(all []hello) error {
	for rank, h := range all {
		if h.Fault != "" {
			return fmt.Errorf("%w: rank %d: %s", ErrUnusable, rank, h.Fault)
		}
	}
	for rank, h := range all {
		if h.Version != all[0].Version {
			return fmt.Errorf(
				"%w: rank 0 has NCCL %v (%s), rank %d has NCCL %v (%s): install one version on all machines",
				ErrUnusable, all[0].Version, all[0].Path, rank, h.Version, h.Path)
		}
	}
	at := map[[2]string]int{}
	for rank, h := range all {
		place := [2]string{h.Host, h.GPU}
		other, taken := at[place]
		if taken && !(h.ShareGPU && all[other].ShareGPU) {
			return fmt.Errorf("%w: ranks %d and %d use the same GPU (%s of %s): start one rank per GPU (parallel.ranks), or allow this with device.share_gpu = true (slow)",
				ErrUnusable, other, rank, h.GPU, h.Host)
		}
		at[place] = rank
	}
	return nil
}

// meet gathers the hellos of all ranks.
func meet(ctx context.Context, control collective.Communicator, own hello) ([]hello, error) {
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	if len(text) > helloBytes {
		own.Path, own.Fault = "", own.Fault[:min(len(own.Fault), helloBytes/4)]
		if text, err = json.Marshal(own); err != nil {
			return nil, err
		}
	}
	memory := newMemory(helloBytes * control.Size())
	part := memory.bytes[helloBytes*control.Rank():]
	copy(part[:helloBytes], text)
	counts := make([]int64, control.Size())
	for i := range counts {
		counts[i] = helloBytes
	}
	if err := perform(ctx, control, collective.AllGather{Name: "nccl hello", Buffer: device.Whole(memory),
		DType: tensor.U8, Counts: counts}); err != nil {
		return nil, err
	}
	all := make([]hello, control.Size())
	for rank := range all {
		text, _, _ := bytes.Cut(memory.bytes[helloBytes*rank:helloBytes*(rank+1)], []byte{0})
		if err := json.Unmarshal(text, &all[rank]); err != nil {
			return nil, fmt.Errorf("data of rank %d: %w", rank, err)
		}
	}
	return all, nil
}

// perform runs one operation of the control communicator.
func perform(ctx context.Context, control collective.Communicator, op collective.Op) error {
	if err := control.Enqueue(op); err != nil {
		return err
	}
	return control.Sync(ctx)
}

// memory is a buffer of host memory.
type memory struct{ bytes []byte }

func newMemory(bytes int) *memory { return &memory{make([]byte, bytes)} }

func (m *memory) Bytes() int64 { return int64(len(m.bytes)) }
func (m *memory) Host() []byte { return m.bytes }
func (m *memory) Free() error  { return nil }
