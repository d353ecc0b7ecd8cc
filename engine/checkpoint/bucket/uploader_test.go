package bucket

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/objects/s3test"
)

// uploading starts the upload of a checkpoint. All requests wait until release is called.
func uploading(t *testing.T, s *s3test.Server, f *Folder, path string) (u *Uploader, release func()) {
	t.Helper()
	open := make(chan struct{})
	var waiting atomic.Int64
	s.Inject(func(s3test.Request) *s3test.Fault {
		waiting.Add(1)
		<-open
		return nil
	})
	u = uploader(f)
	u.Saved(path)
	until(t, "the upload did not begin", func() bool { return waiting.Load() > 0 })
	return u, func() { close(open) }
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func TestAFolderThatIsMissingIsAnError(t *testing.T) {
	_, f, store := open(t)
	u := uploader(f)
	path := save(t, store, 1, false)
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	u.Saved(path)
	var failed *Error
	if err := u.Close(within(t)); !errors.As(err, &failed) || failed.Checkpoint != path {
		t.Errorf("got %v", err)
	}
}

func TestTheErrorOfTheNewestCheckpointStays(t *testing.T) {
	s, f, store := open(t)
	u, release := uploading(t, s, f, save(t, store, 1, false))
	path := save(t, store, 2, false)
	if err := os.Remove(filepath.Join(path, manifestFile)); err != nil {
		t.Fatal(err)
	}
	u.Saved(path)
	release()
	var failed *Error
	if err := u.Close(within(t)); !errors.As(err, &failed) || failed.Checkpoint != path {
		t.Errorf("got %v, want an error: the newest checkpoint is not in the bucket", err)
	}
	if has, err := f.Has(t.Context(), 1); err != nil || !has {
		t.Errorf("the older checkpoint is not in the bucket: %v", err)
	}
}

func TestTheBestCheckpointIsNotLeftOut(t *testing.T) {
	s, f, store := open(t)
	u, release := uploading(t, s, f, save(t, store, 1, true))
	u.Saved(save(t, store, 2, true))
	u.Saved(save(t, store, 3, false))
	u.Saved(save(t, store, 4, false))
	release()
	if err := u.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	has, err := f.Has(t.Context(), 2)
	best, bestErr := f.pointer(t.Context(), bestFile)
	newest, ok, newestErr := f.Newest(t.Context())
	if err := errors.Join(err, bestErr, newestErr); err != nil || !has || best != "step-00000002" || newest != 4 ||
		!ok {
		t.Errorf("best is %q (in the bucket: %v), the newest is %d: %v", best, has, newest, err)
	}
}

func TestACanceledUploadLeavesNoCheckpoint(t *testing.T) {
	s, f, store := open(t)
	u, release := uploading(t, s, f, save(t, store, 5, false))
	u.Saved(save(t, store, 6, false)) // waits for the upload of step 5
	u.Cancel(func(step int64, manifest []byte) bool {
		return step >= 5 && strings.Contains(string(manifest), "model")
	})
	release()
	if err := u.Close(within(t)); err != nil {
		t.Error(err)
	}
	if any, err := f.Any(t.Context()); any || err != nil {
		t.Errorf("the bucket has %q: %v", s.Keys("runs"), err)
	}
}

func TestARollBackHidesLaterCheckpoints(t *testing.T) {
	_, f, store := open(t)
	u := uploader(f)
	for step := int64(1); step <= 3; step++ {
		u.Saved(save(t, store, step, step == 3))
		until(t, "a checkpoint is not uploaded", func() bool {
			has, err := f.Has(t.Context(), step)
			return has && err == nil
		})
	}
	u.RolledBack(2)
	if err := u.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	steps, _, err := f.complete(t.Context())
	newest, ok, newestErr := f.Newest(t.Context())
	best, bestErr := f.pointer(t.Context(), bestFile)
	if err := errors.Join(err, newestErr, bestErr); err != nil || newest != 2 || !ok || len(steps) == 0 ||
		steps[0] != 2 || best != "" {
		t.Errorf("complete %v, newest %d, best %q: %v", steps, newest, best, err)
	}
}

func TestOnlyOneProcessWritesToAFolder(t *testing.T) {
	s, first, store := open(t)
	other, err := Open(place)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Claim(t.Context(), "run-a", ""); err != nil {
		t.Fatal(err)
	}
	var taken *TakenError
	if err := other.Claim(t.Context(), "run-b", ""); !errors.As(err, &taken) {
		t.Errorf("both runs claimed the folder: %v", err)
	}
	u := uploader(first)
	u.Saved(save(t, store, 1, false))
	until(t, "the checkpoint is not uploaded", func() bool {
		return s.Body("runs", "all/one/checkpoints/latest") != nil
	})
	if err := other.Claim(t.Context(), "run-b", "run-a"); err != nil { // with the current owner
		t.Fatal(err)
	}
	u.Saved(save(t, store, 2, false))
	if err := u.Close(within(t)); !errors.As(err, &taken) || taken.Same {
		t.Errorf("got %v, want that another run has taken the folder", err)
	}
	if has, err := first.Has(t.Context(), 2); has || err != nil {
		t.Error("the first process has written after the second has claimed the folder", err)
	}
	if err := first.retain(t.Context(), 9, 1); !errors.As(err, &taken) {
		t.Errorf("retain: got %v", err)
	}
	if has, err := first.Has(t.Context(), 1); !has || err != nil {
		t.Error("the first process has removed a checkpoint", err)
	}
	// First, the server does not implement conditional writes. Then, the response to a write is lost.
	s.Inject(func(r s3test.Request) *s3test.Fault {
		if r.Condition != "" && r.Method == "PUT" {
			return &s3test.Fault{Status: 501, Code: "NotImplemented"}
		}
		return nil
	})
	if err := first.Claim(t.Context(), "run-b", "run-b"); err != nil {
		t.Error(err)
	}
	var lost atomic.Bool
	s.Inject(func(r s3test.Request) *s3test.Fault {
		if r.Method == "PUT" && !lost.Swap(true) {
			return &s3test.Fault{Lose: true}
		}
		return nil
	})
	if err := other.Claim(t.Context(), "run-b", "run-b"); err != nil || !lost.Load() {
		t.Error(err)
	}
	if err := first.check(t.Context()); !errors.As(err, &taken) || !taken.Same {
		t.Errorf("got %v, want that another process of the run has taken the folder", err)
	}
}
