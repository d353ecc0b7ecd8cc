package rendezvous

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// Refusal is what a rank that cannot join has refused.
type Refusal string

// The refusals. Each is the name of the only fact of such a rank.
const (
	RefusedSettings Refusal = "refused settings"
	RefusedData     Refusal = "refused data" // damaged data
)

const (
	// refusalTime is the time in which Refuse looks for rank 0. It is short, because usually all ranks refuse the same
	// settings, and rank 0 has then ended.
	refusalTime = 2 * time.Second
	maxRefusal  = 2 << 10 // bytes of the cause, less than maxText
)

// Refuse tells rank 0 that this rank does not join, and why. All ranks that wait then fail with a *DisagreeError that
// contains the cause, instead of waiting until the time limit. Refuse replaces Join on a rank other than 0; other ranks
// cannot reach a rank 0 that does not join. It returns an error if rank 0 did not receive the cause within 2 s, for
// example because rank 0 has ended or does not listen yet.
func Refuse(ctx context.Context, options Options, what Refusal, cause error) error {
	if options.Rank == 0 {
		return errors.New("rank 0 cannot be told that it does not join")
	}
	options.Facts = []Fact{{Name: string(what), Value: brief(cause.Error())}}
	options.Timeout = refusalTime
	group, err := Join(ctx, options)
	var told *DisagreeError
	switch {
	case err == nil: // unreachable: rank 0 has no such fact
		return group.Close()
	case errors.As(err, &told) && told.Refusal() == what:
		return nil
	}
	return err
}

// brief returns at most maxRefusal bytes of a text, in one line. The server calls it too, because a peer may send any
// text.
func brief(text string) string {
	text = strings.NewReplacer("\r\n", "; ", "\n", "; ", "\r", "; ").Replace(cut(text, 2*maxRefusal))
	return strings.ToValidUTF8(cut(text, maxRefusal), "")
}

// refusalIn returns the refusal in the facts of a rank that cannot join, as the difference from rank 0.
func refusalIn(facts []Fact) (d Difference, ok bool) {
	if len(facts) != 1 || !isRefusal(facts[0].Name) {
		return d, false
	}
	return Difference{Name: facts[0].Name, Value: brief(facts[0].Value)}, true
}

func isRefusal(name string) bool {
	return slices.Contains([]Refusal{RefusedSettings, RefusedData}, Refusal(name))
}

// Refusal returns what the rank has refused, or "" if it joined with other settings than rank 0.
func (e *DisagreeError) Refusal() Refusal {
	if len(e.Differences) == 1 && isRefusal(e.Differences[0].Name) {
		return Refusal(e.Differences[0].Name)
	}
	return ""
}
