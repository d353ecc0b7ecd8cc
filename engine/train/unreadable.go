package train

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/data"
)

// countReplaced adds up the unreadable samples of all ranks. The sum is equal on all ranks.
func (r *run) countReplaced() {
	if r.record.EpochStep == 1 {
		r.replaced = 0
	}
	for _, rank := range r.reported {
		r.replaced += rank.Replaced
		r.result.Replaced += int64(rank.Replaced)
	}
	r.record.EpochReplaced = r.replaced
}

// tooManyReplaced returns an error if an epoch has more unreadable samples than MaxReplaced.
func (r *run) tooManyReplaced() error {
	if r.MaxReplaced == 0 || r.replaced <= r.MaxReplaced {
		return nil
	}
	return r.unreadable(r.replaced, fmt.Sprintf("epoch %d up to step %d", (r.position()-1)/r.epochSteps, r.step))
}

func (r *run) unreadable(n int, of string) error {
	return &data.Fault{Op: "read samples", Index: -1,
		Err:    fmt.Errorf("%d of %s %w, want at most %d", n, of, errUnreadable, r.MaxReplaced),
		Advice: "list them with hetero-train data verify, or raise data.corrupt_limit"}
}
