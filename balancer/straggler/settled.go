package straggler

// settledWindows is the number of successive windows with the same verdict after which the verdict is settled. Smaller:
// a verdict near its limit is reported again and again. Larger: reports come later.
const settledWindows = 3

// Settled is the verdict on one rank that messages report: the log, and the alerts of status and the dashboard. Tables,
// files and Prometheus contain the verdict on the newest window. A verdict is settled after three windows. The verdict
// "sick" is settled immediately, because the detector waits for two bad windows. The zero value is a healthy rank.
type Settled struct {
	Reported Kind  `json:"reported"` // newest settled verdict
	Next     Kind  `json:"next"`     // verdict of the newest windows
	N        int   `json:"n"`        // number of these windows
	Since    int64 `json:"since"`    // step of the first one
}

// News is the content of a message.
type News int

// The kinds of news.
const (
	NoNews    News = iota
	IsSick         // the rank is slower than usual
	IsSlow         // the rank has a slow type
	Recovered      // the rank was sick, and has its usual speed again
)

// Add takes the verdict on a window, and the last step of the window.
func (s *Settled) Add(step int64, k Kind) News {
	if k != s.Next || s.N == 0 {
		s.Next, s.N, s.Since = k, 0, step
	}
	s.N++
	if k == s.Reported || k != Sick && s.N < settledWindows {
		return NoNews
	}
	before := s.Reported
	s.Reported = k
	switch {
	case k == Sick:
		return IsSick
	case k == SlowType:
		return IsSlow
	case before == Sick:
		return Recovered
	}
	return NoNews
}
