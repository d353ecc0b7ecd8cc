package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetero-train/hetero-train/profiler/analysis"
	"github.com/hetero-train/hetero-train/profiler/runs"
)

// The tables of a comparison must use the records that the followers have read for the charts.
func TestAComparisonUsesTheFollowers(t *testing.T) {
	names := []string{"a", "b", "c"}
	folder, _ := folderOf(t, names...)
	s := newServer(t, folder)
	joinAll(t, s, names[:1])
	before := s.followers["a"]
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("POST", "http://localhost/api/compare", strings.NewReader(`["a","b","c","d"]`)))
	var got comparison
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || !slices.Equal(got.Compared, names) ||
		got.Failed["d"] == "" || got.Why != "" {
		t.Fatalf("got %s, %v", w.Body, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.followers["a"] != before || s.followers["b"] == nil || s.followers["c"] == nil {
		t.Errorf("got followers %v, want those of the compared runs, and the former one of a", s.followers)
	}
	if v := s.followers["b"].run.View(); v.Progress.Read == 0 || s.followers["b"].users != 0 {
		t.Errorf("got progress %+v and %d users, want all records read and no user", v.Progress, s.followers["b"].users)
	}
}

// A client disconnects while the server reads a run for another client. The request of the first client must end
// immediately.
func TestARequestDoesNotWaitForOthersAfterItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := trials{reading: make(chan struct{}, 1)}
		read := func() (*analysis.Trial, error) {
			time.Sleep(time.Hour)
			return &analysis.Trial{}, nil
		}
		go k.get(t.Context(), runs.Summary{Name: "a"}, read)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if _, err := k.get(ctx, runs.Summary{Name: "b"}, read); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(begin) != time.Second {
			t.Errorf("got %v after %v, want the end of the request after 1 s", err, time.Since(begin))
		}
		time.Sleep(time.Hour)
	})
}

// The records of a run that trains change all the time. Reading them must not occupy a CPU core.
func TestReadingARunThatTrainsIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, reads := trials{reading: make(chan struct{}, 1)}, 0
		get := func(steps int64, kind runs.Kind) int {
			why := fmt.Sprint("nothing for ", time.Now()) // this reason contains the age of the records
			now := runs.Summary{Name: "a", Steps: steps, Updated: steps, State: runs.State{Kind: kind, Why: why}}
			if _, err := k.get(t.Context(), now, func() (*analysis.Trial, error) {
				time.Sleep(3 * time.Second)
				reads++
				return &analysis.Trial{Steps: steps}, nil
			}); err != nil {
				t.Fatal(err)
			}
			return reads
		}
		for _, c := range []struct {
			pause time.Duration
			steps int64
			kind  runs.Kind
			want  int
		}{
			{0, 10, runs.Running, 1},
			{29 * time.Second, 20, runs.Running, 1},
			// More than 10 reading times of 3 s have passed since the first reading.
			{2 * time.Second, 30, runs.Running, 2},
			{0, 40, runs.Running, 2},
			{0, 40, runs.Finished, 3}, // the run has ended, so these are its final figures
			{time.Hour, 40, runs.Finished, 3},
			{0, 41, runs.Finished, 4}, // another run with this name
		} {
			time.Sleep(c.pause)
			if got := get(c.steps, c.kind); got != c.want {
				t.Errorf("%+v: got %d readings", c, got)
			}
		}
	})
}

// A second request for the same 1000 runs must read no run. A request can name about this number of runs.
func TestAComparisonOfManyRunsIsKept(t *testing.T) {
	k, reads := trials{reading: make(chan struct{}, 1)}, 0
	for range 2 {
		for i := range 1000 {
			if _, err := k.get(t.Context(), runs.Summary{Name: fmt.Sprint("run", i)},
				func() (*analysis.Trial, error) {
					reads++
					return &analysis.Trial{}, nil
				}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if reads != 1000 {
		t.Errorf("got %d readings of 1000 runs", reads)
	}
}
