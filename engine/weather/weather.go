package weather

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// MinSpeed is the slowest that lines together make a rank: what is slower is as good as gone.
const MinSpeed = 0.01

// Weather is how a run's ranks change. The zero value changes nothing.
type Weather struct {
	Seed  uint64
	Lines []Line
}

// Line is one statement: a stretch of steps, some ranks, and one of speed, neighbours and link.
type Line struct {
	Number int // in the text, from 1

	From, To   int64 // steps, both included; To 0: to the end
	Every, For int64 // steps: of each Every from From on, the first For; Every 0: all
	Ranks      []int // ascending; nil: all

	Speed         float64 // above 0 and at most 1; 0: the line is about something else
	Jitter        float64 // standard deviation of the logarithm of each step's factor; 0: none
	Neighbours    int     // busy threads
	BitsPerSecond int64   // of the rank's network link
}

// Conditions are what one rank meets in one step.
type Conditions struct {
	Speed         float64 // this step's, relative to the rank's usual one
	Median        float64 // the same without jitter
	Jitter        bool    // Speed has some
	Neighbours    int     // busy threads that take CPU time from the rank
	BitsPerSecond int64   // of its network link; 0: as fast as it is
}

// Fair are the conditions that nothing changes.
var Fair = Conditions{Speed: 1, Median: 1}

// At is what rank meets in the step-th optimizer step, counted from 1. It is a function of its arguments and w alone, and
// allocates nothing.
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

// covers reports whether the line holds for a rank in a step.
func (l *Line) covers(step int64, rank int) bool {
	if step < l.From || l.To > 0 && step > l.To {
		return false
	}
	if l.Every > 0 && (step-l.From)%l.Every >= l.For {
		return false
	}
	return l.About(rank)
}

// About reports whether the line is about a rank, at some step.
func (l *Line) About(rank int) bool { return l.Ranks == nil || slices.Contains(l.Ranks, rank) }

// HighestRank is the highest rank that a line names, -1 if none does.
func (w *Weather) HighestRank() int {
	highest := -1
	for _, l := range w.Lines {
		if len(l.Ranks) > 0 {
			highest = max(highest, l.Ranks[len(l.Ranks)-1])
		}
	}
	return highest
}

// Alike reports whether two conditions differ in nothing but jitter.
func (c Conditions) Alike(o Conditions) bool {
	c.Speed, o.Speed = 0, 0
	return c == o
}

// Bandwidth is a rate for people: "10 Mbit/s".
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

// String gives the weather as a text that Parse reads as the same, comments left out.
func (w *Weather) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nseed %d\n", header, w.Seed)
	for i := range w.Lines {
		fmt.Fprintln(&b, &w.Lines[i])
	}
	return b.String()
}

// String is the line as it is written.
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

// normal is a value of the standard normal distribution (Box and Muller, 1958) that is a function of its arguments.
func normal(seed uint64, line, rank int, step int64) float64 {
	h := mix(mix(mix(seed+1)^uint64(line)+1)^uint64(rank)+1) ^ uint64(step)
	u := float64(mix(h+1)>>11+1) / (1 << 53) // in (0, 1]
	v := float64(mix(h+2)>>11) / (1 << 53)
	return math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*v)
}

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014) over a multiple of its increment.
func mix(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
