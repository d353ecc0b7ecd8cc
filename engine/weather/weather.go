package weather

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// MinSpeed is the lower limit of the product of speeds. Slower ranks would be of no use.
const MinSpeed = 0.01

// Weather is a scenario: changes of the conditions of ranks. The zero value contains no changes.
type Weather struct {
	Seed  uint64
	Lines []Line
}

// Line is one statement: a range of steps, a set of ranks, and one effect (speed, neighbours or link).
type Line struct {
	Number int // number of the line in the text, from 1

	From, To   int64 // first and last step, both included; To 0: no last step
	Every, For int64 // apply only to the first For steps of every Every steps, starting at From; Every 0: all steps
	Ranks      []int // ascending; nil: all ranks

	Speed         float64 // speed factor, above 0 and at most 1; 0: the line has another effect
	Jitter        float64 // standard deviation of the logarithm of the speed factor; 0: no jitter
	Neighbours    int     // number of busy threads
	BitsPerSecond int64   // limit of the rank's network link, bit/s
}

// Conditions contains the conditions of one rank in one step.
type Conditions struct {
	Speed         float64 // speed in this step, relative to the rank's usual speed
	Median        float64 // speed without jitter
	Jitter        bool    // Speed includes jitter
	Neighbours    int     // number of busy threads that use CPU time of the rank
	BitsPerSecond int64   // limit of the rank's network link, bit/s; 0: no limit
}

// Fair are the conditions without any change.
var Fair = Conditions{Speed: 1, Median: 1}

// At returns the conditions of a rank in an optimizer step. Steps count from 1. The result is a function of the
// arguments and w only. At does not allocate.
func (w *Weather) At(step int64, rank int) Conditions {
	c := Fair
	for i := range w.Lines {
		l := &w.Lines[i]
		if !l.covers(step, rank) {
			continue
		}
		switch {
		case l.Neighbours > 0:
			c.Neighbours += l.Neighbours
		case l.BitsPerSecond > 0:
			if c.BitsPerSecond == 0 || l.BitsPerSecond < c.BitsPerSecond {
				c.BitsPerSecond = l.BitsPerSecond
			}
		default:
			c.Median *= l.Speed
			c.Speed *= l.Speed
			if l.Jitter > 0 {
				c.Jitter = true
				c.Speed *= math.Exp(l.Jitter * normal(w.Seed, i, rank, step))
			}
		}
	}
	c.Speed, c.Median = bounded(c.Speed), bounded(c.Median)
	return c
}

func bounded(speed float64) float64 { return min(max(speed, MinSpeed), 1) }

// covers reports whether the line applies to a rank in a step.
func (l *Line) covers(step int64, rank int) bool {
	if step < l.From || l.To > 0 && step > l.To {
		return false
	}
	if l.Every > 0 && (step-l.From)%l.Every >= l.For {
		return false
	}
	return l.About(rank)
}

// About reports whether the line applies to the rank in any step.
func (l *Line) About(rank int) bool { return l.Ranks == nil || slices.Contains(l.Ranks, rank) }

// HighestRank returns the highest rank that a line names, or -1 if no line names a rank.
func (w *Weather) HighestRank() int {
	highest := -1
	for _, l := range w.Lines {
		if len(l.Ranks) > 0 {
			highest = max(highest, l.Ranks[len(l.Ranks)-1])
		}
	}
	return highest
}

// Alike reports whether two conditions are equal except for jitter.
func (c Conditions) Alike(o Conditions) bool {
	c.Speed, o.Speed = 0, 0
	return c == o
}

// Bandwidth formats a rate in bit/s, for example as "10 Mbit/s".
func Bandwidth(bitsPerSecond int64) string {
	v := float64(bitsPerSecond)
	switch {
	case v >= 1e9:
		return fmt.Sprintf("%.4g Gbit/s", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%.4g Mbit/s", v/1e6)
	}
	return fmt.Sprintf("%.4g kbit/s", v/1e3)
}

// String returns the scenario as text, without comments. Parse accepts this text.
func (w *Weather) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nseed %d\n", header, w.Seed)
	for i := range w.Lines {
		fmt.Fprintln(&b, &w.Lines[i])
	}
	return b.String()
}

// String returns the line as a statement.
func (l *Line) String() string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	add("from %d", l.From)
	if l.To > 0 {
		add("to %d", l.To)
	}
	if l.Every > 0 {
		add("every %d for %d", l.Every, l.For)
	}
	if l.Ranks == nil {
		add("all")
	} else {
		add("rank %s", strings.ReplaceAll(strings.Trim(fmt.Sprint(l.Ranks), "[]"), " ", ","))
	}
	switch {
	case l.Neighbours > 0:
		add("neighbour %d", l.Neighbours)
	case l.BitsPerSecond > 0:
		add("link %v kbit", float64(l.BitsPerSecond)/1e3)
	default:
		add("speed %v", l.Speed)
		if l.Jitter > 0 {
			add("jitter %v", l.Jitter)
		}
	}
	return strings.Join(words, " ")
}

// normal returns a standard normal number, which is a function of its arguments (Box and Muller, 1958).
func normal(seed uint64, line, rank int, step int64) float64 {
	h := mix(mix(mix(seed+1)^uint64(line)+1)^uint64(rank)+1) ^ uint64(step)
	u := float64(mix(h+1)>>11+1) / (1 << 53) // uniform in (0, 1]
	v := float64(mix(h+2)>>11) / (1 << 53)
	return math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*v)
}

// mix multiplies x by the increment of SplitMix64 and applies its finaliser (Steele, Lea and Flood, 2014).
func mix(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
