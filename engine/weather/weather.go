package weather

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// MinSpeed is the lower limit of the product of speeds; a slower rank would be as good as lost.
const MinSpeed = 0.01

// Weather is a scenario: the changes of a run's ranks. The zero value changes nothing.
type Weather struct {
	Seed  uint64
	Lines []Line
}

// Line is one statement: a range of steps, ranks, and one effect (speed, neighbours or link).
type Line struct {
	Number int // line of the text, from 1

	From, To   int64 // steps, both included; To 0: to the end
	Every, For int64 // steps: the first For of each Every, starting at From; Every 0: all
	Ranks      []int // ascending; nil: all

	Speed         float64 // above 0 and at most 1; 0: the line has another effect
	Jitter        float64 // standard deviation of the logarithm of each step's factor; 0: none
	Neighbours    int     // busy threads
	BitsPerSecond int64   // of the rank's network link
}

// Conditions are the conditions of one rank in one step.
type Conditions struct {
	Speed         float64 // of this step, relative to the rank's usual speed
	Median        float64 // the same without jitter
	Jitter        bool    // Speed includes jitter
	Neighbours    int     // busy threads that take CPU time from the rank
	BitsPerSecond int64   // of its network link; 0: not limited
}

// Fair are unchanged conditions.
var Fair = Conditions{Speed: 1, Median: 1}

// At returns the conditions of rank in the step-th optimizer step, counted from 1. It is a function of its arguments
// and w alone, and allocates nothing.
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

// covers reports whether the line applies to rank in step.
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

// HighestRank returns the highest rank that a line names, -1 if none does.
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

// Bandwidth formats a rate: "10 Mbit/s".
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

// String returns a text that parses to the same scenario, without comments.
func (w *Weather) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nseed %d\n", header, w.Seed)
	for i := range w.Lines {
		fmt.Fprintln(&b, &w.Lines[i])
	}
	return b.String()
}

// String returns the line in the syntax of the text.
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

// normal returns a value of the standard normal distribution (Box and Muller, 1958) that is a function of its
// arguments.
func normal(seed uint64, line, rank int, step int64) float64 {
	h := mix(mix(mix(seed+1)^uint64(line)+1)^uint64(rank)+1) ^ uint64(step)
	u := float64(mix(h+1)>>11+1) / (1 << 53) // in (0, 1]
	v := float64(mix(h+2)>>11) / (1 << 53)
	return math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*v)
}

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014) on a multiple of its increment.
func mix(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
