package stored

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/objects/s3test"
)

// When a run ends, its requests must end. This includes requests that would be tried again.
func TestTheEndOfARunEndsItsRequests(t *testing.T) {
	for _, limit := range []int64{0, 1 << 30} {
		s, _ := serve(t, limit)
		s.Store("data", "a", body(100))
		ended := fmt.Errorf("the run ends: %w", context.Canceled)
		ctx, end := context.WithCancelCause(t.Context())
		Within(ctx)
		t.Cleanup(func() {
			end(nil)
			Within(nil)
		})
		for _, open := range []func(string) (File, os.FileInfo, error){Open, OpenRandom} {
			f, _, err := open("s3://data/a")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			started := make(chan struct{}, 100)
			s.Inject(func(r s3test.Request) *s3test.Fault {
				started <- struct{}{}
				return &s3test.Fault{Hold: true}
			})
			done := make(chan error, 1)
			go func() {
				_, err := f.ReadAt(make([]byte, 10), 0)
				done <- err
			}()
			if ctx.Err() == nil {
				<-started
				end(ended)
			}
			select {
			case err := <-done:
				if !errors.Is(err, ended) {
					t.Errorf("got %v, want %v", err, ended)
				}
			case <-time.After(time.Minute):
				t.Fatal("the read did not end")
			}
			s.Inject(nil)
		}
		if _, _, err := Open("s3://data/other"); !errors.Is(err, ended) {
			t.Errorf("open: got %v", err)
		}
		Within(nil)
	}
}

func TestACacheThatCannotBeWrittenCostsNoBlocks(t *testing.T) {
	s, dir := serve(t, 1<<30)
	s.Store("data", "a", body(2*blockBytes))
	if err := os.WriteFile(dir+"/objects", nil, 0o644); err != nil { // a file at the path of the folder
		t.Fatal(err)
	}
	f, _, err := OpenRandom("s3://data/a")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.ReadAt(make([]byte, 10), 0); err != nil { // finds out that the cache cannot be written
		t.Fatal(err)
	}
	s.Requests()
	for k := range 10 {
		if _, err := f.ReadAt(make([]byte, 100), int64(1000*k)); err != nil {
			t.Fatal(err)
		}
	}
	if n, bytes := gets(s); n != 10 || bytes != 1000 {
		t.Errorf("%d requests of %d bytes, want 10 of 1000", n, bytes)
	}
}
