package rendezvous

import (
	"context"
	"errors"
	"strings"
	"time"
)

// refusalName is the name of the only fact of a rank that cannot join.
const refusalName = "refusal"

const (
	refusalTime = 10 * time.Second // time in which Refuse looks for rank 0
	maxRefusal  = 2 << 10          // bytes of the cause, which must fit into maxFacts
)

// Refuse tells rank 0 that this rank does not join, and why. All ranks that wait then fail with a *DisagreeError that
// contains the cause, instead of waiting until the time limit. Refuse replaces Join on a rank other than 0; other ranks
// cannot reach a rank 0 that does not join. It returns an error if rank 0 did not receive the cause within 10 s, for
// example because rank 0 has ended.
func Refuse(ctx context.Context, options Options, cause error) error {
	if options.Rank == 0 {
		return errors.New("rank 0 cannot be told that it does not join")
	}
	text := strings.ReplaceAll(cause.Error(), "\n", "; ")
	options.Facts = []Fact{{Name: refusalName, Value: cut(text, maxRefusal)}}
	options.Timeout = refusalTime
	group, err := Join(ctx, options)
	var told *DisagreeError
	switch {
	case err == nil: // unreachable: rank 0 has no such fact
		return group.Close()
	case errors.As(err, &told) && told.refusal() != "":
		return nil
	}
	return err
}

// refusalOf returns the cause in the facts of a rank that cannot join.
func refusalOf(facts []Fact) (cause string, ok bool) {
	if len(facts) != 1 || facts[0].Name != refusalName {
		return "", false
	}
	return facts[0].Value, true
}

// refusal returns why the rank did not join, or "" if it joined with other settings than rank 0.
func (e *DisagreeError) refusal() string {
	if len(e.Differences) == 1 && e.Differences[0].Name == refusalName {
		return e.Differences[0].Value
	}
	return ""
}
