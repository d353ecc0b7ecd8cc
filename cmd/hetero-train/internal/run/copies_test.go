package run

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/checkpoint/bucket"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/objects/s3test"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

const copiesPlace = "s3://runs/all/one/checkpoints"

// copied is a run with checkpoints on this machine and in a bucket.
type copied struct {
	s      *s3test.Server
	dir    string // folder of the run
	store  *checkpoint.Store
	folder *bucket.Folder
	log    bytes.Buffer
}

func newCopied(t *testing.T) *copied {
	t.Helper()
	c := &copied{s: s3test.New(t), dir: filepath.Join(t.TempDir(), "one")}
	var err error
	if c.folder, err = bucket.Open(copiesPlace); err != nil {
		t.Fatal(err)
	}
	c.store, err = checkpoint.Open(filepath.Join(c.dir, checkpointsFolder), checkpoint.Options{Keep: 9})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.store.Close() })
	if err := c.folder.Claim(t.Context(), "run-a", ""); err != nil {
		t.Fatal(err)
	}
	if err := experiment.StoreUploadID(c.dir, "run-a"); err != nil {
		t.Fatal(err)
	}
	return c
}

// save saves checkpoints of these steps, with the single weight value, and uploads them.
func (c *copied) save(t *testing.T, value byte, steps ...int64) {
	t.Helper()
	for _, step := range steps {
		w := checkpoint.Tensor{Name: "w", DType: tensor.F32, Shape: []int{10},
			Data: bytes.Repeat([]byte{value, byte(step), 0, 0}, 10)}
		saved, err := c.store.Save(t.Context(), checkpoint.Snapshot{State: checkpoint.State{Step: step},
			Model: []checkpoint.Tensor{w}})
		if err != nil {
			t.Fatal(err)
		}
		u := bucket.NewUploader(c.folder, bucket.Options{Keep: 9, Logger: slog.New(slog.DiscardHandler)})
		u.Saved(saved.Path)
		if err := u.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// fetch opens the run again on a machine, and returns the step of the newest checkpoint in dir afterwards.
func (c *copied) fetch(t *testing.T, dir string) (step int64, err error) {
	t.Helper()
	run, err := experiment.Open(experiment.Options{OutputDir: filepath.Dir(dir), Name: filepath.Base(dir), Resume: "auto",
		Source: &copies{ctx: t.Context(), folder: c.folder, log: slog.New(slog.NewTextHandler(&c.log, nil))}})
	if err != nil {
		return 0, err
	}
	defer run.Close()
	if run.Checkpoint == nil {
		return -1, nil
	}
	defer run.Checkpoint.Close()
	return run.Checkpoint.State.Step, nil
}

func (c *copied) want(t *testing.T, dir string, want int64) {
	t.Helper()
	if got, err := c.fetch(t, dir); err != nil || got != want {
		t.Errorf("got step %d, want %d: %v\n%s", got, want, err, &c.log)
	}
}

func TestAResumeFromAnEarlierStepIsNotUndone(t *testing.T) {
	c := newCopied(t)
	c.save(t, 1, 1, 2, 3, 11, 12)
	if _, err := c.store.SetAside(3); err != nil { // sets the checkpoint aside without a change of the bucket
		t.Fatal(err)
	}
	c.want(t, c.dir, 3)
	if err := c.folder.Rewind(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	c.want(t, filepath.Join(t.TempDir(), "elsewhere"), 3)
	// The run must use another checkpoint of a step whose first checkpoint was set aside.
	c.save(t, 2, 12)
	if err := os.RemoveAll(filepath.Join(c.dir, checkpointsFolder, "step-00000012")); err != nil {
		t.Fatal(err)
	}
	c.want(t, c.dir, 12)
}

func TestAQuarantinedCheckpointDoesNotComeBack(t *testing.T) {
	c := newCopied(t)
	c.save(t, 1, 1, 2, 3)
	if _, err := c.store.Quarantine(2, "wrong values"); err != nil {
		t.Fatal(err)
	}
	c.want(t, c.dir, 2)
	if m, err := c.folder.Manifest(t.Context(), 3); m != nil || err != nil {
		t.Errorf("the copy of the quarantined checkpoint is visible: %v", err)
	}
	c.want(t, filepath.Join(t.TempDir(), "elsewhere"), 2)
	// After the cause of the fault was removed, the run saves the same bytes again.
	c.save(t, 1, 3)
	c.want(t, c.dir, 3)
	if m, err := c.folder.Manifest(t.Context(), 3); m == nil || err != nil {
		t.Errorf("the new checkpoint is hidden: %v", err)
	}
}

func TestCheckpointsOfAnotherRunAreNotFetched(t *testing.T) {
	c := newCopied(t)
	c.save(t, 1, 1, 2)
	if err := experiment.StoreUploadID(c.dir, "run-b"); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(c.dir, checkpointsFolder, "step-00000002")); err != nil {
		t.Fatal(err)
	}
	c.want(t, c.dir, 1)
	// If a machine without the folder continues the run, the run must keep its identifier.
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	c.want(t, elsewhere, 2)
	if id, err := experiment.UploadID(elsewhere); id != "run-a" || err != nil {
		t.Errorf("got the ID %q: %v", id, err)
	}
}

func TestADamagedCopyDoesNotBlockTheStart(t *testing.T) {
	c := newCopied(t)
	c.save(t, 1, 1, 2, 3)
	key := "all/one/checkpoints/step-00000003/model.safetensors"
	good := c.s.Body("runs", key)
	c.s.Store("runs", key, good[:len(good)-1])
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	c.want(t, elsewhere, 2)
	if !strings.Contains(c.log.String(), "tries the next older one") {
		t.Errorf("the log does not tell: %s", &c.log)
	}
	// An intact copy must replace a damaged checkpoint of this machine.
	c.s.Store("runs", key, good)
	model := filepath.Join(c.dir, checkpointsFolder, "step-00000003", "model.safetensors")
	if err := os.Truncate(model, 5); err != nil {
		t.Fatal(err)
	}
	c.want(t, c.dir, 3)
	for _, step := range []string{"1", "2", "3"} {
		c.s.Store("runs", strings.Replace(key, "00000003", "0000000"+step, 1), good[:5])
	}
	var damaged *checkpoint.CorruptError
	if step, err := c.fetch(t, filepath.Join(t.TempDir(), "new")); !errors.As(err, &damaged) {
		t.Errorf("got step %d and %v, want an error: the run would start again", step, err)
	}
}

func TestASignalShortensTheWaitForAnUpload(t *testing.T) {
	ctx, signal := context.WithCancel(t.Context())
	late, end := patient(ctx, time.Hour, 10*time.Millisecond)
	defer end()
	select {
	case <-late.Done():
		t.Fatal("the wait ended without a signal")
	case <-time.After(50 * time.Millisecond):
	}
	signal()
	select {
	case <-late.Done():
	case <-time.After(time.Minute):
		t.Error("the wait does not end after a signal")
	}
}
