package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/engine/tensor"
)

// save is one call of Save in a scenario. version distinguishes two saves of the same step.
type save struct {
	step    int64
	version byte
	best    bool
	aside   int64 // argument of a call of SetAside before the save; 0: no call
}

// crashScenario contains first saves, the replacement of a step, the removal of old checkpoints, a change of the best
// checkpoint, and a roll-back.
var crashScenario = []save{
	{step: 10, version: 1},
	{step: 20, version: 1, best: true},
	{step: 30, version: 1},
	{step: 30, version: 2},
	{step: 40, version: 1},
	{step: 50, version: 1, best: true},
	{step: 50, version: 2, best: true},
	{step: 45, version: 3, aside: 40},
}

func (s save) snapshot() Snapshot {
	payload := []byte{s.version, byte(s.step), 3, 4, 5, 6, 7, 8}
	return Snapshot{
		State:     State{Step: s.step, Best: &Best{Metric: "top1", Value: 0.5, Step: s.step}},
		Model:     []Tensor{{Name: "w", DType: tensor.F32, Shape: tensor.Shape{2}, Data: payload}},
		Optimizer: []Tensor{{Name: "w.momentum", DType: tensor.F32, Shape: tensor.Shape{2}, Data: payload}},
		Best:      s.best,
	}
}

func memoryStore(fsys fileSystem) *Store { return &Store{dir: "run", keep: 2, fsys: fsys} }

// play runs the scenario until it ends or the simulated machine is off. It returns the number of completed saves.
func play(fsys *memoryFS) (returned int) {
	store := memoryStore(fsys)
	for _, s := range crashScenario {
		if s.aside > 0 {
			if _, err := store.SetAside(s.aside); err != nil {
				return returned
			}
		}
		if saved, err := store.Save(context.Background(), s.snapshot()); err != nil || len(saved.Warnings) > 0 {
			return returned
		}
		returned++
	}
	return returned
}

// loaded returns the save that wrote a checkpoint.
func loaded(c *Checkpoint) (save, error) {
	w, err := c.Model.Read("w")
	if err != nil {
		return save{}, err
	}
	m, err := c.Optimizer.Read("w.momentum")
	if err != nil {
		return save{}, err
	}
	if m.Data[0] != w.Data[0] || int64(w.Data[1]) != c.State.Step {
		return save{}, fmt.Errorf("step %d: its parts belong to different saves", c.State.Step)
	}
	return save{step: c.State.Step, version: w.Data[0]}, nil
}

// checkAfterCrash checks that the newest checkpoint is that of the last completed save, or of the save that was
// interrupted.
func checkAfterCrash(fsys fileSystem, returned int) error {
	c, skipped, err := latest(fsys, "run")
	if returned == 0 && errors.Is(err, ErrNone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer c.Close()
	if len(skipped) > 0 {
		return fmt.Errorf("a damaged checkpoint is visible: %v", skipped)
	}
	got, err := loaded(c)
	if err != nil {
		return err
	}
	for i := max(returned-1, 0); i <= returned && i < len(crashScenario); i++ {
		want := crashScenario[i]
		if got.step == want.step && got.version == want.version {
			return checkBest(fsys, returned)
		}
		// A crash can interrupt Save while it sets later checkpoints aside. The newest checkpoint may then have any
		// step from want.aside on.
		if want.aside > 0 && i == returned && got.step >= want.aside {
			return nil
		}
	}
	return fmt.Errorf("got step %d version %d after %d saves returned", got.step, got.version, returned)
}

func checkBest(fsys fileSystem, returned int) error {
	var promised bool
	for _, s := range crashScenario[:returned] {
		promised = promised || s.best
	}
	c, err := loadBest(fsys, "run")
	if err == nil {
		defer c.Close()
		_, err = loaded(c)
	}
	setAside := returned >= len(crashScenario)-1 // the last save sets the best checkpoint aside
	if (!promised || setAside) && errors.Is(err, ErrNone) {
		return nil
	}
	return err
}

// checkRecovery opens the folder after a crash and saves once more. Afterwards, the folder must contain no leftovers.
func checkRecovery(fsys *memoryFS) error {
	store := memoryStore(fsys)
	if err := store.clearLeftovers(); err != nil {
		return fmt.Errorf("clear leftovers: %w", err)
	}
	saved, err := store.Save(context.Background(), save{step: 60, version: 9}.snapshot())
	if err != nil || len(saved.Warnings) > 0 {
		return fmt.Errorf("save after the crash: %v, warnings %v", err, saved.Warnings)
	}
	c, skipped, err := latest(fsys, "run")
	if err != nil || c.State.Step != 60 || len(skipped) > 0 {
		return fmt.Errorf("after the next save: %v, skipped %v", err, skipped)
	}
	names, err := fsys.ReadDir(".")
	checkpoints := 0
	for _, name := range names {
		if _, replaced, ok := parseStepName(name); ok && !replaced {
			checkpoints++
			continue
		}
		if name != latestFile && name != bestFile && !strings.HasPrefix(name, "superseded-") {
			return fmt.Errorf("left over: %s", name)
		}
	}
	if checkpoints > store.keep+1 {
		return fmt.Errorf("%d checkpoints are kept: %v", checkpoints, names)
	}
	return err
}

// The test stops a run at every file operation, and again during recovery. It simulates a kill and many possible
// outcomes of a power failure.
func TestNoCrashLosesTheNewestCheckpoint(t *testing.T) {
	whole := newMemoryFS()
	if got := play(whole); got != len(crashScenario) {
		t.Fatalf("undisturbed: %d saves returned, want %d", got, len(crashScenario))
	}
	outcomes := 40
	if testing.Short() {
		outcomes = 4
	}
	states := 0
	for crashAt := 1; crashAt <= whole.ops+1; crashAt++ {
		chance := rand.New(rand.NewPCG(uint64(crashAt), 1))
		fsys := newMemoryFS()
		fsys.crashAt, fsys.torn = crashAt, crashAt%2 == 0
		returned := play(fsys)
		for outcome := range outcomes {
			survive := fsys.afterKill
			if outcome > 0 {
				survive = func() *memoryFS { return fsys.afterPowerFailure(chance) }
			}
			disk := survive()
			where := fmt.Sprintf("crash at operation %d, outcome %d", crashAt, outcome)
			if err := checkAfterCrash(disk, returned); err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			again := disk.afterKill()
			again.crashAt = 1 + chance.IntN(8)
			_ = memoryStore(again).clearLeftovers() // fails, because the machine crashes again
			disk = again.afterPowerFailure(chance)
			if err := checkAfterCrash(disk, returned); err != nil {
				t.Fatalf("%s, crash during recovery: %v", where, err)
			}
			if err := checkRecovery(disk); err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			states += 2
		}
	}
	t.Logf("%d operations, %d states after a crash", whole.ops, states)
	if !testing.Short() && states < 10_000 {
		t.Errorf("got %d states, want at least 10,000", states)
	}
}

// The test makes each single operation of a save fail once.
func TestFailedOperationKeepsOlderCheckpoints(t *testing.T) {
	first, second := save{step: 10, version: 1}, save{step: 20, version: 1, best: true}
	for _, next := range []save{second, {step: 10, version: 2}} {
		for failAt := 1; ; failAt++ {
			fsys := newMemoryFS()
			store := memoryStore(fsys)
			if _, err := store.Save(context.Background(), first.snapshot()); err != nil {
				t.Fatal(err)
			}
			fsys.failAt = fsys.ops + failAt
			saved, err := store.Save(context.Background(), next.snapshot())
			if fsys.ops < fsys.failAt {
				break // the save has fewer operations
			}
			c, _, latestErr := latest(fsys, "run")
			if latestErr != nil {
				t.Fatalf("%s failed: nothing can be loaded: %v", fsys.failed, latestErr)
			}
			got, loadErr := loaded(c)
			if loadErr != nil {
				t.Fatalf("%s failed: %v", fsys.failed, loadErr)
			}
			isNext := got.step == next.step && got.version == next.version
			switch {
			case err == nil && !isNext:
				t.Errorf("%s failed: save returned without an error, but step %d version %d is the newest", fsys.failed,
					got.step, got.version)
			case err == nil && len(saved.Warnings) == 0 && !strings.HasPrefix(fsys.failed, "remove "):
				t.Errorf("%s failed: neither error nor warning", fsys.failed)
			case err != nil && !errors.As(err, new(*IOError)):
				t.Errorf("%s failed: got %T %v, want *IOError", fsys.failed, err, err)
			}
		}
	}
}

func TestFullDiskLeavesTheOldCheckpointAloneAndNothingElse(t *testing.T) {
	probe := newMemoryFS()
	first, err := memoryStore(probe).Save(context.Background(), save{step: 10, version: 1}.snapshot())
	if err != nil {
		t.Fatal(err)
	}
	for budget := int64(0); budget < first.Bytes; budget++ {
		fsys := newMemoryFS()
		store := memoryStore(fsys)
		if _, err := store.Save(context.Background(), save{step: 10, version: 1}.snapshot()); err != nil {
			t.Fatal(err)
		}
		before, _ := fsys.ReadDir(".")
		fsys.budget = budget
		_, err := store.Save(context.Background(), save{step: 20, version: 1}.snapshot())
		if !errors.Is(err, syscall.ENOSPC) || !errors.As(err, new(*IOError)) {
			t.Fatalf("%d bytes free: got %v, want an *IOError with ENOSPC", budget, err)
		}
		if after, _ := fsys.ReadDir("."); !slices.Equal(before, after) {
			t.Fatalf("%d bytes free: got %v, want %v", budget, after, before)
		}
		if err := checkAfterCrash(fsys, 1); err != nil {
			t.Fatalf("%d bytes free: %v", budget, err)
		}
	}
}
