package conformance

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// scenario returns a suite that contains every kind of result. In order, it appends to said what ran.
func scenario(said *[]string) func(T) {
	say := func(text string) { *said = append(*said, text) }
	return func(t T) {
		t.Run("passes", func(t T) {
			t.Cleanup(func() { say("first clean-up") })
			t.Cleanup(func() { say("second clean-up"); t.Log("cleaned") })
			say("passes")
		})
		t.Run("fails", func(t T) {
			t.Run("at once", func(t T) { t.Fatalf("got %d, want %d", 1, 2); say("behind Fatal") })
			t.Run("and goes on", func(t T) { t.Error("one"); t.Error("two"); say("behind Error") })
			t.Run("not", func(T) {})
			if !t.Failed() {
				say("the failure was not passed up")
			}
		})
		t.Run("skips", func(t T) { t.Skip("no such hardware"); say("behind Skip") })
		t.Run("panics", func(t T) {
			t.Cleanup(func() { say("clean-up behind a panic") })
			panic("oh")
		})
		t.Run("cleans up badly", func(t T) {
			t.Cleanup(func() { say("the last clean-up") })
			t.Cleanup(func() { t.FailNow() })
			t.Cleanup(func() { panic("in a clean-up") })
		})
		t.Run("folder", func(t T) {
			dir := t.TempDir()
			if info, err := os.Stat(dir); err != nil || !info.IsDir() {
				t.Errorf("got %v, want a folder", err)
			}
			*said = append(*said, "folder "+dir)
		})
	}
}

func TestRunTellsHowEveryCheckEnded(t *testing.T) {
	var said, told []string
	r := Run("suite", scenario(&said), Options{Limit: time.Minute, Done: func(path []string, r *Result) {
		told = append(told, fmt.Sprintf("%s %s", strings.Join(path, "/"), r.Status))
	}})
	wantTold := []string{"suite/passes passed", "suite/fails/at once failed", "suite/fails/and goes on failed",
		"suite/fails/not passed", "suite/fails failed",
		"suite/skips skipped", "suite/panics failed", "suite/cleans up badly failed", "suite/folder passed",
		"suite failed"}
	if !slices.Equal(told, wantTold) {
		t.Errorf("got %q, want %q", told, wantTold)
	}
	folder := strings.TrimPrefix(said[len(said)-1], "folder ")
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("%s is still there", folder)
	}
	wantSaid := []string{"passes", "second clean-up", "first clean-up", "behind Error", "clean-up behind a panic",
		"the last clean-up"}
	if got := said[:len(said)-1]; !slices.Equal(got, wantSaid) {
		t.Errorf("got %q, want %q", got, wantSaid)
	}
	if passed, failed, skipped := r.Count(); passed != 3 || failed != 4 || skipped != 1 {
		t.Errorf("got %d passed, %d failed, %d skipped; want 3, 4, 1", passed, failed, skipped)
	}
	fails := r.Within[1]
	if got := fails.Within[0].Output; !slices.Equal(got, []string{"got 1, want 2"}) {
		t.Errorf("got %q", got)
	}
	if got := fails.Within[1].Output; !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("got %q", got)
	}
	if got := r.Within[3].Output; len(got) != 1 || !strings.HasPrefix(got[0], "panic: oh\n") ||
		!strings.Contains(got[0], "run_test.go") {
		t.Errorf("got %q, want the panic and where it was", got)
	}
	if r.Seconds <= 0 {
		t.Errorf("got %v seconds", r.Seconds)
	}
}

func TestRunChoosesByNameAtEachDepth(t *testing.T) {
	for _, c := range []struct {
		pattern string
		want    []string
	}{
		{"", []string{"a", "a/x", "a/x/deep", "a/y", "b", "b/x"}},
		{"suite/a", []string{"a", "a/x", "a/x/deep", "a/y"}},
		{"suite//x", []string{"a", "a/x", "a/x/deep", "b", "b/x"}},
		{"suite/^b$/x", []string{"b", "b/x"}},
		{"suite/a/x/other", []string{"a", "a/x"}},
		{"other", nil},
	} {
		match, err := ParseMatch(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		var ran []string
		r := Run("suite", func(t T) {
			note := func(t T) { ran = append(ran, strings.TrimPrefix(t.Name(), "suite/")) }
			t.Run("a", func(t T) {
				note(t)
				t.Run("x", func(t T) { note(t); t.Run("deep", note) })
				t.Run("y", note)
			})
			t.Run("b", func(t T) { note(t); t.Run("x", note) })
		}, Options{Match: match})
		if !slices.Equal(ran, c.want) || (r == nil) != (c.pattern == "other") {
			t.Errorf("%q: got %q, want %q", c.pattern, ran, c.want)
		}
	}
	if _, err := ParseMatch("a/("); err == nil {
		t.Error("a wrong expression: no error")
	}
}

// The test uses the fake clock of synctest, so the load of the machine does not affect it.
func TestRunGivesUpACheckThatDoesNotEnd(t *testing.T) { synctest.Test(t, givesUp) }

func givesUp(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	ran := false
	r := Run("suite", func(t T) {
		t.Run("long, in parts", func(t T) { // each part is within the limit
			for range 3 {
				t.Run("part", func(T) { time.Sleep(400 * time.Millisecond) })
			}
		})
		t.Run("hangs", func(t T) {
			t.Run("here", func(T) { <-hold })
			ran = true
		})
		ran = true
	}, Options{Limit: time.Second})
	if ran {
		t.Error("what follows a check that holds its device was begun")
	}
	here := r.Within[1].Within[0]
	if r.Within[0].Status != Passed || r.Status != Failed || here.Status != Failed || len(here.Output) != 1 ||
		!strings.Contains(here.Output[0], "givesUp") {
		t.Errorf("got %s, %s, %s and %q; want that the check which hangs failed, with stacks", r.Within[0].Status,
			r.Status, here.Status, here.Output)
	}
}

// A check that hangs must end when the time of all checks is over, before its own limit. The caller must get all
// results.
func TestACheckThatHangsEndsWithTheTimeForAll(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	ctx, cancel := context.WithCancel(t.Context())
	r := Run("suite", func(t T) {
		t.Run("hangs", func(T) { cancel(); <-hold })
		t.Error("begun behind it")
	}, Options{Context: ctx, Limit: time.Hour})
	if len(r.Within) != 1 || r.Within[0].Status != Failed || len(r.Within[0].Output) != 1 ||
		!strings.HasPrefix(r.Within[0].Output[0], "the time limit of all checks (context canceled) was reached") ||
		len(r.Output) > 0 {
		t.Errorf("got %+v, want one check, which has failed with the time for all", r)
	}
}

func TestShortLeavesOutWhatIsLong(t *testing.T) {
	for _, short := range []bool{false, true} {
		ran := false
		r := Run("suite", func(t T) {
			t.Run("long", func(t T) { Long(t); ran = true })
			t.Run("quick", func(T) {})
		}, Options{Short: short})
		if passed, _, skipped := r.Count(); ran == short || short && (passed != 1 || skipped != 1) {
			t.Errorf("short %v: ran %v, %d passed, %d skipped", short, ran, passed, skipped)
		}
	}
	Long(t) // must not skip the check under go test
	if t.Skipped() {
		t.Error("skipped")
	}
}

// The same suite runs under go test, where package testing reports the results.
func TestGoAdaptsATest(t *testing.T) {
	var names []string
	suite := func(t T) {
		t.Run("a", func(t T) {
			names = append(names, t.Name())
			t.Run("b", func(t T) { names = append(names, t.Name()); t.Skip("within") })
		})
	}
	suite(Go(t))
	if want := []string{"TestGoAdaptsATest/a", "TestGoAdaptsATest/a/b"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	var _ TB = (*testing.B)(nil)
}

func TestAllocationsAreCounted(t *testing.T) {
	var keep [][]byte
	if got := AllocsPerRun(10, func() { keep = append(keep[:0], make([]byte, 1<<16)) }); got != 1 {
		t.Errorf("got %v, want 1", got)
	}
	if got := AllocsPerRun(10, func() {}); got != 0 {
		t.Errorf("got %v, want 0", got)
	}
}
