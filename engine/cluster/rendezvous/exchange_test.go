package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestGetWaitsForSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := meet(t, 3)
		defer closeAll(groups)
		ctx := context.Background()
		time.AfterFunc(2*time.Second, func() {
			if err := groups[2].Set(ctx, "address", []byte("here")); err != nil {
				t.Error(err)
			}
		})
		began := time.Now()
		for rank, err := range together(groups, func(g *Group) error {
			for range 2 { // the first Get waits, the second does not
				if value, err := g.Get(ctx, "address"); err != nil || string(value) != "here" {
					return fmt.Errorf("got %q and error %v", value, err)
				}
			}
			return nil
		}) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		if took := time.Since(began); took < 2*time.Second || took > 3*time.Second {
			t.Errorf("took %v, want 2s", took)
		}
	})
}

func TestKeysAreSetOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := meet(t, 2)
		defer closeAll(groups)
		ctx := context.Background()
		tests := []struct {
			name, key, value, want string
			rank                   int
		}{
			{"first", "k", "v", "", 1},
			{"the same again", "k", "v", "", 0},
			{"another value", "k", "w", `set key "k": rank 1 has already set this key to another value`, 0},
			{"another key", "l", "w", "", 0},
			{"an empty value", "empty", "", "", 0},
			{"no key", "", "v", "got a key of 0 bytes", 0},
			{"a long key", strings.Repeat("k", maxKey+1), "v", "got a key of 1025 bytes", 0},
			{"the longest value", "long", strings.Repeat("v", MaxValue), "", 0},
			{"a longer value", "longer", strings.Repeat("v", MaxValue+1), "and at most", 0},
		}
		for _, test := range tests {
			err := groups[test.rank].Set(ctx, test.key, []byte(test.value))
			if test.want == "" && err != nil || test.want != "" &&
				(err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%s: got %v, want %q", test.name, err, test.want)
			}
			if test.want != "" {
				continue
			}
			if value, err := groups[1-test.rank].Get(ctx, test.key); err != nil || string(value) != test.value {
				t.Errorf("%s: got %d bytes and error %v, want %d", test.name, len(value), err, len(test.value))
			}
		}
	})
}

func TestFullStoreIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := meet(t, 1)
		defer closeAll(groups)
		value := make([]byte, MaxValue)
		var err error
		n := 0
		for ; err == nil; n++ {
			err = groups[0].Set(context.Background(), fmt.Sprint(n), value)
		}
		if n*MaxValue < maxStore || n*MaxValue > maxStore+2*MaxValue ||
			!strings.Contains(err.Error(), "want at most 67108864") {
			t.Errorf("after %d values: %v", n, err)
		}
	})
}

func TestGatherGivesEveryRankAllValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := meet(t, 5)
		defer closeAll(groups)
		for round := range 20 { // uses each name again immediately, even if a rank is late
			mustTogether(t, groups, func(g *Group) error {
				// the values have different lengths, and some are empty
				mine := bytes.Repeat([]byte{byte(g.Rank()), byte(round)}, round*1000*g.Rank())
				values, err := g.Gather(context.Background(), "step", mine)
				if err != nil {
					return err
				}
				for rank, value := range values {
					if !bytes.Equal(value, bytes.Repeat([]byte{byte(rank), byte(round)}, round*1000*rank)) {
						return fmt.Errorf("round %d: wrong value of %d bytes for rank %d", round, len(value), rank)
					}
				}
				return nil
			})
		}
	})
}

func TestGatherOfManyBytesTakesSeveralFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := meet(t, 5)
		defer closeAll(groups)
		mustTogether(t, groups, func(g *Group) error {
			values, err := g.Gather(context.Background(), "big", bytes.Repeat([]byte{byte(g.Rank())}, MaxValue))
			for rank, value := range values {
				if len(value) != MaxValue || value[MaxValue-1] != byte(rank) {
					return fmt.Errorf("wrong value for rank %d", rank)
				}
			}
			return err
		})
	})
}

func TestLateRanksAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := meet(t, 4)
		defer closeAll(groups)
		wants := []string{
			`exchange "save": waited 2s for 4 ranks, missing: ranks 1, 3 (context deadline exceeded)`,
			// rank 2 waits for longer than rank 0, so rank 0 also counts as missing
			`exchange "save": waited 3s for 4 ranks, missing: ranks 0, 1, 3 (context deadline exceeded)`,
		}
		for i, err := range together([]*Group{groups[0], groups[2]}, func(g *Group) error {
			ctx, cancel := context.WithTimeout(context.Background(),
				2*time.Second+time.Duration(g.Rank())*time.Second/2)
			defer cancel()
			return g.Barrier(ctx, "save")
		}) {
			if err == nil || err.Error() != wants[i] || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got  %v\nwant %s", err, wants[i])
			}
		}
		// A rank whose wait has timed out may try again.
		for rank, err := range together(groups, func(g *Group) error {
			return g.Barrier(context.Background(), "save")
		}) {
			if err != nil {
				t.Errorf("rank %d, again: %v", rank, err)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := groups[1].Get(ctx, "absent")
		if want := `key "absent", which no rank has set: waited 1s without success (context deadline exceeded)`; err ==
			nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		if err := groups[2].Close(); err != nil {
			t.Error(err)
		}
		ctx, cancel = context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err = groups[1].Get(ctx, "absent")
		if want := `key "absent", which no rank has set (left the group: rank 2): waited 1s without success (context deadline exceeded)`; err ==
			nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	})
}

func TestRankIsInAnExchangeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := meet(t, 2)
		defer closeAll(groups)
		first := make(chan error)
		go func() { first <- groups[1].Barrier(context.Background(), "b") }()
		synctest.Wait()
		if err := groups[1].Barrier(context.Background(), "b"); err == nil ||
			!strings.Contains(err.Error(), "this rank has already sent a value") {
			t.Errorf("got %v, want a refusal", err)
		}
		if err := groups[0].Barrier(context.Background(), "b"); err != nil {
			t.Error(err)
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

func TestAgreeShowsTheDifferenceToAll(t *testing.T) {
	plan := strings.Repeat("conv 3x3\n", 5000)
	tests := []struct {
		name string
		rank int // rank that differs, -1: none
		plan string
		want string
	}{
		{"all agree", -1, "", ""},
		{"rank 2 differs", 2, strings.Replace(plan, "3x3\nconv", "3x3\nrelu", 1),
			`plan (line 2) is "relu 3x3", but rank 0 has "conv 3x3"`},
		{"rank 0 differs", 0, "short", `rank 1 (`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				groups := meet(t, 4)
				defer closeAll(groups)
				for rank, err := range together(groups, func(g *Group) error {
					mine := plan
					if g.Rank() == test.rank {
						mine = test.plan
					}
					return g.Agree(context.Background(), []Fact{{"plan", mine}})
				}) {
					var disagree *DisagreeError
					if test.want == "" && err != nil {
						t.Errorf("rank %d: %v", rank, err)
					}
					if test.want != "" && (!errors.As(err, &disagree) || !strings.Contains(err.Error(), test.want)) {
						t.Errorf("rank %d: got %v, want %s", rank, err, test.want)
					}
				}
			})
		})
	}
}
