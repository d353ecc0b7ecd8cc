package parts

import (
	"errors"
	"fmt"
	"log/slog"

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
