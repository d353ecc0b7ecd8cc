package train

import (
	"context"
	"fmt"
	"hash/crc32"
	"math"
	"time"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/engine/train/shares"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// wish contains the actions that a rank requests after a step. If one rank requests an action, all ranks perform it.
type wish struct {
	stop, timeOver bool
	save           bool // save a checkpoint of the step, because a user requested it
	due            bool // save a checkpoint of the step, because the interval has passed
	compare        bool // compare the replicas after the step
	saving         bool // rank 0 is still writing an earlier checkpoint
	full           bool // rank 0 can hold no more records in memory
	unready        bool // postpone a change of shares, because this rank's plans are not ready
	// shares.Hash of the next shares, 0 without a change; must be equal on all ranks, unlike the other fields
	change uint32
}

// reports exchanges the RankSteps and wishes of all ranks with one small all-gather.
type reports struct {
	group *gradsync.Group
	rows  *gradsync.Rows
	all   []RankStep
}

// reportRow is the wire format of a report. Like gradients, it has the byte order of the machine.
type reportRow struct {
	loss, sampleLoss                          float64
	data, forward, backward, exchanges, other time.Duration // of this step
	communication, hidden, optimizer          time.Duration // of the previous step
	samples, count, top1, top5, change        uint32
	sampleTop1                                uint32
	sum                                       uint32 // of all other bytes, because networks can corrupt data
	replaced                                  uint16
	flags, firstLink                          uint8
	telemetry                                 [telemetry.Count]float32 // float32, because no sensor has more digits
	links                                     [LinksPerStep]linkRow
}

// linkRow is the traffic of a link. The counts are float64, because a float32 cannot count single bytes above 16 MiB.
type linkRow struct {
	sent, received           float32
	sentBytes, receivedBytes float64
}

// Bits of reportRow.flags.
const (
	flagStop = 1 << iota
	flagTimeOver
	flagUnready
	flagSave
	flagDue
	flagCompare
	flagSaving
	flagFull
)

func newReports(dev device.Device, group *gradsync.Group) (*reports, error) {
	rows, err := group.NewRows(dev, "reports", int64(unsafe.Sizeof(reportRow{})))
	if err != nil {
		return nil, err
	}
	return &reports{group: group, rows: rows}, nil
}

// close frees the memory of the reports. No exchange may be in flight.
func (x *reports) close() error {
	if x == nil {
		return nil
	}
	return x.rows.Close()
}

// rowOf returns the report in the bytes of a row.
func rowOf(row []byte) *reportRow { return (*reportRow)(unsafe.Pointer(unsafe.SliceData(row))) }

// exchange sends this rank's report and waits for the reports of all ranks.
func (x *reports) exchange(ctx context.Context, own RankStep, want wish) ([]RankStep, wish, error) {
	x.put(&own, want)
	if err := x.rows.Exchange(ctx); err != nil {
		return nil, wish{}, err
	}
	return x.read()
}

// put writes this rank's report to its row.
func (x *reports) put(s *RankStep, w wish) {
	t := &s.Times
	row := rowOf(x.rows.Own())
	*row = reportRow{loss: s.Loss, samples: uint32(s.Samples), count: uint32(s.Count), top1: uint32(s.Top1),
		top5:       uint32(s.Top5),
		sampleLoss: s.SampleLoss, sampleTop1: uint32(s.SampleTop1),
		data: t.Data, forward: t.Forward, backward: t.Backward, exchanges: t.Exchanges, other: s.Other,
		communication: t.Communication, hidden: t.Hidden, optimizer: t.Optimizer,
		change: w.change, replaced: uint16(min(s.Replaced, math.MaxUint16)),
		flags: flag(w.stop, flagStop) | flag(w.timeOver, flagTimeOver) | flag(w.unready, flagUnready) | flag(w.save,
			flagSave) | flag(w.due, flagDue) |
			flag(w.compare, flagCompare) | flag(w.saving, flagSaving) | flag(w.full, flagFull)}
	for i, v := range s.Telemetry {
		row.telemetry[i] = float32(v)
	}
	row.firstLink = uint8(s.Links.First)
	for i, l := range s.Links.Traffic {
		row.links[i] = linkRow{sent: float32(l.Sent), received: float32(l.Received), sentBytes: l.SentBytes,
			receivedBytes: l.ReceivedBytes}
	}
	row.sum = row.checksum()
}

// checksum returns the checksum of all bytes except those of the field sum.
func (r *reportRow) checksum() uint32 {
	all := unsafe.Slice((*byte)(unsafe.Pointer(r)), unsafe.Sizeof(*r))
	at := unsafe.Offsetof(r.sum)
	return crc32.Update(crc32.Checksum(all[:at], castagnoli), castagnoli, all[at+unsafe.Sizeof(r.sum):])
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli) // CPUs have an instruction for it

// read returns the reports of all ranks and their combined wish. The exchange must be complete. The reports are valid
// until the next exchange. If a report was corrupted in transit, or if the splitters of the ranks disagree, read
// returns an error. Otherwise training would continue with wrong shares.
func (x *reports) read() ([]RankStep, wish, error) {
	flags := uint8(0)
	if size := x.group.Size(); len(x.all) != size {
		x.all = make([]RankStep, size)
	}
	for rank := range x.all {
		if row := rowOf(x.rows.Row(rank)); row.sum != row.checksum() {
			return nil, wish{}, fmt.Errorf("report of rank %d: checksum differs: %w", rank, collective.ErrDamaged)
		}
	}
	first := rowOf(x.rows.Row(0)).change
	for rank := range x.all {
		r := rowOf(x.rows.Row(rank))
		if r.change != first {
			return nil, wish{}, shares.Disagreement(rank)
		}
		x.all[rank] = RankStep{Sums: replica.Sums{Loss: r.loss, Samples: int(r.samples), Count: int(r.count),
			Top1: int(r.top1), Top5: int(r.top5),
			SampleLoss: r.sampleLoss, SampleTop1: int(r.sampleTop1)}, Other: r.other,
			Times: replica.StepTimes{Data: r.data, Forward: r.forward, Backward: r.backward, Exchanges: r.exchanges,
				Communication: r.communication, Hidden: r.hidden, Optimizer: r.optimizer},
			Replaced: int(r.replaced)}
		for i, v := range r.telemetry {
			x.all[rank].Telemetry[i] = float64(v)
		}
		x.all[rank].Links.First = int(r.firstLink)
		for i, l := range r.links {
			x.all[rank].Links.Traffic[i] = telemetry.Traffic{Sent: float64(l.sent), Received: float64(l.received),
				SentBytes: l.sentBytes, ReceivedBytes: l.receivedBytes}
		}
		flags |= r.flags
	}
	return x.all, wish{stop: flags&flagStop != 0, timeOver: flags&flagTimeOver != 0, unready: flags&flagUnready != 0,
		save: flags&flagSave != 0,
		due:  flags&flagDue != 0, compare: flags&flagCompare != 0, saving: flags&flagSaving != 0,
		full: flags&flagFull != 0}, nil
}

func flag(set bool, bit uint8) uint8 {
	if set {
		return bit
	}
	return 0
}
