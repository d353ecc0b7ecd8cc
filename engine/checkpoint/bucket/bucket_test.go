package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/objects/s3test"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

const place = "s3://runs/all/one/checkpoints"

// open returns a server, a folder in the server's bucket, and an empty Store on this machine.
func open(t *testing.T) (*s3test.Server, *Folder, *checkpoint.Store) {
	t.Helper()
	s := s3test.New(t)
	f, err := Open(place)
	if err != nil {
		t.Fatal(err)
	}
	store, err := checkpoint.Open(filepath.Join(t.TempDir(), "checkpoints"), checkpoint.Options{Keep: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return s, f, store
}

// save saves a checkpoint whose only weight is its step.
func save(t *testing.T, store *checkpoint.Store, step int64, best bool) string {
	t.Helper()
	w := checkpoint.Tensor{Name: "w", DType: tensor.F32, Shape: []int{1000},
		Data: bytes.Repeat([]byte{byte(step)}, 4000)}
	saved, err := store.Save(t.Context(), checkpoint.Snapshot{State: checkpoint.State{Step: step},
		Model: []checkpoint.Tensor{w}, Best: best})
	if err != nil {
		t.Fatal(err)
	}
	return saved.Path
}

func uploader(f *Folder) *Uploader {
	return NewUploader(f, Options{Keep: 2, Logger: slog.New(slog.DiscardHandler), retry: time.Millisecond})
}

// upload uploads a checkpoint.
func upload(t *testing.T, f *Folder, path string) {
	t.Helper()
	u := uploader(f)
	u.Saved(path)
	if err := u.Close(within(t)); err != nil {
		t.Fatal(err)
	}
}

// within returns a context with a time limit, for waits that could hang.
func within(t *testing.T) context.Context {
	ctx, end := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(end)
	return ctx
}

func TestACheckpointIsUploadedAndDownloaded(t *testing.T) {
	s, f, store := open(t)
	u := uploader(f)
	path := save(t, store, 5, true)
	u.Saved(path)
	if err := u.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	var last string
	for _, r := range s.Requests() {
		if r.Method == "PUT" && strings.Contains(r.Key, "step-") {
			last = r.Key
		}
	}
	if !strings.HasSuffix(last, "/MANIFEST") {
		t.Errorf("the last object is %s, want MANIFEST", last)
	}
	step, ok, err := f.Newest(t.Context())
	if step != 5 || !ok || err != nil {
		t.Fatal(step, ok, err)
	}
	dir := t.TempDir()
	copied, err := f.Download(t.Context(), 5, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"model.safetensors", "state.json", "MANIFEST"} {
		a, errA := os.ReadFile(filepath.Join(path, name))
		b, errB := os.ReadFile(filepath.Join(copied, name))
		if err := errors.Join(errA, errB); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c, _, err := checkpoint.Latest(dir); err != nil || c.State.Step != 5 {
		t.Error(err)
	}
}

// The test interrupts an upload after each request.
func TestAnInterruptedUploadIsNotVisible(t *testing.T) {
	s, f, store := open(t)
	upload(t, f, save(t, store, 1, false))
	path := save(t, store, 2, false)
	for most := 0; ; most++ {
		requests := 0
		s.Inject(func(r s3test.Request) *s3test.Fault {
			if requests++; requests > most {
				return &s3test.Fault{Status: 403, Code: "AccessDenied"}
			}
			return nil
		})
		c, err := openFiles(path)
		if err != nil {
			t.Fatal(err)
		}
		err = f.upload(t.Context(), c, true)
		c.close()
		s.Inject(nil)
		step, ok, newestErr := f.Newest(t.Context())
		if !ok || newestErr != nil {
			t.Fatal(ok, newestErr)
		}
		dir := t.TempDir()
		if _, err := f.Download(t.Context(), step, dir); err != nil {
			t.Errorf("after %d requests: %v", most, err)
		}
		if err == nil {
			if step != 2 || most < 5 {
				t.Errorf("after %d requests, the newest checkpoint is that of step %d", most, step)
			}
			return
		}
	}
}

func TestOldCheckpointsAreRemovedButNotTheBest(t *testing.T) {
	s, f, store := open(t)
	for step := int64(1); step <= 6; step++ {
		upload(t, f, save(t, store, step, step == 2))
	}
	steps, all, err := f.complete(t.Context())
	if err != nil || !slices.Equal(steps, []int64{6, 5, 2}) || len(all) != 3 {
		t.Errorf("got %v, want the steps 6, 5 and 2: %v %q", steps, err, s.Keys("runs"))
	}
}

// A run that resumes from an earlier step must not use the checkpoints of later steps, which an earlier run uploaded.
func TestARunThatWentBackDoesNotTakeLaterCheckpoints(t *testing.T) {
	s, f, store := open(t)
	upload(t, f, save(t, store, 7, false))
	upload(t, f, save(t, store, 8, false))
	// Step 3 is not in the bucket, and is earlier than all steps in the bucket.
	if err := f.Rewind(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := f.Newest(t.Context()); ok || err != nil {
		t.Errorf("got step %d of the branch that the run has left: %v", got, err)
	}
	upload(t, f, save(t, store, 4, false))
	if got, ok, err := f.Newest(t.Context()); got != 4 || !ok || err != nil {
		t.Errorf("got step %d, want 4: %v", got, err)
	}
	// When the run reaches the steps of the old checkpoints again, none of these may count as one of the newest.
	upload(t, f, save(t, store, 9, false))
	if steps, all, err := f.complete(t.Context()); err != nil || !slices.Equal(steps, []int64{9, 4}) || len(all) != 2 {
		t.Errorf("got %v, want 9 and 4: %v %q", steps, err, s.Keys("runs"))
	}
	if err := f.Hide(t.Context(), 9, Quarantined); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := f.Newest(t.Context()); got != 4 || !ok || err != nil {
		t.Errorf("got step %d, want 4: %v", got, err)
	}
	// `latest` names a missing step. The folder then has no newest checkpoint, even if the bucket lists later steps.
	s.Store("runs", "all/one/checkpoints/latest", []byte("step-00000002\n"))
	if got, ok, err := f.Newest(t.Context()); ok || err != nil {
		t.Errorf("got step %d, want none: %v", got, err)
	}
}

func TestAnEqualCheckpointIsNotUploadedAgain(t *testing.T) {
	s, f, store := open(t)
	path := save(t, store, 1, false)
	for k := range 2 {
		upload(t, f, path)
		for _, r := range s.Requests() {
			if k == 1 && (r.Method == "DELETE" || r.Method == "PUT" && strings.Contains(r.Key, "step-")) {
				t.Errorf("%s %s", r.Method, r.Key)
			}
		}
	}
	// An incomplete copy must be uploaded again.
	s.Forget("runs", "all/one/checkpoints/step-00000001/model.safetensors", "")
	upload(t, f, path)
	if _, err := f.Download(t.Context(), 1, t.TempDir()); err != nil {
		t.Error(err)
	}
}

func TestDownloadsToOneFolderShareACopy(t *testing.T) {
	s, f, store := open(t)
	upload(t, f, save(t, store, 1, false))
	s.Requests()
	dir := filepath.Join(t.TempDir(), "a [b]*")
	left := filepath.Join(dir, checkpoint.Unfinished("step-00000009")+"-1")
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			path, err := f.Download(t.Context(), 1, dir)
			if err != nil {
				t.Error(err)
				return
			}
			if c, err := checkpoint.Load(path); err != nil {
				t.Error(err)
			} else {
				c.Close()
			}
		})
	}
	all.Wait()
	models := 0
	for _, r := range s.Requests() {
		if r.Method == "GET" && strings.HasSuffix(r.Key, "/model.safetensors") {
			models++
		}
	}
	if _, err := os.Stat(left); models != 1 || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the weights were requested %d times, want once; a leftover: %v", models, err)
	}
	// A damaged copy must be replaced.
	model := filepath.Join(dir, "step-00000001", "model.safetensors")
	if err := os.Truncate(model, 10); err != nil {
		t.Fatal(err)
	}
	if path, err := f.Download(t.Context(), 1, dir); err != nil {
		t.Error(path, err)
	} else if info, err := os.Stat(model); err != nil || info.Size() < 4000 {
		t.Error(info.Size(), err)
	}
}

func TestALostNetworkDelaysAnUpload(t *testing.T) {
	s, f, store := open(t)
	var failures atomic.Int64
	s.Inject(func(r s3test.Request) *s3test.Fault {
		if failures.Add(1) < 4 {
			return &s3test.Fault{Status: 403, Code: "ExpiredToken"}
		}
		return nil
	})
	u := uploader(f)
	u.Saved(save(t, store, 1, false))
	for s.Body("runs", "all/one/checkpoints/latest") == nil {
		time.Sleep(time.Millisecond)
	}
	if err := u.Close(within(t)); err != nil || failures.Load() < 4 {
		t.Error(err, failures.Load())
	}
}

func TestAFailedUploadIsAnErrorAtTheEnd(t *testing.T) {
	s, f, store := open(t)
	s.Inject(func(s3test.Request) *s3test.Fault { return &s3test.Fault{Status: 403, Code: "AccessDenied"} })
	u := uploader(f)
	path := save(t, store, 1, false)
	u.Saved(path)
	err := u.Close(within(t))
	var failed *Error
	if !errors.As(err, &failed) || failed.Checkpoint != path || !strings.Contains(err.Error(), "s3:") {
		t.Errorf("got %v", err)
	}
	s.Inject(func(s3test.Request) *s3test.Fault { return &s3test.Fault{Status: 503, Code: "SlowDown"} })
	u = uploader(f)
	u.Saved(path)
	late, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	if err := u.Close(late); !errors.As(err, &failed) {
		t.Errorf("got %v", err)
	}
}

// The files of a checkpoint may be removed while its upload waits.
func TestAnUploadReadsFilesThatWereRemoved(t *testing.T) {
	s, f, store := open(t)
	release := make(chan struct{})
	s.Inject(func(r s3test.Request) *s3test.Fault { <-release; return nil })
	u := uploader(f)
	path := save(t, store, 1, false)
	u.Saved(path)
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	close(release)
	if err := u.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Download(t.Context(), 1, t.TempDir()); err != nil {
		t.Error(err)
	}
}

func TestDamagedAndHostileObjectsAreRefused(t *testing.T) {
	s, f, store := open(t)
	upload(t, f, save(t, store, 1, false))
	key := "all/one/checkpoints/step-00000001/"
	model := s.Body("runs", key+"model.safetensors")
	damaged := bytes.Clone(model)
	damaged[len(damaged)-1]++
	for _, c := range []struct {
		key  string
		body []byte
	}{{key + "model.safetensors", damaged}, {key + "model.safetensors", model[:100]}, {key + "a/b", []byte("x")},
		{key + "../../x", []byte("x")}} {
		s.Store("runs", c.key, c.body)
		dir := t.TempDir()
		_, err := f.Download(t.Context(), 1, dir)
		entries, readErr := os.ReadDir(dir)
		if err == nil || readErr != nil || len(entries) != 1 || entries[0].Name() != lockFile {
			t.Errorf("%s: got %v; the folder has %v", c.key, err, fmt.Sprint(entries))
		}
		s.Store("runs", key+"model.safetensors", model)
		s.Forget("runs", c.key, key+"model.safetensors")
	}
}
