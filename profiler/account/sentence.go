package account

import (
	"fmt"
	"math"
)

// Sentence states the utilization of the cluster, such as "The cluster did 62 % of what it could.": useful / step.
// Words and digits are the same as in the dashboard's first sentence (dashboard/ui/src/first.ts). running is true while
// the run trains. Sentence returns "" if the step time is unknown.
func Sentence(useful, step float64, ranks int, running bool) string {
	if !(step > 0 && useful >= 0) {
		return ""
	}
	who, does := "cluster", "did"
	if ranks < 2 {
		who = "rank"
	}
	if running {
		does = "does"
	}
	return fmt.Sprintf("The %s %s %s %% of what it could.", who, does, twoDigits(100*useful/step))
}

// twoDigits formats v with two significant digits, but keeps all digits before the decimal point.
func twoDigits(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 9.95:
		return fmt.Sprintf("%.0f", math.Round(v))
	}
	return fmt.Sprintf("%#.2g", v)
}
