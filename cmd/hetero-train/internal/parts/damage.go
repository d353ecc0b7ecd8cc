package parts

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
)

// skipAdvice states what the user can do about damaged data.
const skipAdvice = "repair or delete it, or set data.corrupt = \"skip\"; if a resumed run reports that the data have changed, add --allow data.path"

// adviseDamage adds the advice to the fault of a damaged file.
func adviseDamage(f *data.Fault) {
	if f.Damaged && f.Advice == "" {
		f.Advice = skipAdvice
	}
}

// AdviseDamage adds the advice to the error of a sample that cannot be read. It returns other errors unchanged.
func AdviseDamage(err error) error {
	var f *data.Fault
	if !errors.As(err, &f) || f.Advice != "" || f.Index < 0 && !f.Damaged || data.Exhausted(err) {
		return err
	}
	return fmt.Errorf("%w; %s", err, skipAdvice)
}

// sayReplaced returns a function that logs unreadable samples.
func sayReplaced(log *slog.Logger) func(*data.Fault) {
	return func(f *data.Fault) { log.Warn("an unreadable sample was replaced", "error", f) }
}

// LeftOut returns the damaged parts of the data that were left out.
func (o *Opened) LeftOut() []data.LeftOut {
	if o.Tokens != nil {
		return o.Tokens.LeftOut
	}
	return o.Splits.LeftOut
}

// mostShown is the number of damaged parts that are named.
const mostShown = 10

// LeftOutNotes describes the damaged parts of the data that were left out.
func (o *Opened) LeftOutNotes() (notes []string) {
	left := o.LeftOut()
	for i, l := range left {
		if i == mostShown {
			return append(notes, fmt.Sprintf("%d more damaged parts of the data were left out: list them with hetero-train data verify",
				len(left)-i))
		}
		what := "a damaged part of the data was "
		if l.Whole {
			what = "a damaged file was, with all its samples, "
		}
		notes = append(notes, what+l.String())
	}
	return notes
}

// checkLeftOut logs the parts that were left out. It returns an error for more single samples than data.corrupt_limit.
func (o *Opened) checkLeftOut(cfg *config.Config, log *slog.Logger) error {
	samples := 0
	for _, l := range o.LeftOut() {
		if !l.Whole {
			samples++
		}
	}
	for _, note := range o.LeftOutNotes() {
		log.Warn(note)
	}
	if samples > cfg.Data.CorruptLimit {
		first := o.LeftOut()[0]
		return exit.With(exit.Data, fmt.Errorf("data set %s: %s, more than data.corrupt_limit = %d; the first: %s",
			o.Name, show.Count(samples, "damaged sample"), cfg.Data.CorruptLimit, first))
	}
	return nil
}
