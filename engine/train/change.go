package train

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
)

// setShares sets the number of samples of each micro-batch for every rank, from the next Step on. All ranks pass the
// same shares. setShares compiles plans for this rank's share only if the cache does not contain them.
func (r *Replica) setShares(samples []int) error {
	if err := r.checkShares(samples); err != nil {
		return err
	}
	peers := r.opts.Peers
	p, err := r.plans.acquire(samples[peers.Grads.Rank()])
	if err != nil {
		return err
	}
	if err := r.sums.SetShares(samples); err != nil {
		return err
	}
	peers.Shares = slices.Clone(samples)
	r.plans.release(r.now)
	r.now = p
	return nil
}

// SetSamples sets the number of samples of each micro-batch from the next Step on. It is only for a replica without
// peers. n is at most the number of samples of a micro-batch of ReplicaOptions, and consists of whole groups of batch
// normalisation. From then on, the caller passes batches of n samples to Step.
func (r *Replica) SetSamples(n int) error {
	switch most, unit := r.opts.microBatch(), r.opts.wholeGroup(); {
	case r.opts.Peers != nil:
		return fmt.Errorf("replica: got %d samples of one rank, want the shares of all %d ranks", n, r.opts.Peers.Grads.Size())
	case n < 1 || n > most || n%unit != 0:
		return fmt.Errorf("replica: got %d samples of a micro-batch, want 1 to %d, in multiples of %d", n, most, unit)
	}
	if err := r.forget(); err != nil {
		return err
	}
	p, err := r.plans.acquire(n)
	if err != nil {
		return err
	}
	r.plans.release(r.now)
	r.now = p
	return nil
}

// change is a change of shares in progress. All ranks switch at the same step, after each rank has plans for its new
// share.
type change struct {
	shares []int
	hash   uint32       // hash of shares, never 0
	own    *plans       // plans of this rank; the change holds them in the cache; nil until they are ready
	coming chan planned // receives the plans; nil if the cache already contained them
}

// planned is the result of planning in the background.
type planned struct {
	plans *plans
	err   error
}

// prepareShares starts to compile plans for this rank's share in the background, while training continues.
func (r *Replica) prepareShares(samples []int) (*change, error) {
	if err := r.checkShares(samples); err != nil {
		return nil, err
	}
	n := samples[r.opts.Peers.Grads.Rank()]
	c := &change{shares: slices.Clone(samples), hash: hashOf(samples), own: r.plans.acquireBound(n)}
	if c.own != nil {
		return c, nil
	}
	c.coming = make(chan planned, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread and the device's per-thread resources end with the goroutine
		p, err := r.plans.acquire(n)
		c.coming <- planned{p, err}
	}()
	return c, nil
}

// poll checks without blocking whether the plans are ready. If the plans cannot be compiled, poll returns an error,
// which ends the run.
func (c *change) poll(rank int) error {
	if c.own != nil {
		return nil
	}
	select {
	case p := <-c.coming:
		if p.err != nil {
			return fmt.Errorf("prepare shares %v: plan rank %d for %d samples: %w", c.shares, rank, c.shares[rank], p.err)
		}
		c.own = p.plans
	default:
	}
	return nil
}

// split asks the splitter for shares, and switches to these shares once all ranks have plans for them.
func (r *run) split() error {
	if r.Splitter == nil || r.peers() == nil {
		return nil
	}
	if r.change != nil {
		r.Splitter.Split(r.step, r.reported, true)
		if r.asked.unready {
			return nil
		}
		return r.switchShares()
	}
	shares := r.Splitter.Split(r.step, r.reported, false)
	if shares == nil || slices.Equal(shares, r.peers().Shares) {
		return nil
	}
	c, err := r.Replica.prepareShares(shares)
	if err != nil {
		return fmt.Errorf("prepare shares %v after step %d: %w", shares, r.step, err)
	}
	r.change, r.asked.unready = c, true // postpone the switch until all ranks report that they are ready
	return nil
}

// switchShares switches to the new shares. All ranks have plans for them. The next step uses the new shares.
func (r *run) switchShares() error {
	c := r.change
	r.change = nil
	defer r.Replica.plans.release(c.own)
	read := r.Replica.feed != nil && r.Replica.feed.staged // true if the next step's batch was staged for the old shares
	err := errors.Join(r.Replica.forget(), r.Replica.setShares(c.shares))
	if read {
		err = errors.Join(err, r.jump())
	}
	if err != nil {
		return fmt.Errorf("apply shares %v from step %d on: %w", c.shares, r.step+1, err)
	}
	r.changed, r.sinceChange = true, 0
	reads := r.peers().reads()
	return r.Train.SetShare(r.position()*int64(r.Replica.opts.Accumulation), reads.Offset, reads.Count)
}
