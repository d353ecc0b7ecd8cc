package rendezvous

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// Refusal states the input because of which a rank does not join: its settings or its data.
type Refusal string

// The refusals. A rank that does not join sends one fact, whose name is its Refusal.
const (
	RefusedSettings Refusal = "refused settings"
	RefusedData     Refusal = "refused data" // for example because the data are damaged
)

const (
	// refusalTime is the time for which Refuse tries to reach rank 0. It is short, because usually all ranks refuse the
	// same settings, and rank 0 has then already ended.
	refusalTime = 2 * time.Second
	maxRefusal  = 2 << 10 // maximum length of the cause, bytes; less than maxText
)

// Refuse tells rank 0 that this rank does not join, and why. All waiting ranks then fail with a *DisagreeError that
// contains the cause, instead of waiting until the time limit. A rank calls Refuse instead of Join. Rank 0 must not
// call it, because no rank can reach a rank 0 that does not join. Refuse returns an error if rank 0 did not receive the
// cause within 2 s. For example, rank 0 has ended or does not listen yet.
func Refuse(ctx context.Context, options Options, what Refusal, cause error) error {
	if options.Rank == 0 {
		return errors.New("rank 0 cannot be told that it does not join")
	}
	options.Facts = []Fact{{Name: string(what), Value: brief(cause.Error())}}
	options.Timeout = refusalTime
	group, err := Join(ctx, options)
	var told *DisagreeError
	switch {
	case err == nil: // unreachable: rank 0 refuses a rank with this fact
		return group.Close()
	case errors.As(err, &told) && told.Refusal() == what:
		return nil
	}
	return err
}

// brief shortens a text to one line of at most maxRefusal bytes. The server also calls it, because a peer may send any
// text.
func brief(text string) string {
	text = strings.NewReplacer("\r\n", "; ", "\n", "; ", "\r", "; ").Replace(cut(text, 2*maxRefusal))
	return strings.ToValidUTF8(cut(text, maxRefusal), "")
}

// refusalIn returns the refusal in the facts of a rank as a Difference. The result ok is false for the facts of a rank
// that joins.
func refusalIn(facts []Fact) (d Difference, ok bool) {
	if len(facts) != 1 || !isRefusal(facts[0].Name) {
		return d, false
	}
	return Difference{Name: facts[0].Name, Value: brief(facts[0].Value)}, true
}

func isRefusal(name string) bool {
	return slices.Contains([]Refusal{RefusedSettings, RefusedData}, Refusal(name))
}

// Refusal returns the refusal of a rank that called Refuse, or "" for a rank that joined with other settings than rank
// 0.
func (e *DisagreeError) Refusal() Refusal {
	if len(e.Differences) == 1 && isRefusal(e.Differences[0].Name) {
		return Refusal(e.Differences[0].Name)
	}
	return ""
}
