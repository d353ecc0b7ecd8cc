package replica

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
)

// Batches returns the micro-batches of a run in order.
type Batches interface {
	Next(ctx context.Context) (*data.Batch, error)
}

// feed prefetches micro-batches for a device with asynchronous streams. While the device computes with one batch,
// feed reads the next batch into page-locked memory. A second stream copies this batch to the staging area at the end
// of the arena. The computing stream then copies the batch to the inputs of the pass.
type feed struct {
	stream device.Stream
	host   device.Buffer // page-locked memory with the layout of the inputs of a pass's host memory
	ready  device.Event  // completes when the batch is in the staging area
	taken  device.Event  // completes when the computing stream has copied the batch out of the staging area

	facts func(b *data.Batch, p *plans) (batchFacts, error) // Replica.factsOf

	staged  bool
	batches Batches // source of the staged batch
	plans   *plans
	at      device.Region // staging area in the arena
	batch   batchFacts
	err     error // error of staging the batch
}

// batchFacts are the counts of a batch that a step needs.
type batchFacts struct {
	n               int // number of samples
	total           int // data.Batch.Total
	step            int // data.Batch.StepSamples
	count           int // number of targets that count
	stepLabels      int // data.Batch.StepLabels
	pass            *pass
	length          int // data.Batch.Length
	epoch, replaced int
}

// patience is the time that the host waits for a copy before it checks whether the device has failed.
const patience = 10 * time.Second

func newFeed(dev device.Device, bytes int64) (_ *feed, err error) {
	f := &feed{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("replica: prepare staging of batches: %w", err), f.close())
		}
	}()
	if f.stream, err = dev.NewStream(); err != nil {
		return nil, err
	}
	if f.host, err = dev.AllocHost(max(bytes, 1)); err != nil {
		return nil, err
	}
	if f.ready, err = dev.NewEvent(); err != nil {
		return nil, err
	}
	if f.taken, err = dev.NewEvent(); err != nil {
		return nil, err
	}
	return f, f.taken.Complete() // the staging area is free
}

func (f *feed) close() error {
	var errs []error
	if f.stream != nil {
		errs = append(errs, f.stream.Sync(), f.stream.Close())
	}
	for _, e := range []device.Event{f.ready, f.taken} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	if f.host != nil {
		errs = append(errs, f.host.Free())
	}
	return errors.Join(errs...)
}

// wait blocks until e is complete or the device has failed.
func (f *feed) wait(e device.Event, stream device.Stream) error {
	for {
		err := e.WaitHost(patience)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if err := stream.Sync(); err != nil {
			return err
		}
	}
}

// stage reads the next batch for a pass of p and starts its copy to the staging area. If stage fails, take returns the
// error. The parameter computes is the stream that copied the previous batch out of the staging area.
func (f *feed) stage(ctx context.Context, batches Batches, p *plans, at device.Region, computes device.Stream) {
	f.staged, f.batches, f.plans, f.at = true, batches, p, at
	f.err = f.begin(ctx, computes)
}

func (f *feed) begin(ctx context.Context, computes device.Stream) error {
	batch, err := f.batches.Next(ctx)
	if err != nil {
		return err
	}
	defer batch.Release()
	if f.batch, err = f.facts(batch, f.plans); err != nil {
		return err
	}
	pass := f.batch.pass
	if err := f.wait(f.taken, computes); err != nil {
		return fmt.Errorf("replica: wait for the previous batch: %w", err)
	}
	if err := pass.fill(batch, f.host.Host()); err != nil || pass.batchBytes == 0 {
		return err
	}
	if err := errors.Join(f.ready.Reset(), f.taken.Reset()); err != nil {
		return err
	}
	err = f.stream.Copy(f.at, device.Region{Buffer: f.host, Bytes: pass.batchBytes})
	return errors.Join(err, f.stream.Record(f.ready))
}

// take enqueues the copy of the staged batch to the inputs of its pass, which belongs to p. If no batch is staged, take
// stages one first.
func (f *feed) take(ctx context.Context, batches Batches, p *plans, at device.Region, stream device.Stream) (batchFacts,
	error) {
	if f.staged && (f.batches != batches || f.plans != p) {
		if err := f.discard(); err != nil {
			return batchFacts{}, err
		}
	}
	if !f.staged {
		f.stage(ctx, batches, p, at, stream)
	}
	f.staged = false
	pass := f.batch.pass
	if f.err != nil || pass.batchBytes == 0 {
		return f.batch, f.err
	}
	if err := stream.Wait(f.ready); err != nil {
		return f.batch, err
	}
	for _, name := range pass.fields {
		t := pass.inputs[name]
		from := device.Region{Buffer: f.at.Buffer, Offset: f.at.Offset + t.host.Offset, Bytes: t.dev.Bytes}
		if err := stream.Copy(t.dev, from); err != nil {
			return f.batch, fmt.Errorf("replica: input %s: %w", name, err)
		}
	}
	return f.batch, stream.Record(f.taken)
}

// discard drops the staged batch, if there is one. The caller continues at another position of the data.
func (f *feed) discard() error {
	if f == nil || !f.staged {
		return nil
	}
	f.staged = false
	if f.err != nil || f.batch.pass.batchBytes == 0 {
		return nil
	}
	return errors.Join(f.wait(f.ready, f.stream), f.taken.Complete())
}
