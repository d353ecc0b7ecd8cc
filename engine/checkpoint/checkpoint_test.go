package checkpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

func fullState(step int64) State {
	return State{
		Program: "1.2.3", Step: step, Epoch: 2, EpochSample: 7, SamplesSeen: 12_345_678_901, Seed: math.MaxUint64,
		Best: &Best{Metric: "top1", Value: 0.1 + 0.2, Step: 3},
		Optimizer: OptimizerState{
			Name: "adamw", Scalars: map[string]Float{"beta1_power": 1e-300, "loss": Float(math.Inf(1))}},
		LossScale: &LossScale{Scale: 65536, GoodSteps: 12},
		Counters:  map[string]int64{"skipped_steps": 2},
		Config:    "[model]\nname = \"resnet50\"\n",
		Extra:     map[string]json.RawMessage{"balancer": json.RawMessage(`{"shares":[3,5]}`)},
	}
}

func saveOnDisk(t *testing.T, dir string, keep int, snapshots ...Snapshot) {
	t.Helper()
	store, err := Open(dir, Options{Keep: keep})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, snapshot := range snapshots {
		if saved, err := store.Save(context.Background(), snapshot); err != nil || len(saved.Warnings) > 0 {
			t.Fatalf("save: %v, warnings %v", err, saved.Warnings)
		}
	}
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestStateComesBackBitForBit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoints")
	snapshot := save{step: 1234, version: 5}.snapshot()
	snapshot.State = fullState(1234)
	saveOnDisk(t, dir, 3, snapshot)
	if got, want := list(t, filepath.Join(dir, "step-00001234")),
		[]string{"MANIFEST", "model.safetensors", "optimizer.safetensors", "state.json"}; !slices.Equal(got, want) {
		t.Errorf("got files %v, want %v", got, want)
	}
	if pointer, err := os.ReadFile(filepath.Join(dir, "latest")); string(pointer) != "step-00001234\n" {
		t.Errorf("latest: got %q, %v", pointer, err)
	}
	for _, how := range []string{"Latest", "Load"} {
		c, err := Load(filepath.Join(dir, "step-00001234"))
		if how == "Latest" {
			c, _, err = Latest(dir)
		}
		if err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		defer c.Close()
		want, _ := encodeState(fullState(1234))
		got, _ := encodeState(c.State)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: got state\n%s\nwant\n%s", how, got, want)
		}
		w := make([]byte, 8)
		if err := c.Model.ReadInto("w", w); err != nil || !bytes.Equal(w, snapshot.Model[0].Data) {
			t.Errorf("%s: got %v, %v", how, w, err)
		}
	}
}

func TestFloatsSurviveJSON(t *testing.T) {
	for _, want := range []float64{0, math.Copysign(0, -1), 0.1, math.Pi, math.SmallestNonzeroFloat64, math.MaxFloat64,
		math.Inf(1), math.Inf(-1), math.NaN()} {
		text, err := json.Marshal(Float(want))
		var got Float
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if same := math.Float64bits(float64(got)) == math.Float64bits(want); err != nil ||
			!same && !(math.IsNaN(want) && math.IsNaN(float64(got))) {
			t.Errorf("%v: got %v through %s, %v", want, got, text, err)
		}
	}
}

func TestStateRefusals(t *testing.T) {
	for text, want := range map[string]string{
		`{"step": 1, "stepp": 2}`:                "unknown field",
		`{"step": -1}`:                           "want at least 0",
		`{"epoch": 9223372036854775807}`:         "want at most",
		`{"samples_seen": 9223372036854775800}`:  "want at most",
		`{"epoch_sample": 9007199254740993}`:     "want at most",
		`{"step": 9223372036854775807}`:          "want at most",
		`{"step": 1} {}`:                         "after the object",
		`{"step": 1.5}`:                          "cannot unmarshal",
		`{"best": {"value": "seven"}}`:           "want a number",
		`{"step": 1`:                             "EOF",
		`{"seed": 18446744073709551616}`:         "cannot unmarshal",
		`{"loss_scale": {"scale": {"a": true}}}`: "want a number",
	} {
		if _, err := decodeState([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestRetentionKeepsTheLastAndTheBest(t *testing.T) {
	dir := t.TempDir()
	saveOnDisk(t, dir, 2,
		save{step: 1}.snapshot(), save{step: 2, best: true}.snapshot(), save{step: 3}.snapshot(),
		save{step: 4}.snapshot(), save{step: 5}.snapshot())
	if got, want := list(t, dir), []string{"best", "latest", "step-00000002", "step-00000004",
		"step-00000005"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	best, err := LoadBest(dir)
	if err != nil || best.State.Step != 2 {
		t.Errorf("best: got %v, %v, want step 2", best, err)
	}
	// A damaged checkpoint must not count as one of the checkpoints to keep.
	if err := os.Remove(filepath.Join(dir, "step-00000005", "MANIFEST")); err != nil {
		t.Fatal(err)
	}
	saveOnDisk(t, dir, 2, save{step: 6}.snapshot())
	if got, want := list(t, dir), []string{"best", "latest", "step-00000002", "step-00000004",
		"step-00000006"}; !slices.Equal(got, want) {
		t.Errorf("with a damaged one: got %v, want %v", got, want)
	}
}

func TestLatestFallsBackAndSaysWhy(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := Latest(filepath.Join(dir, "absent")); !errors.Is(err, ErrNone) {
		t.Errorf("no folder: got %v, want ErrNone", err)
	}
	if _, _, err := Latest(dir); !errors.Is(err, ErrNone) {
		t.Errorf("empty folder: got %v, want ErrNone", err)
	}
	if _, err := LoadBest(dir); !errors.Is(err, ErrNone) {
		t.Errorf("best of an empty folder: got %v, want ErrNone", err)
	}
	saveOnDisk(t, dir, 5, save{step: 10}.snapshot(), save{step: 20}.snapshot(), save{step: 30}.snapshot(),
		save{step: 40}.snapshot())
	model := filepath.Join(dir, "step-00000030", "model.safetensors")
	b, err := os.ReadFile(model)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(model, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "step-00000020"), filepath.Join(dir, "step-00000021")); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "step-00000040", "optimizer.safetensors"), 9); err != nil {
		t.Fatal(err)
	}
	c, skipped, err := Latest(dir)
	if err != nil || c.State.Step != 10 {
		t.Fatalf("got %v, %v, want step 10", c, err)
	}
	defer c.Close()
	wants := []string{"9 bytes, want", `tensor "w" is damaged`, "the state belongs to step 20"}
	if len(skipped) != len(wants) {
		t.Fatalf("got skipped %v", skipped)
	}
	for i, want := range wants {
		if !strings.Contains(skipped[i].String(), want) {
			t.Errorf("skipped %d: got %q, want %q", i, skipped[i], want)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "step-00000010")); err != nil {
		t.Fatal(err)
	}
	if _, skipped, err := Latest(dir); !errors.As(err, new(*CorruptError)) || len(skipped) != 3 ||
		!strings.Contains(err.Error(), "all 3 checkpoints are invalid") {
		t.Errorf("all damaged: got %v, %v", skipped, err)
	}
}

func TestSetAsideHidesLaterCheckpointsAndLosesNone(t *testing.T) {
	dir := t.TempDir()
	saveOnDisk(t, dir, 5, save{step: 10}.snapshot(), save{step: 20, best: true}.snapshot(), save{step: 30}.snapshot())
	store, err := Open(dir, Options{Keep: 5})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	moved, err := store.SetAside(10)
	if err != nil || !reflect.DeepEqual(moved, []string{"step-00000030", "step-00000020"}) {
		t.Fatalf("got %v, %v", moved, err)
	}
	c, _, err := Latest(dir)
	if err != nil || c.State.Step != 10 {
		t.Fatalf("got %v, %v, want step 10", c, err)
	}
	c.Close()
	if c, err = Load(filepath.Join(dir, "superseded-1", "step-00000030")); err != nil {
		t.Errorf("set aside: %v", err)
	} else {
		c.Close()
	}
	if _, err := LoadBest(dir); !errors.Is(err, ErrNone) {
		t.Errorf("best was set aside: got %v, want ErrNone", err)
	}
	if moved, err := store.SetAside(10); err != nil || moved != nil {
		t.Errorf("nothing to set aside: got %v, %v", moved, err)
	}
}

func TestOpenClearsLeftoversOfCrashes(t *testing.T) {
	dir := t.TempDir()
	saveOnDisk(t, dir, 3, save{step: 10}.snapshot(), save{step: 20}.snapshot())
	move := func(from, to string) {
		if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	move("step-00000020", "step-00000020.old") // simulates a crash between the two renames of a replacement
	for _, name := range []string{".saving-step-00000030/deep/er", ".removing-step-00000001"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, ".latest.tmp"), []byte("st"), 0o644); err != nil {
		t.Fatal(err)
	}
	if c, _, err := Latest(dir); err != nil || c.State.Step != 20 {
		t.Errorf("before: got %v, %v, want step 20", c, err)
	}
	saveOnDisk(t, dir, 3)
	if got, want := list(t, dir), []string{"latest", "step-00000010", "step-00000020"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Open must not remove a checkpoint that is currently unreadable, or that only a later version of the program can read.
func TestOpenRemovesOnlyWhatIsDamaged(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, path string){
		"later format": func(t *testing.T, path string) { edit(t, filepath.Join(path, "MANIFEST"), laterFormat) },
		"unreadable": func(t *testing.T, path string) { // not a regular file, so the system returns an error
			file := filepath.Join(path, "MANIFEST")
			if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o755)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		dir := t.TempDir()
		saveOnDisk(t, dir, 3, save{step: 20}.snapshot())
		path := filepath.Join(dir, "step-00000020")
		if err := os.CopyFS(path+".old", os.DirFS(path)); err != nil {
			t.Fatal(err)
		}
		spoil(t, path)
		store, err := Open(dir, Options{Keep: 3})
		if err == nil {
			store.Close()
			t.Errorf("%s: no error", name)
		}
		if got, want := list(t, dir), []string{"latest", "step-00000020", "step-00000020.old"}; !slices.Equal(got,
			want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func TestSaveStopsWhenCancelled(t *testing.T) {
	dir := t.TempDir()
	store, err := Open(dir, Options{Keep: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := store.Save(ctx, save{step: 1}.snapshot()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if got := list(t, dir); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
}

func TestOptionsAndSnapshotsAreChecked(t *testing.T) {
	if _, err := Open(t.TempDir(), Options{}); err == nil || !strings.Contains(err.Error(), "at least 1") {
		t.Errorf("keep 0: got %v", err)
	}
	occupied := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(occupied, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(occupied, Options{Keep: 1}); !errors.As(err, new(*IOError)) {
		t.Errorf("a file in the way: got %v, want *IOError", err)
	}
	fsys := newMemoryFS()
	bad := Snapshot{
		State: State{Step: 1}, Model: []Tensor{{Name: "a", DType: tensor.F32, Shape: tensor.Shape{9}, Data: []byte{1}}}}
	if _, err := memoryStore(fsys).Save(context.Background(), bad); err == nil || errors.As(err, new(*IOError)) {
		t.Errorf("tensor without data: got %v, want a plain error", err)
	}
	if names, _ := fsys.ReadDir("."); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
	if _, err := memoryStore(fsys).Save(context.Background(), Snapshot{State: State{Step: -1}}); err == nil {
		t.Error("step -1: no error")
	}
}

func TestLinksDoNotLeadOut(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	saveOnDisk(t, dir, 3, save{step: 10}.snapshot())
	saveOnDisk(t, outside, 3, save{step: 20}.snapshot())
	if err := os.Symlink(filepath.Join(outside, "step-00000020"), filepath.Join(dir, "step-00000020")); err != nil {
		t.Fatal(err)
	}
	c, skipped, err := Latest(dir)
	if err != nil || c.State.Step != 10 || len(skipped) != 1 {
		t.Fatalf("got %v, %v, skipped %v; want step 10 and one skipped", c, err, skipped)
	}
	c.Close()
	saveOnDisk(t, dir, 1, save{step: 30}.snapshot())
	if c, err = Load(filepath.Join(outside, "step-00000020")); err != nil {
		t.Fatalf("the checkpoint outside was touched: %v", err)
	}
	c.Close()
}
