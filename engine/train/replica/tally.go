package replica

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// tally counts the predictions of an evaluation by class (task.Report.Classes). It also sums the counts over ranks.
type tally struct {
	*task.Confusion                // counts of this rank's samples
	rows            *gradsync.Rows // 3·classes i64 for each rank; nil for a single rank
}

// newTally returns a tally. For several ranks, it allocates memory for the exchange.
func newTally(dev device.Device, group *gradsync.Group, of task.Report) (t *tally, err error) {
	classes := of.Classes
	t = &tally{Confusion: of.NewConfusion()}
	if group != nil {
		if t.rows, err = group.NewRows(dev, "predictions", int64(3*classes*8)); err != nil {
			return nil, fmt.Errorf("replica: %d classes: %w", classes, err)
		}
	}
	return t, nil
}

// sum returns the counts of all ranks. All ranks must call it together.
func (t *tally) sum(ctx context.Context) (*task.Confusion, error) {
	if t.rows == nil {
		return t.Confusion, nil
	}
	classes := len(t.Hits)
	lists := func(c *task.Confusion) [3][]int64 { return [3][]int64{c.Hits, c.Labels, c.Predicted} }
	own := numbers(t.rows.Own())
	for i, list := range lists(t.Confusion) {
		copy(own[i*classes:], list)
	}
	if err := t.rows.Exchange(ctx); err != nil {
		return nil, err
	}
	rows := numbers(t.rows.All())
	all := task.NewConfusion(classes)
	all.Independent = t.Independent
	for rank := range len(rows) / (3 * classes) {
		for i, list := range lists(all) {
			for class := range list {
				list[class] += rows[(3*rank+i)*classes+class]
			}
		}
	}
	return all, nil
}

// numbers returns memory as i64.
func numbers(memory []byte) []int64 {
	return unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(memory))), len(memory)/8)
}

// scores returns a function that returns element i of the logits in slot 0.
func (p *pass) scores() func(i int) float64 {
	memory := p.logits.in(p.host.Host())
	if p.logits.spec.DType == tensor.F64 {
		return func(i int) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(memory[8*i:])) }
	}
	return func(i int) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(memory[4*i:]))) }
}

// count adds the targets of a batch. The results of the batch, with logits, must be in slot 0.
func (p *pass) count(b *data.Batch, c *task.Confusion) {
	classes, at := len(c.Hits), p.scores()
	for i, label := range data.Values[int32](b, task.Labels) {
		if label < 0 {
			continue
		}
		if c.Independent {
			c.CountIndependent(i%classes, label == 1, at(i) > 0)
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
