package train

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// tally counts the predictions of an evaluation by class (task.Report.Classes). It also sums the counts over ranks.
type tally struct {
	*task.Confusion // counts of this rank's samples
	comm            collective.Communicator
	host            device.Buffer // (ranks, 3·classes) i64; nil for a single rank
	op              collective.Op
}

// newTally returns a tally. If comm is not nil, it allocates memory for the exchange between ranks.
func newTally(dev device.Device, comm collective.Communicator, classes int) (*tally, error) {
	t := &tally{Confusion: task.NewConfusion(classes), comm: comm}
	if comm == nil {
		return t, nil
	}
	rowBytes := int64(3 * classes * 8)
	var err error
	if t.host, err = dev.AllocHost(rowBytes * int64(comm.Size())); err != nil {
		return nil, fmt.Errorf("replica: predictions of %d classes: %w", classes, err)
	}
	counts := make([]int64, comm.Size())
	for i := range counts {
		counts[i] = rowBytes
	}
	t.op = collective.AllGather{Name: "predictions", Buffer: device.Whole(t.host), DType: tensor.U8, Counts: counts}
	return t, nil
}

// sum returns the counts of all ranks. All ranks must call it together.
func (t *tally) sum(ctx context.Context) (*task.Confusion, error) {
	if t.comm == nil {
		return t.Confusion, nil
	}
	rows := unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(t.host.Host()))), t.host.Bytes()/8)
	classes := len(t.Hits)
	lists := func(c *task.Confusion) [3][]int64 { return [3][]int64{c.Hits, c.Labels, c.Predicted} }
	for i, list := range lists(t.Confusion) {
		copy(rows[(3*t.comm.Rank()+i)*classes:], list)
	}
	if err := t.comm.Enqueue(t.op); err != nil {
		return nil, err
	}
	if err := t.comm.Sync(ctx); err != nil {
		return nil, err
	}
	all := task.NewConfusion(classes)
	for rank := range t.comm.Size() {
		for i, list := range lists(all) {
			for class := range list {
				list[class] += rows[(3*rank+i)*classes+class]
			}
		}
	}
	return all, nil
}

// count adds the targets of a batch. The results of the batch, with logits, must be in slot 0.
func (p *pass) count(b *data.Batch, c *task.Confusion) {
	memory, classes := p.logits.in(p.host.Host()), len(c.Hits)
	at := func(i int) float64 {
		if p.logits.spec.DType == tensor.F64 {
			return math.Float64frombits(binary.LittleEndian.Uint64(memory[8*i:]))
		}
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(memory[4*i:])))
	}
	for i, label := range data.Values[int32](b, task.Labels) {
		if label < 0 {
			continue
		}
		best := -1
		for class := range classes {
			if v := at(i*classes + class); best < 0 && !math.IsNaN(v) || best >= 0 && v > at(i*classes+best) {
				best = class
			}
		}
		c.Count(int(label), best)
	}
}
