package data

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Verify reads and decodes every sample of ds with several workers. It calls found for each unreadable sample, from one
// goroutine at a time. If progress is not nil, Verify sometimes calls it with the number of samples done. Verify
// returns an error for causes other than the data, such as a lack of memory or file descriptors, or the end of ctx.
func Verify(ctx context.Context, ds Dataset, workers int, progress func(done int), found func(*Fault)) error {
	var next, done atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make([]error, workers)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for w := range workers {
		r, err := ds.NewReader()
		if err != nil {
			errs[w] = fmt.Errorf("open a reader: %w", err)
			break
		}
		wg.Go(func() {
			defer r.Close() // read only
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= ds.Len() {
					return
				}
				var fault *Fault
				err := readWhole(r, i)
				switch {
				case errors.As(err, &fault) && !Exhausted(err):
					mu.Lock()
					found(fault)
					mu.Unlock()
				case err != nil:
					errs[w] = err
					cancel()
					return
				}
				if n := done.Add(1); progress != nil && n%256 == 0 {
					mu.Lock()
					progress(int(n))
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return ctx.Err()
}

// readWhole decodes a sample at full size.
func readWhole(r Reader, i int) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &Fault{Op: "decode sample", Index: i, Err: fmt.Errorf("decoder panicked: %v", p)}
		}
	}()
	var img Image
	return r.Read(i, nil, &img)
}
