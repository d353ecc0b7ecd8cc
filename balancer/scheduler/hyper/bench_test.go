package hyper

import (
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

func BenchmarkBind(b *testing.B) {
	s := space(b, Dimension)
	x, y, out := s.Random("x"), s.Random("y"), s.New()
	for b.Loop() {
		s.Bind(out, x, y)
	}
}

func BenchmarkSimilarity(b *testing.B) {
	s := space(b, Dimension)
	x, y := s.Random("x"), s.Random("y")
	for b.Loop() {
		s.Similarity(x, y)
	}
}

// BenchmarkBundle5 computes the majority of 5 vectors, the number of vectors in a record.
func BenchmarkBundle5(b *testing.B) {
	s := space(b, Dimension)
	bundle, out := s.NewBundle(), s.New()
	var v [5]Vector
	for i := range v {
		v[i] = s.Random(strconv.Itoa(i))
	}
	for b.Loop() {
		bundle.Clear()
		for i := range v {
			bundle.Add(v[i])
		}
		bundle.Majority(out)
	}
}

func BenchmarkQuery64Items(b *testing.B) {
	s := space(b, Dimension)
	m := s.NewMemory()
	for i := range 64 {
		m.Item(strconv.Itoa(i))
	}
	x, role, out := s.Random("x"), s.Random("role"), s.New()
	var matches [1]Match
	for b.Loop() {
		s.Bind(out, x, role)
		m.Nearest(out, matches[:])
	}
}

// BenchmarkScoresFresh computes the scores of one job for 4 GPUs of 2 records after each update of the memories.
func BenchmarkScoresFresh(b *testing.B) {
	a := affinity(b, Options{})
	s := play(a, 40)
	for b.Loop() {
		a.version++
		for gpu := range s.Cluster.GPUs {
			a.Score(s, 3, gpu)
		}
	}
}

func BenchmarkScoresKnown(b *testing.B) {
	a := affinity(b, Options{})
	s := play(a, 40)
	for b.Loop() {
		for gpu := range s.Cluster.GPUs {
			a.Score(s, 3, gpu)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	a := affinity(b, Options{})
	play(a, 40)
	p := a.Placements()[0]
	for b.Loop() {
		observe(a, &p)
	}
}

// TestCapacityTable prints the table of the package comment, with additional rows, and compares each row with the
// theory.
func TestCapacityTable(t *testing.T) {
	needtest.Large.Need(t, "takes a minute")
	for _, d := range []int{1000, 2000, Dimension} {
		mean, deviation := measureNoise(t, d, 20000)
		fmt.Printf("%d components: similarity of unrelated vectors: mean %.5f, deviation %.5f; theory 0, %.5f\n", d,
			mean, deviation, 1/math.Sqrt(float64(d)))
	}
	fmt.Println("| Dimension | Members | Other items | Correct, theory | Correct, measured | Agreement, theory | Agreement, measured |")
	fmt.Println("|---|---|---|---|---|---|---|")
	for _, c := range []struct{ d, n, others int }{
		{1000, 5, 100}, {1000, 25, 100}, {1000, 51, 100}, {1000, 101, 100}, {1000, 201, 100},
		{2000, 51, 100}, {2000, 101, 100}, {2000, 201, 100},
		{10000, 5, 100}, {10000, 101, 100}, {10000, 201, 100}, {10000, 401, 100}, {10000, 801, 100}, {10000, 1601, 100},
	} {
		got, measured := measureCapacity(t, c.d, c.n, c.others, 2000, 1)
		fmt.Printf("| %d | %d | %d | %.4f | %.4f | %.4f | %.4f |\n", c.d, c.n, c.others, capacity(c.d, c.n, c.others),
			got, agreement(c.n), measured)
	}
}
