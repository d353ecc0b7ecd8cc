package parts

import (
	"fmt"
	"log/slog"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
)

// LeftOut returns the damaged parts of the data that this run leaves out.
func (o *Opened) LeftOut() []data.LeftOut {
	if o.Tokens != nil {
		return o.Tokens.LeftOut
	}
	return o.Splits.LeftOut
}

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
