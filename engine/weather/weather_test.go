package weather

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func parse(t testing.TB, lines ...string) *Weather {
	t.Helper()
	w, err := Parse("w.txt", []byte("weather v1\n"+strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestLinesAreRead(t *testing.T) {
	for _, c := range []struct {
		text string
		want Line
	}{
		{"from 80 to 160 rank 2 speed 0.5", Line{From: 80, To: 160, Ranks: []int{2}, Speed: 0.5}},
		{"from 200 rank 0 speed 0.8 jitter 0.05 # a comment",
			Line{From: 200, Ranks: []int{0}, Speed: 0.8, Jitter: 0.05}},
		{"from 100 to 100 rank 1 neighbour 1", Line{From: 100, To: 100, Ranks: []int{1}, Neighbours: 1}},
		{"from 50 to 90 rank 3 link 10 mbit", Line{From: 50, To: 90, Ranks: []int{3}, BitsPerSecond: 10e6}},
		{"from 50 rank 3 link 2.5 gbit", Line{From: 50, Ranks: []int{3}, BitsPerSecond: 2.5e9}},
		{"every 50 for 3 rank 0 speed 0.7", Line{From: 50, Every: 50, For: 3, Ranks: []int{0}, Speed: 0.7}},
		{"from 10 every 50 for 3 rank 3,0 speed 1", Line{From: 10, Every: 50, For: 3, Ranks: []int{0, 3}, Speed: 1}},
		{"from 10 to 400 every 2 for 1 all link 500 kbit",
			Line{From: 10, To: 400, Every: 2, For: 1, BitsPerSecond: 5e5}},
		{"\tall   speed 0.9\r", Line{From: 1, Speed: 0.9}},
	} {
		w := parse(t, "seed 7", "", c.text)
		c.want.Number = 4
		if w.Seed != 7 || len(w.Lines) != 1 || !same(w.Lines[0], c.want) {
			t.Errorf("%s: got %+v, want %+v", c.text, w.Lines, c.want)
		}
	}
}

func same(a, b Line) bool {
	ranks := slices.Equal(a.Ranks, b.Ranks) && (a.Ranks == nil) == (b.Ranks == nil)
	a.Ranks, b.Ranks = nil, nil
	return ranks && a.String() == b.String() && a.Number == b.Number && a.Speed == b.Speed && a.Jitter == b.Jitter
}

func TestFaultsNameFileLineGotAndWant(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"rank 2 speed 2", `w.txt:2: speed: got "2", want a number above 0 and at most 1`},
		{"rank 2 speed 0", `speed: got "0"`},
		{"rank 2 speed NaN", `speed: got "NaN"`},
		{"rank 2 speed", `speed: got nothing, want a number`},
		{"rank 2 speed 0.5 jitter -1", `jitter: got "-1", want a number above 0 and at most 1`},
		{"rank 2 speed 0.5 0.6", `after "0.5": got "0.6", want the end of the line`},
		{"rank 2 slow 0.5", `after "2": got "slow", want "speed", "neighbour" or "link"`},
		{"rank 2", `after "2": got nothing, want "speed"`},
		{"rank -1 speed 0.5", `rank: got "-1", want a whole number from 0 to 1048575`},
		{"rank 1,,2 speed 0.5", `rank: got nothing`},
		{"rank 1,2,1 speed 0.5", `rank: got 1 twice`},
		{"rnak 1 speed 0.5", `got "rnak", want "seed", "from", "every", "rank" or "all"`},
		{"from 80 until 90 all speed 1",
			`after "80": got "until", want "to", "every", "rank" and a list of ranks, or "all"`},
		{"from 80 to 90 speed 1", `after "90": got "speed", want "every", "rank"`},
		{"from 0 all speed 1", `from: got "0", want a whole number from 1`},
		{"from 90 to 80 all speed 1", `to: got "80", want a whole number from 90`},
		{"every 50 all speed 1", `after "50": got "all", want "for" and a number of steps`},
		{"every 50 for 50 all speed 1", `for: got "50", want a whole number from 1 to 49`},
		{"every 1 for 1 all speed 1", `every: got "1", want a whole number from 2`},
		{"all neighbour 0.5", `neighbour: got "0.5", want a whole number from 1 to 64`},
		{"all link 10", `link: unit: got nothing, want kbit, mbit or gbit`},
		{"all link 10 Mbit", `link: unit: got "Mbit"`},
		{"all link 0.5 kbit", `link: got 0.5 kbit, want 1 kbit to 1000 gbit`},
		{"all link 2000 gbit", `link: got 2000 gbit`},
		{"seed -1", `seed: got "-1"`},
		{"seed 1\nseed 2", `w.txt:3: got a second seed`},
		{"weather v1", `got "weather"`},
		{"all speed 2\n\nall speed 0.5\nall speed 3",
			"w.txt:2: speed: got \"2\", want a number above 0 and at most 1\nw.txt:5: speed"},
		{"all " + strings.Repeat("x", 100), `xxx…"`},
	} {
		_, err := Parse("w.txt", []byte("weather v1\n"+c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got error %v, want %s", c.text, err, c.want)
		}
	}
}

func TestATextWithoutItsVersionIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                               `w.txt:1: got no statement, want "weather v1" first`,
		"# weather v1\nall speed 0.5":    `w.txt:2: the first statement: got "all speed 0.5", want "weather v1"`,
		"\nweather v2\nall speed 12":     `w.txt:2: the first statement: got "weather v2"`,
		strings.Repeat("#", 1<<20) + "#": `got 1048577 bytes`,
	} {
		if _, err := Parse("w.txt", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got error %v, want %s", text, err, want)
		}
	}
}

func TestManyFaultsAreCut(t *testing.T) {
	_, err := Parse("w.txt", []byte("weather v1\n"+strings.Repeat("all speed 2\n", 1000)))
	if n := strings.Count(err.Error(), "\n") + 1; n != maxFaults {
		t.Errorf("got %d faults, want %d", n, maxFaults)
	}
}

func TestConditionsOfTheExampleInTheDocumentation(t *testing.T) {
	w := parse(t, "seed 7", "from 80 to 160 rank 2 speed 0.5", "from 100 to 150 rank 1 neighbour 1",
		"from 50 to 90 rank 3 link 10 mbit", "every 50 for 3 rank 0 speed 0.7",
		"from 85 to 86 rank 2 speed 0.5", "from 60 to 70 all link 1 mbit", "from 120 to 120 rank 1 neighbour 2",
		"from 1000 all speed 0.02", "from 1000 all speed 0.02")
	for _, c := range []struct {
		step int64
		rank int
		want Conditions
	}{
		{79, 2, Fair}, {161, 2, Fair}, {80, 1, Fair},
		{80, 2, Conditions{Speed: 0.5, Median: 0.5}}, {160, 2, Conditions{Speed: 0.5, Median: 0.5}},
		{85, 2, Conditions{Speed: 0.25, Median: 0.25}}, {87, 2, Conditions{Speed: 0.5, Median: 0.5}},
		{100, 1, Conditions{Speed: 1, Median: 1, Neighbours: 1}},
		{120, 1, Conditions{Speed: 1, Median: 1, Neighbours: 3}},
		{50, 3, Conditions{Speed: 1, Median: 1, BitsPerSecond: 10e6}},
		{65, 3, Conditions{Speed: 1, Median: 1, BitsPerSecond: 1e6}},
		{49, 0, Fair}, {50, 0, Conditions{Speed: 0.7, Median: 0.7}}, {52, 0, Conditions{Speed: 0.7, Median: 0.7}},
		{53, 0, Fair},
		{100, 0, Conditions{Speed: 0.7, Median: 0.7}}, {1, 0, Fair},
		{1001, 9, Conditions{Speed: MinSpeed, Median: MinSpeed}},
	} {
		if got := w.At(c.step, c.rank); got != c.want {
			t.Errorf("step %d, rank %d: got %+v, want %+v", c.step, c.rank, got, c.want)
		}
	}
	if got := w.HighestRank(); got != 3 {
		t.Errorf("highest rank: got %d, want 3", got)
	}
}

// twin computes the conditions with a loop over all steps from step 1 on.
func twin(w *Weather, step int64, rank int) Conditions {
	c := Fair
	for _, l := range w.Lines {
		holds, phase := false, int64(0)
		for s := l.From; s <= step; s++ {
			holds = l.Every == 0 || phase < l.For
			if phase++; phase == l.Every {
				phase = 0
			}
			if l.To != 0 && s > l.To {
				holds = false
			}
		}
		named := len(l.Ranks) == 0
		for _, r := range l.Ranks {
			named = named || r == rank
		}
		if !holds || !named {
			continue
		}
		if l.Speed > 0 {
			c.Speed *= l.Speed
		}
		c.Neighbours += l.Neighbours
		if l.BitsPerSecond > 0 && (c.BitsPerSecond == 0 || c.BitsPerSecond > l.BitsPerSecond) {
			c.BitsPerSecond = l.BitsPerSecond
		}
	}
	if c.Speed < MinSpeed {
		c.Speed = MinSpeed
	}
	c.Median = c.Speed
	return c
}

func randomLine(r *rand.Rand) Line {
	l := Line{From: 1 + r.Int64N(40)}
	if r.IntN(2) == 0 {
		l.To = l.From + r.Int64N(40)
	}
	if r.IntN(2) == 0 {
		l.Every = 2 + r.Int64N(10)
		l.For = 1 + r.Int64N(l.Every-1)
	}
	if r.IntN(3) > 0 {
		l.Ranks = []int{r.IntN(4)}
		if r.IntN(2) == 0 {
			l.Ranks = append(l.Ranks, 4)
		}
	}
	switch r.IntN(4) {
	case 0:
		l.Neighbours = 1 + r.IntN(3)
	case 1:
		l.BitsPerSecond = 1000 + r.Int64N(1e10)
	default:
		l.Speed = float64(1+r.IntN(100)) / 100
	}
	return l
}

func TestConditionsEqualThoseOfADumbTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		w := &Weather{}
		for range r.IntN(6) {
			w.Lines = append(w.Lines, randomLine(r))
		}
		step, rank := 1+r.Int64N(100), r.IntN(5)
		if got, want := w.At(step, rank), twin(w, step, rank); got != want {
			t.Fatalf("%sstep %d, rank %d: got %+v, want %+v", w, step, rank, got, want)
		}
		again, err := Parse("again", []byte(w.String()))
		if err != nil || again.String() != w.String() || again.At(step, rank) != w.At(step, rank) {
			t.Fatalf("%sreads back as\n%s%v", w, again, err)
		}
	}
}

func TestJitterIsLognormalAndAFunctionOfSeedLineRankAndStep(t *testing.T) {
	const n, sigma = 20000, 0.05
	w := parse(t, "seed 7", "all speed 0.5 jitter 0.05")
	mean, square := 0.0, 0.0
	for step := range int64(n) {
		c := w.At(step+1, 0)
		if c != w.At(step+1, 0) || c.Median != 0.5 || !c.Jitter {
			t.Fatalf("step %d: got %+v, then %+v", step+1, c, w.At(step+1, 0))
		}
		x := math.Log(c.Speed / 0.5)
		mean, square = mean+x/n, square+x*x/n
	}
	if sd := math.Sqrt(square - mean*mean); math.Abs(mean) > 4*sigma/math.Sqrt(n) ||
		math.Abs(sd-sigma) > 4*sigma/math.Sqrt(2*n) {
		t.Errorf("logarithms: got mean %.5f and deviation %.5f, want 0 and %v", mean, sd, sigma)
	}
	base := w.At(1, 0)
	for name, other := range map[string]Conditions{
		"step": w.At(2, 0), "rank": w.At(1, 1), "seed": parse(t, "seed 8", "all speed 0.5 jitter 0.05").At(1, 0),
		"line": parse(t, "seed 7", "from 1000 all speed 1", "all speed 0.5 jitter 0.05").At(1, 0),
	} {
		if other.Speed == base.Speed {
			t.Errorf("another %s: got the same factor %v", name, base.Speed)
		}
		if !other.Alike(base) {
			t.Errorf("another %s: %+v and %+v differ in more than jitter", name, other, base)
		}
	}
}

func TestSpeedWithJitterStaysInBounds(t *testing.T) {
	w := parse(t, "rank 0 speed 1 jitter 1", "rank 1 speed 0.011 jitter 1")
	for step := range int64(1000) {
		for rank := range 2 {
			if c := w.At(step, rank); c.Speed < MinSpeed || c.Speed > 1 {
				t.Fatalf("step %d, rank %d: got %+v", step, rank, c)
			}
		}
	}
}

func TestAskingForConditionsAllocatesNothing(t *testing.T) {
	w := parse(t, "seed 7", "all speed 0.5 jitter 0.05", "rank 1,2 link 10 mbit", "every 5 for 2 all neighbour 1")
	if n := testing.AllocsPerRun(100, func() { w.At(55, 1) }); n != 0 {
		t.Errorf("got %v allocations", n)
	}
}

func TestBandwidthIsReadable(t *testing.T) {
	for bits, want := range map[int64]string{1500: "1.5 kbit/s", 10e6: "10 Mbit/s", 2.5e9: "2.5 Gbit/s"} {
		if got := Bandwidth(bits); got != want {
			t.Errorf("%d: got %s, want %s", bits, got, want)
		}
	}
}

// FuzzParse checks that the String of a parsed scenario parses to the same scenario.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "weather v1", "weather v1\nseed 18446744073709551615\nall speed 0.5",
		"weather v1\nfrom 1 to 2 every 3 for 2 rank 1,0 speed 1e-300 jitter 0x1p-4",
		"weather v1 # x\n\nevery 50 for 3 rank 0 link 1.23456789 gbit",
		"weather v1\nall neighbour 64\nall link 0.0001 gbit", "weather v1\nall speed 2\n\xff",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		w, err := Parse("f", []byte(text))
		if err != nil {
			return
		}
		again, err := Parse("f", []byte(w.String()))
		if err != nil {
			t.Fatalf("%q is written as\n%s%v", text, w, err)
		}
		if again.String() != w.String() {
			t.Fatalf("%q: got\n%s, then\n%s", text, w, again)
		}
		for _, step := range []int64{1, 2, 50, 1 << 40} {
			if c := w.At(step, 0); c != again.At(step, 0) || !(c.Speed >= MinSpeed && c.Speed <= 1) {
				t.Fatalf("%q: step %d: got %+v and %+v", text, step, c, again.At(step, 0))
			}
		}
	})
}
