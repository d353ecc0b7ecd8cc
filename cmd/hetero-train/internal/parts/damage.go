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

// skipAdvice is the advice for damaged data if data.corrupt is not "skip".
const skipAdvice = "repair or delete it, or set data.corrupt = \"skip\"; if a resumed run reports that the data have changed, add --allow data.path"

// repairAdvice is the advice if data.corrupt is "skip", but damaged data still end the run.
const repairAdvice = "data.corrupt is \"skip\", but too little of the data can be used: repair the data"

// adviseDamage adds one of these two texts to the fault of a damaged file, if the fault has no advice yet.
func adviseDamage(d *config.Data, f *data.Fault) {
	switch {
	case !f.Damaged || f.Advice != "":
	case d.Corrupt == "skip":
		f.Advice = repairAdvice
	default:
		f.Advice = skipAdvice
	}
}

// AdviseDamage adds skipAdvice to the error of a sample that cannot be read. It returns other errors unchanged.
func AdviseDamage(d *config.Data, err error) error {
	var f *data.Fault
	if d.Corrupt == "skip" || !errors.As(err, &f) ||
		f.Advice != "" || f.Index < 0 && !f.Damaged || data.Exhausted(err) {
		return err
	}
	return fmt.Errorf("%w; %s", err, skipAdvice)
}

// sayReplaced returns a function that logs the fault of an unreadable sample.
func sayReplaced(log *slog.Logger) func(*data.Fault) {
	return func(f *data.Fault) { log.Warn("an unreadable sample was replaced", "error", f) }
}

// LeftOut returns the damaged parts of the data that this run leaves out.
func (o *Opened) LeftOut() []data.LeftOut {
	if o.Tokens != nil {
		return o.Tokens.LeftOut
	}
	return o.Splits.LeftOut
}

// mostShown is the maximum number of damaged parts that a list names.
const mostShown = 10

// LeftOutNotes returns sentences that describe the parts in LeftOut.
func (o *Opened) LeftOutNotes() (notes []string) {
	left := o.LeftOut()
	for i, l := range left {
		if i == mostShown {
			return append(notes, fmt.Sprintf("%d more damaged parts of the data were left out: list them with hetero-train data verify",
				len(left)-i))
		}
		what := "a damaged part of the data was "
		switch {
		case l.Whole:
			what = "a damaged file was, with all its samples, "
		case l.Rest:
			what = "the rest of a damaged file was "
		}
		notes = append(notes, what+l.String())
	}
	return notes
}

// lostFiles is the largest permitted fraction of damaged files, from which the run leaves out samples. One damaged file
// is always permitted.
const lostFiles = 0.1

// checkLeftOut logs the parts in LeftOut. It returns an error if these are more single samples than data.corrupt_limit,
// or parts of more files than lostFiles permits.
func (o *Opened) checkLeftOut(cfg *config.Config, log *slog.Logger) error {
	samples := 0
	lost := map[string]bool{} // paths of the damaged files
	for _, l := range o.LeftOut() {
		if l.Whole || l.Rest {
			lost[l.Path] = true
		} else {
			samples++
		}
	}
	for _, note := range o.LeftOutNotes() {
		log.Warn(note)
	}
	files := o.Splits.Files
	if o.Tokens != nil {
		files = o.Tokens.Files
	}
	if len(lost) > 0 && files > 0 {
		log.Warn(fmt.Sprintf("damaged files, whose samples were left out in whole or in part: %d of %d (%.3g %%)",
			len(lost), files, 100*float64(len(lost))/float64(files)))
	}
	first := func() data.LeftOut { return o.LeftOut()[0] }
	if samples > cfg.Data.CorruptLimit {
		return exit.With(exit.Data, fmt.Errorf("data set %s: %s, more than data.corrupt_limit = %d; the first: %s",
			o.Name, show.Count(samples, "damaged sample"), cfg.Data.CorruptLimit, first()))
	}
	if len(lost) > 1 && float64(len(lost)) > lostFiles*float64(files) && files > 0 {
		return exit.With(exit.Data, fmt.Errorf("data set %s: %d of %d files are damaged, want at most %g %% of them, or 1: repair them, or delete them to train without them; the first: %s",
			o.Name, len(lost), files, 100*lostFiles, first()))
	}
	return nil
}
