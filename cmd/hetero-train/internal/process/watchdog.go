package process

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/engine/collective"
)

// Position describes the operations that this rank has reached. Other ranks can ask for the text while this rank hangs.
func (t *Team) Position() string {
	p := t.Running.Load()
	if p == nil {
		return "has not started to train"
	}
	var texts []string
	for _, c := range []struct {
		name string
		comm collective.Communicator
	}{{"gradients", p.Grads}, {"statistics", p.Stats}} {
		if at, ok := c.comm.(collective.Positioner); ok {
			texts = append(texts, c.name+": "+describe(at.Position()))
		}
	}
	return strings.Join(texts, "; ")
}

// waiting marks the text of a rank that is blocked in an operation.
const waiting = "is waiting in operation"

func describe(p collective.Progress) string {
	switch {
	case p.Entered == 0:
		return "no operation yet"
	case p.Entered > p.Finished:
		return fmt.Sprintf("%s %d, %s", waiting, p.Entered, p.Last)
	}
	return fmt.Sprintf("has finished operation %d, %s", p.Finished, p.Last)
}

// stand returns the number of operations that this rank has entered. The result waits is true while the rank is blocked
// in an operation.
func (t *Team) stand() (entered uint64, waits bool) {
	for _, c := range []collective.Communicator{t.Communicators.Grads, t.Communicators.Stats} {
		if at, ok := c.(collective.Positioner); ok {
			p := at.Position()
			entered += p.Entered
			waits = waits || p.Entered > p.Finished
		}
	}
	return entered, waits
}

// Watch checks until ctx ends whether this rank is blocked in one operation for longer than limit. If so, the first of
// the waiting ranks logs the positions of all ranks, once for each such wait.
func (t *Team) Watch(ctx context.Context, limit time.Duration, log *slog.Logger) {
	tick := time.NewTicker(limit / 4)
	defer tick.Stop()
	var since time.Time
	var last, logged uint64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		entered, waits := t.stand()
		if !waits || entered != last {
			since, last = time.Now(), entered
			continue
		}
		if time.Since(since) < limit || logged == entered {
			continue
		}
		logged = entered
		where, err := t.Group.Survey(ctx)
		if err != nil {
			return
		}
		first := slices.IndexFunc(where, func(text string) bool { return strings.Contains(text, waiting) })
		if first != t.Place.Rank {
			continue // only the first of the waiting ranks logs
		}
		for rank, text := range where {
			log.Warn("no rank makes progress", "for", time.Since(since).Round(time.Second), "rank", rank, "is", text)
		}
	}
}
