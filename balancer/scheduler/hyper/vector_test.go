package hyper

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

func space(t testing.TB, dimension int) *Space {
	t.Helper()
	s, err := NewSpace(dimension, 1)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bipolar returns the components of a vector as numbers, for comparison.
func (s *Space) bipolar(v Vector) []int {
	out := make([]int, s.dimension)
	for i := range out {
		out[i] = 1 - 2*int(v[i/64]>>(i%64)&1)
	}
	return out
}

// dimensions include multiples of 64 and dimensions whose last word is not full.
var dimensions = []int{64, 65, 127, 128, 1000, 10000}

func TestOperationsEqualThoseOnNumbers(t *testing.T) {
	for _, d := range dimensions {
		s := space(t, d)
		a, b, out := s.Random("a"), s.Random("b"), s.New()
		na, nb := s.bipolar(a), s.bipolar(b)

		s.Bind(out, a, b)
		dot := 0
		for i, got := range s.bipolar(out) {
			if got != na[i]*nb[i] {
				t.Fatalf("dimension %d: component %d of the binding: got %d, want %d", d, i, got, na[i]*nb[i])
			}
			dot += got
		}
		if got, want := s.Similarity(a, b), float64(dot)/float64(d); math.Abs(got-want) > 1e-12 {
			t.Errorf("dimension %d: similarity: got %v, want %v", d, got, want)
		}
	}
}

func TestBundleEqualsMajorityOfNumbers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, d := range []int{64, 100, 1000} {
		s := space(t, d)
		b, out := s.NewBundle(), s.New()
		counts := make([]int, d)
		var members []Vector
		for step := range 300 {
			if len(members) > 0 && rng.IntN(3) == 0 {
				k := rng.IntN(len(members))
				for i, c := range s.bipolar(members[k]) {
					counts[i] -= c
				}
				b.Remove(members[k])
				members = slices.Delete(members, k, k+1)
			} else {
				v := s.Random(strconv.Itoa(rng.IntN(50)))
				for i, c := range s.bipolar(v) {
					counts[i] += c
				}
				b.Add(v)
				members = append(members, v)
			}
			b.Majority(out)
			tie := s.bipolar(s.tie)
			for i, got := range s.bipolar(out) {
				want := tie[i]
				if counts[i] != 0 {
					want = counts[i] / max(counts[i], -counts[i])
				}
				if got != want {
					t.Fatalf("dimension %d, step %d: component %d of %d members with sum %d: got %d, want %d", d, step,
						i, len(members), counts[i], got, want)
				}
			}
			if b.Len() != len(members) {
				t.Fatalf("got %d members, want %d", b.Len(), len(members))
			}
		}
	}
}

func TestBindingIsItsOwnInverseAndKeepsDistances(t *testing.T) {
	s := space(t, Dimension)
	a, b, c := s.Random("a"), s.Random("b"), s.Random("c")
	ab, bc, back := s.New(), s.New(), s.New()
	s.Bind(ab, a, b)
	s.Bind(back, ab, b)
	if !slices.Equal(back, a) {
		t.Error("Bind(Bind(a, b), b) differs from a")
	}
	s.Bind(bc, c, b)
	if got, want := s.Distance(ab, bc), s.Distance(a, c); got != want {
		t.Errorf("distance after binding with one vector: got %d, want %d", got, want)
	}
	// Similarities of random vectors must be 0 within five standard deviations.
	for name, v := range map[string]Vector{"b": b, "Bind(a, b)": ab} {
		if got := math.Abs(s.Similarity(a, v)); got > 5/math.Sqrt(Dimension) {
			t.Errorf("similarity of a and %s: got %v, want about 0", name, got)
		}
	}
}

func TestEqualSeedsGiveEqualVectors(t *testing.T) {
	a, b := space(t, 1000), space(t, 1000)
	b.Random("another name first")
	if !slices.Equal(a.Random("x"), b.Random("x")) {
		t.Error("the vector of a name depends on earlier names")
	}
	c, err := NewSpace(1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Equal(a.Random("x"), c.Random("x")) {
		t.Error("spaces with different seeds have equal vectors")
	}
}

func TestLevelsAreLinearInTheirDistance(t *testing.T) {
	for _, n := range []int{2, 3, 16, 17, 100} {
		s := space(t, Dimension)
		l, err := s.NewLevels("x", n)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			for j := range n {
				got := s.Similarity(l.At(i), l.At(j))
				want := 1 - math.Abs(float64(i-j))/float64(n-1)
				if math.Abs(got-want) > 2.0/Dimension+1e-12 {
					// Each of the two levels is rounded by at most half a component.
					t.Errorf("%d levels: similarity of %d and %d: got %v, want %v", n, i, j, got, want)
				}
			}
			x := float64(i) / float64(n-1)
			if got := l.Index(x); got != i {
				t.Errorf("%d levels: index of %v: got %d, want %d", n, x, got, i)
			}
			if got, similarity := l.Decode(l.At(i)); got != x || similarity != 1 {
				t.Errorf("%d levels: decoding of level %d: got %v with similarity %v, want %v with 1", n, i, got,
					similarity, x)
			}
		}
		if l.Index(-3) != 0 || l.Index(math.Inf(1)) != n-1 || l.Index(math.NaN()) != -1 {
			t.Errorf("%d levels: got %d, %d, %d for -3, Inf, NaN, want 0, %d, -1", n, l.Index(-3), l.Index(math.Inf(1)),
				l.Index(math.NaN()), n-1)
		}
	}
}

func TestInvalidArgumentsAreErrors(t *testing.T) {
	for _, d := range []int{-1, 0, 63, MaxDimension + 1} {
		if _, err := NewSpace(d, 0); err == nil {
			t.Errorf("NewSpace(%d): got no error", d)
		}
	}
	s := space(t, 100)
	for _, n := range []int{-1, 0, 1, 51} {
		if _, err := s.NewLevels("x", n); err == nil {
			t.Errorf("NewLevels of %d: got no error", n)
		}
	}
	m := s.NewMemory()
	m.Item("x")
	if _, err := m.Add("x", s.New()); err == nil {
		t.Error("an item with an existing name: got no error")
	}
	for _, o := range []Options{{Well: 2}, {Well: -1}, {Well: math.NaN()}, {Window: -1}, {Refresh: -1},
		{Dimension: 3}} {
		if _, err := NewAffinity(o); err == nil {
			t.Errorf("NewAffinity(%+v): got no error", o)
		}
	}
}

func TestNearestReturnsTheMostSimilarItemsInOrder(t *testing.T) {
	s := space(t, 1000)
	m := s.NewMemory()
	var all []Match
	if _, ok := m.Cleanup(s.New()); ok {
		t.Error("a memory without items found one")
	}
	for i := range 40 {
		m.Item(strconv.Itoa(i))
	}
	// Item 40 equals item 7: the earlier one comes first.
	if _, err := m.Add("copy of 7", m.At(7)); err != nil {
		t.Fatal(err)
	}
	query := s.Random("query")
	for i := range m.Len() {
		all = append(all, Match{i, s.Similarity(m.At(i), query)})
	}
	slices.SortStableFunc(all, func(a, b Match) int {
		switch {
		case a.Similarity > b.Similarity:
			return -1
		case a.Similarity < b.Similarity:
			return 1
		}
		return 0
	})
	for _, k := range []int{0, 1, 5, 41, 60} {
		got := m.Nearest(query, make([]Match, k))
		if want := all[:min(k, len(all))]; !slices.Equal(got, want) {
			t.Errorf("the nearest %d: got %v, want %v", k, got, want)
		}
	}
	if got, _ := m.Cleanup(m.At(40)); got.Item != 7 || got.Similarity != 1 {
		t.Errorf("cleanup of an item that exists twice: got %v, want item 7", got)
	}
}
