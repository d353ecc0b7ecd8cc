package collective

import (
	"testing"
	"time"
)

func TestErrorsNameRanksAndOperations(t *testing.T) {
	progress := []Progress{{Rank: 0, Entered: 7, Finished: 6, Last: "bucket 3"},
		{Rank: 1, Entered: 6, Finished: 6, Last: "bucket 2"}, {Rank: 2}}
	for _, c := range []struct {
		err  error
		want string
	}{
		{&TimeoutError{Op: `all_reduce "bucket 3"`, Number: 7, Limit: 2 * time.Second, Missing: []int{1, 2},
			Ranks: progress},
			`all_reduce "bucket 3" (operation 7): not complete after 2s: ranks 1, 2 have not started it; ` +
				`rank 0: in operation 7 "bucket 3"; rank 1: finished operation 6 "bucket 2"; rank 2: has not started any operation`},
		{&TimeoutError{Op: "barrier", Number: 1, Limit: time.Minute, Behind: []int{4}},
			"barrier (operation 1): not complete after 1m0s: rank 4 has started it but stopped before its end"},
		{&TimeoutError{Op: "barrier", Number: 1, Limit: time.Minute},
			"barrier (operation 1): not complete after 1m0s: all ranks have started it, but at least one stopped before its end"},
		{&PeerError{Rank: 3, Cause: ErrDied}, "rank 3: its process has ended"},
		{&MismatchError{Rank: 1, Number: 2, Got: "barrier", Want: "all_reduce f32 sum of 20 bytes"},
			"operation 2: got barrier on rank 1, want all_reduce f32 sum of 20 bytes as on this rank"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
