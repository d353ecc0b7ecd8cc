package gradsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/local"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

var small = job{dtype: tensor.F32, micro: 4, count: 1, mode: "sync", options: Options{CapBytes: 1024, FirstBytes: 256}}

func TestRanksThatDoTheSameAgree(t *testing.T) {
	for i, err := range each(small.ranks(t, 3), func(r *rank) error {
		p, err := r.pass([]int{3, 0, 1}[r.number]) // different shares; one rank is idle
		if err != nil {
			return err
		}
		return Compare(context.Background(), r.grads, r.dev,
			append([]string{"version 1"}, r.sync.Fingerprint(p.plan)...))
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
	}
}

func TestDifferenceBetweenRanksIsNamedOnEveryRank(t *testing.T) {
	for _, c := range []struct {
		name  string
		other func(lines []string) []string // changes the lines of rank 2
		want  string
	}{
		{"another line", func(l []string) []string { l[1] = "parameter 0: head"; return l },
			`rank 2: got "parameter 0: head", want "parameter 0: fc.weight f32(5, 9), plain, bytes 0 to 180" as on rank 0`},
		{"another version and one more", func(l []string) []string { l[0], l[3] = "version 2", "x"; return l },
			`rank 2: got "version 2", want "version 1" as on rank 0 (line 1, and 1 more lines differ)`},
		{"a line too many", func(l []string) []string { return append(l, "more") },
			`rank 2: got "more", want "nothing" as on rank 0`},
		{"nothing at all", func([]string) []string { return nil },
			`rank 2: got "nothing", want "version 1" as on rank 0`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, err := range each(small.ranks(t, 4), func(r *rank) error {
				p, err := r.pass(1)
				if err != nil {
					return err
				}
				lines := append([]string{"version 1"}, r.sync.Fingerprint(p.plan)...)
				if r.number == 2 {
					lines = c.other(lines)
				}
				return Compare(context.Background(), r.grads, r.dev, lines)
			}) {
				var diff *DifferenceError
				if !errors.As(err, &diff) || len(diff.Ranks) != 1 || !strings.Contains(err.Error(), c.want) {
					t.Errorf("rank %d: got %v, want %s", i, err, c.want)
				}
			}
		})
	}
}

func TestFingerprintTellsWhatMattersApart(t *testing.T) {
	print := func(change func(j *job)) string {
		j := small
		change(&j)
		r := j.ranks(t, 2)[0]
		p, err := r.pass(2)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(r.sync.Fingerprint(p.plan), "\n")
	}
	have := map[string]string{}
	for name, change := range map[string]func(j *job){
		"as it is":         func(*job) {},
		"buckets":          func(j *job) { j.options.CapBytes = 2048 },
		"type in transit":  func(j *job) { j.options.Wire = tensor.BF16 },
		"element type":     func(j *job) { j.dtype = tensor.F64 },
		"batch statistics": func(j *job) { j.mode = "local" },
		"groups":           func(j *job) { j.mode, j.group = "ghost", 2 },
		"no statistics":    func(j *job) { j.mode = "none" },
	} {
		text := print(change)
		if other, ok := have[text]; ok {
			t.Errorf("%q and %q have the same fingerprint", name, other)
		}
		have[text] = name
	}
	for _, line := range []string{"exchange 0: bn1 gather, forward, 12 of f32, gathered from 2 ranks",
		"exchange 4: bn4 diff sums, backward, 18 of f32, summed",
		"bucket 1: bytes", "statistic 0: bn1.running_mean f32(6)"} {
		if text := print(func(*job) {}); !strings.Contains(text, line) {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
}

func TestOddReplicaIsNamed(t *testing.T) {
	for _, c := range []struct {
		odd  []int
		size int
		want string
	}{
		{nil, 4, ""},
		{[]int{2}, 4, "rank 2 differs from the other 3 ranks in weight, moment"},
		{[]int{0}, 3, "rank 0 differs from the other 2 ranks in weight, moment (hash"},
		{[]int{1}, 2, "differ in weight, moment: none of the states belongs to more than half of the 2 ranks"},
		{[]int{1, 3}, 5, "ranks 1, 3 differ from the other 3 ranks"},
		{[]int{1, 3}, 4, "so it is unknown which rank is wrong"},
	} {
		for i, err := range each(small.ranks(t, c.size), func(r *rank) error {
			parts := []Part{{"statistic", 1}, {"weight", 2}, {"moment", 3}}
			if slices.Contains(c.odd, r.number) {
				parts[1].Sum, parts[2].Sum = 7, 8
			}
			return Replicas(context.Background(), r.grads, r.dev, parts)
		}) {
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("odd ranks %v of %d: rank %d: got %v, want %q", c.odd, c.size, i, err, c.want)
			}
		}
	}
}

func TestHashSeesEveryBitAndPosition(t *testing.T) {
	b := make([]byte, 200)
	seen := map[uint64]string{hashBytes(b): "zeros"}
	note := func(what string) {
		h := hashBytes(b)
		if other, ok := seen[h]; ok {
			t.Errorf("%s has the hash of %s", what, other)
		}
		seen[h] = what
	}
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			note(fmt.Sprintf("bit %d of byte %d", bit, i))
			b[i] ^= 1 << bit
		}
	}
	for n := range b {
		if h := hashBytes(b[:n]); seen[h] != "" {
			t.Errorf("%d zeros have the hash of %s", n, seen[h])
		} else {
			seen[h] = fmt.Sprintf("%d zeros", n)
		}
	}
	if got := hashBytes([]byte("the same on every machine")); got != wantHash {
		t.Errorf("got %#x, want %#x: hashes of ranks of other builds would not compare", got, uint64(wantHash))
	}
}

const wantHash = 0xf5a7406fface4e1f

func TestTuneGivesAllRanksTheSameBuckets(t *testing.T) {
	j := small
	ranks := j.ranks(t, 3)
	got := make([]Tuning, len(ranks))
	for i, err := range each(ranks, func(r *rank) (err error) {
		p, err := r.pass([]int{3, 0, 1}[r.number])
		if err != nil {
			return err
		}
		var elapsed []time.Duration
		if r.number != 1 {
			elapsed = make([]time.Duration, len(p.plan.Launches()))
			for i := range elapsed {
				elapsed[i] = time.Duration(r.number+1) * time.Millisecond
			}
		}
		scratch, err := r.dev.Alloc(1 << 20)
		if err != nil {
			return err
		}
		defer scratch.Free()
		got[r.number], err = Tune(context.Background(), r.grads, r.dev, p.plan, elapsed, scratch, tensor.BF16)
		return err
	}) {
		if err != nil {
			t.Fatalf("rank %d: %v", i, err)
		}
	}
	if fmt.Sprint(got[0]) != fmt.Sprint(got[1]) || fmt.Sprint(got[0]) != fmt.Sprint(got[2]) {
		t.Errorf("ranks chose %v", got)
	}
	if err := checkEnds(ranks[0].state.Params, got[0].Ends); err != nil {
		t.Error(err)
	}
	ready := got[0].ReadySeconds
	for i := range ready { // the times of the slowest rank, where a launch takes 3 ms
		if ready[i] < 0.003 || i > 0 && ready[i] < ready[i-1] {
			t.Errorf("gradients are ready after %v s, want ascending times of the slowest rank", ready)
			break
		}
	}
}

func TestFailureOfARankEndsTheStepOfAll(t *testing.T) {
	for _, when := range []string{"forward", "backward", "finish"} {
		t.Run(when, func(t *testing.T) {
			ranks := small.ranks(t, 3)
			run(t, ranks, 0, []int{2, 1, 1})
			for i, err := range each(ranks, func(r *rank) error {
				if r.number == 1 {
					p, _ := r.pass(1)
					if err := r.load(p, 4, 1); err != nil {
						return err
					}
					if when != "forward" {
						if err := p.Forward(r.stream); err != nil {
							return err
						}
					}
					if when == "finish" {
						if err := p.Backward(r.stream, false); err != nil { // this rank does not start its sums
							return err
						}
						r.grads.Abort(errors.New("gave up"))
						return nil
					}
					for _, c := range []collective.Communicator{r.stats, r.grads} {
						c.(*local.Communicator).Die()
					}
					return nil
				}
				_, err := r.step(1, []int{2, 1, 1})
				return err
			}) {
				var peer *collective.PeerError
				if i != 1 && (!errors.As(err, &peer) || peer.Rank != 1) {
					t.Errorf("rank %d: got %v, want an error of rank 1", i, err)
				}
			}
		})
	}
}
