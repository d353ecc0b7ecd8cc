package data

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Verify reads and decodes every sample of ds with several workers. found is called for each that cannot be read, by
// one goroutine at a time; progress, if not nil, now and then with the samples done. The error is one that is not the
// data's, such as a want of memory or file handles, or that of ctx.
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
			defer r.Close() // holds no unwritten data
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

// readWhole reads a sample at its full size.
func readWhole(r Reader, i int) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &Fault{Op: "decode sample", Index: i, Err: fmt.Errorf("decoder panicked: %v", p)}
		}
	}()
	var img Image
	return r.Read(i, nil, &img)
}
