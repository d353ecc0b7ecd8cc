package train

import (
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/data"
)

// errUnreadable ends a run, on all ranks after the same step, because too many samples cannot be read.
var errUnreadable = errors.New("cannot be read")

// unreadable returns the error for n samples that cannot be read. The text in the parameter "of" names the samples. The
// parameter limit is Options.MaxReplaced.
func unreadable(n, limit int, of string) error {
	err := fmt.Errorf("%d of %s %w, want at most %d", n, of, errUnreadable, limit)
	return &data.Fault{Op: "read samples", Index: -1, Err: err,
		Advice: "list them with hetero-train data verify, or raise data.corrupt_limit"}
}
