package program

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/collective/gloo"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// The losses of a run of many ranks over TCP must be bit-equal to those of a run over shared memory. Then a run of
// twice as many ranks must start. Each run compares the replicas of all ranks before it ends. The CPU time grows with
// the square of the number of ranks.
func TestManyRanksTrain(t *testing.T) {
	many := 9
	if needtest.Large.On() {
		many = 64
	}
	nativetest.Need(t, "gloo", gloo.LibraryName)
	p := buildRanks(t)
	train := func(ranks int, set ...string) []float64 {
		dir := t.TempDir()
		finish(t, p.command(dir, append([]string{fmt.Sprint("parallel.ranks=", ranks), "train.steps=3",
			fmt.Sprint("data.batch_size=", 2*ranks), fmt.Sprint("data.num_samples=", 4*ranks),
			"train.eval_interval=100"}, set...)...), 0).check(t, exit.Done, "")
		return lossesOf(t, dir, ranks)
	}
	shared, network := train(many), train(many, "parallel.shared_memory=off")
	if len(shared) != 3 || !slices.Equal(shared, network) {
		t.Errorf("%d ranks: got the losses %v over TCP and %v over shared memory, want the same three", many, network,
			shared)
	}
	if losses := train(2 * many); len(losses) != 3 {
		t.Errorf("%d ranks: got the losses %v, want three", 2*many, losses)
	}
}
