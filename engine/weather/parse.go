package weather

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	header = "weather v1"

	maxBytes  = 1 << 20 // limit of the text in bytes
	maxFaults = 20      // largest number of faults in one error

	maxStep       = 1 << 40
	maxRank       = 1<<20 - 1
	maxNeighbours = 64
	maxJitter     = 1.0
)

// Fault describes a fault in one line.
type Fault struct {
	File    string
	Line    int    // number of the line, from 1
	Message string // the fault, with the text found and expected
}

// Error implements error.
func (f *Fault) Error() string { return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message) }

// Parse parses the text of a scenario. name is the name of the file, for errors. Each error is a [*Fault]; several
// are joined.
func Parse(name string, text []byte) (*Weather, error) {
	if len(text) > maxBytes {
		return nil,
			&Fault{File: name, Line: 1, Message: fmt.Sprintf("got %d bytes, want at most %d", len(text), maxBytes)}
	}
	w := &Weather{}
	var faults []error
	begun, seeded, number := false, false, 0
	for line := range strings.Lines(string(text)) {
		number++
		line, _, _ = strings.Cut(line, "#")
		s := &statement{words: strings.Fields(line)}
		if len(s.words) == 0 {
			continue
		}
		err := s.parse(w, &begun, &seeded, number)
		if err == nil {
			continue
		}
		faults = append(faults, &Fault{File: name, Line: number, Message: err.Error()})
		if !begun { // there is no statement at all
			return nil, errors.Join(faults...)
		}
		if len(faults) == maxFaults {
			break
		}
	}
	if !begun && len(faults) == 0 {
		return nil,
			&Fault{File: name, Line: max(number, 1), Message: fmt.Sprintf("got no statement, want %q first", header)}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return w, nil
}

// statement contains the words of one line. They are read from left to right.
type statement struct {
	words []string
	next  int
}

func (s *statement) parse(w *Weather, begun, seeded *bool, number int) error {
	if !*begun {
		if got := strings.Join(s.words, " "); got != header {
			return fmt.Errorf("the first statement: got %s, want %q", quote(got), header)
		}
		*begun = true
		return nil
	}
	if s.take("seed") {
		if *seeded {
			return errors.New("got a second seed, want one")
		}
		*seeded = true
		text := s.word()
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return fmt.Errorf("seed: got %s, want a whole number from 0 to 2^64-1", quote(text))
		}
		w.Seed = seed
		return s.end()
	}
	l := Line{Number: number}
	for _, part := range []func(*statement) error{l.when, l.who, l.what, (*statement).end} {
		if err := part(s); err != nil {
			return err
		}
	}
	w.Lines = append(w.Lines, l)
	return nil
}

// when parses the steps to which the line applies.
func (l *Line) when(s *statement) (err error) {
	from := s.take("from")
	if from {
		if l.From, err = s.whole("from", 1, maxStep); err != nil {
			return err
		}
		if s.take("to") {
			if l.To, err = s.whole("to", l.From, maxStep); err != nil {
				return err
			}
		}
	}
	if s.take("every") {
		if l.Every, err = s.whole("every", 2, maxStep); err != nil {
			return err
		}
		if !s.take("for") {
			return s.unexpected(`"for" and a number of steps`)
		}
		if l.For, err = s.whole("for", 1, l.Every-1); err != nil {
			return err
		}
	}
	if !from {
		l.From = max(l.Every, 1)
	}
	return nil
}

// who parses the ranks to which the line applies.
func (l *Line) who(s *statement) error {
	if s.take("all") {
		return nil
	}
	if !s.take("rank") {
		want := `"rank" and a list of ranks, or "all"`
		if s.next == 0 {
			want = `"seed", "from", "every", "rank" or "all"`
		} else if l.Every == 0 {
			want = `"every", ` + want
			if l.To == 0 {
				want = `"to", ` + want
			}
		}
		return s.unexpected(want)
	}
	for _, text := range strings.Split(s.word(), ",") {
		rank, err := whole("rank", text, 0, maxRank)
		if err != nil {
			return err
		}
		if slices.Contains(l.Ranks, int(rank)) {
			return fmt.Errorf("rank: got %d twice, want each rank once", rank)
		}
		l.Ranks = append(l.Ranks, int(rank))
	}
	slices.Sort(l.Ranks)
	return nil
}

// what parses the effect of the line.
func (l *Line) what(s *statement) (err error) {
	switch {
	case s.take("speed"):
		if l.Speed, err = s.number("speed", 0, 1); err == nil && s.take("jitter") {
			l.Jitter, err = s.number("jitter", 0, maxJitter)
		}
		return err
	case s.take("neighbour"):
		n, err := s.whole("neighbour", 1, maxNeighbours)
		l.Neighbours = int(n)
		return err
	case s.take("link"):
		return l.link(s)
	}
	return s.unexpected(`"speed", "neighbour" or "link"`)
}

func (l *Line) link(s *statement) error {
	const least, most = 1e3, 1e12 // bit/s
	rate, err := s.number("link", 0, most)
	if err != nil {
		return err
	}
	unit := s.word()
	factor, known := map[string]float64{"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}[unit]
	if !known {
		return fmt.Errorf("link: unit: got %s, want kbit, mbit or gbit (per second)", quote(unit))
	}
	bits := math.Round(rate * factor)
	if bits < least || bits > most {
		return fmt.Errorf("link: got %v %s, want 1 kbit to 1000 gbit", rate, unit)
	}
	l.BitsPerSecond = int64(bits)
	return nil
}

// take reads the next word if it equals word.
func (s *statement) take(word string) bool {
	if s.next < len(s.words) && s.words[s.next] == word {
		s.next++
		return true
	}
	return false
}

// word reads and returns the next word. At the end of the line it returns "".
func (s *statement) word() string {
	if s.next == len(s.words) {
		return ""
	}
	s.next++
	return s.words[s.next-1]
}

func (s *statement) whole(what string, least, most int64) (int64, error) {
	return whole(what, s.word(), least, most)
}

func whole(what, text string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s: got %s, want a whole number from %d to %d", what, quote(text), least, most)
	}
	return n, nil
}

func (s *statement) number(what string, above, most float64) (float64, error) {
	text := s.word()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v > above && v <= most) {
		return 0, fmt.Errorf("%s: got %s, want a number above %v and at most %v", what, quote(text), above, most)
	}
	return v, nil
}

func (s *statement) end() error {
	if s.next < len(s.words) {
		return s.unexpected("the end of the line")
	}
	return nil
}

func (s *statement) unexpected(want string) error {
	after := ""
	if s.next > 0 {
		after = fmt.Sprintf("after %s: ", quote(s.words[s.next-1]))
	}
	return fmt.Errorf("%sgot %s, want %s", after, quote(s.word()), want)
}

// quote quotes a word and shortens a long one.
func quote(text string) string {
	const most = 40
	if text == "" {
		return "nothing"
	}
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strconv.Quote(text)
}
