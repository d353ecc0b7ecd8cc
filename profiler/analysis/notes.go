package analysis

import (
	"fmt"
	"strings"
)

// gainsUnknown returns one sentence for each reason why the gain of some runs is unknown. The sentence names these
// runs.
func gainsUnknown(trials []*Trial) (notes []string) {
	const mostNames = 3
	var reasons []string
	runs := map[string][]string{}
	for _, t := range trials {
		if t.GainUnknown == "" {
			continue
		}
		if runs[t.GainUnknown] == nil {
			reasons = append(reasons, t.GainUnknown)
		}
		runs[t.GainUnknown] = append(runs[t.GainUnknown], plain(t.Name))
	}
	for _, why := range reasons {
		of := strings.Join(runs[why], ", ")
		if n := len(runs[why]); n > mostNames {
			of = fmt.Sprintf("%d runs", n)
		}
		notes = append(notes, fmt.Sprintf("The gain over equal shares is unknown for %s: %s.", of, printable(why)))
	}
	return notes
}
