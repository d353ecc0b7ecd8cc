package hyper

import (
	"math"
	"math/rand/v2"
	"testing"
)

// agreement returns the expected fraction of components in which a bundle of n independent random vectors agrees with
// each of them:
//
//	1/2 + C(n-1, floor((n-1)/2)) / 2^n
//
// A component of the bundle differs from that of a member only if the other n-1 members outvote it. For large n, the
// fraction is about 1/2 + 1/sqrt(2 pi n).
func agreement(n int) float64 {
	if n < 1 {
		return 0.5
	}
	k := float64((n - 1) / 2)
	a, _ := math.Lgamma(float64(n))
	b, _ := math.Lgamma(k + 1)
	c, _ := math.Lgamma(float64(n) - k)
	return 0.5 + math.Exp(a-b-c-float64(n)*math.Ln2)
}

// capacity returns the probability that a query finds one member of a bundle of n random vectors of dimension d. The
// item memory contains this member and others unrelated items. The query is correct if the member is more similar to
// the bundle than all unrelated items are.
//
// The number of agreeing components is binomial: Binomial(d, agreement(n)) for the member, Binomial(d, 1/2) for an
// unrelated item. capacity uses the normal approximation of both, and integrates over the agreement of the member:
//
//	P = integral of phi(x) * Phi((mean(member) + x * deviation(member) - d/2) / sqrt(d/4))^others dx
func capacity(d, n, others int) float64 {
	p := agreement(n)
	mean, deviation := float64(d)*p, math.Sqrt(float64(d)*p*(1-p))
	// Simpson's rule over 8 standard deviations; the integral outside is below 1e-14.
	const steps, width = 4000, 16.0
	sum := 0.0
	for i := range steps + 1 {
		x := -width/2 + width*float64(i)/steps
		z := (mean + x*deviation - float64(d)/2) / math.Sqrt(float64(d)/4)
		weight := 2.0 + 2*float64(i%2)
		if i == 0 || i == steps {
			weight = 1
		}
		below := math.Erfc(-z/math.Sqrt2) / 2
		sum += weight * math.Exp(-x*x/2) * math.Pow(below, float64(others))
	}
	return min(sum*width/steps/3/math.Sqrt(2*math.Pi), 1)
}

func TestAgreement(t *testing.T) {
	// Expected values by enumeration: a bundle of one vector equals the vector. A bundle of two random vectors agrees
	// with each of them in 3/4 of the components, if ties are random.
	for n, want := range map[int]float64{1: 1, 2: 0.75, 3: 0.75, 4: 0.6875, 5: 0.6875, 7: 0.65625} {
		if got := agreement(n); math.Abs(got-want) > 1e-12 {
			t.Errorf("agreement(%d) = %v, want %v", n, got, want)
		}
	}
	// For many members, agreement - 1/2 must equal the approximation within 0.1 %.
	for _, n := range []int{1001, 10001} {
		want := 1 / math.Sqrt(2*math.Pi*float64(n))
		if got := agreement(n) - 0.5; math.Abs(got/want-1) > 1e-3 {
			t.Errorf("agreement(%d) - 1/2 = %v, want about %v", n, got, want)
		}
	}
}

// random returns vectors without names.
func random(s *Space, source *rand.PCG, n int) []Vector {
	list := make([]Vector, n)
	for i := range list {
		list[i] = s.New()
		s.fill(list[i], source)
	}
	return list
}

// retrieve measures the probability that capacity predicts: the fraction of queries of one member that find it among
// the unrelated items.
func retrieve(s *Space, n, others, queries int, seed uint64) (correct, agreed float64) {
	source := rand.NewPCG(seed, 7)
	b, v := s.NewBundle(), s.New()
	hits, agree := 0, 0
	for range queries {
		b.Clear()
		members := random(s, source, n)
		for _, m := range members {
			b.Add(m)
		}
		b.Majority(v)
		own := s.Distance(v, members[0])
		agree += s.dimension - own
		found := true
		for _, other := range random(s, source, others) {
			found = found && s.Distance(v, other) > own
		}
		if found {
			hits++
		}
	}
	return float64(hits) / float64(queries), float64(agree) / float64(queries) / float64(s.dimension)
}

func TestCapacityEqualsTheory(t *testing.T) {
	const queries = 600
	for _, c := range []struct{ d, n, others int }{
		{256, 5, 20}, {256, 15, 20}, {256, 64, 20}, {512, 31, 50}, {1000, 51, 30}, {1000, 200, 30},
	} {
		measureCapacity(t, c.d, c.n, c.others, queries, uint64(c.d*c.n))
	}
}

// measureCapacity checks that the measured fractions of correct queries and of agreeing components follow the theory.
func measureCapacity(t *testing.T, d, n, others, queries int, seed uint64) (correct, agreed float64) {
	t.Helper()
	correct, agreed = retrieve(space(t, d), n, others, queries, seed)
	// The limit is four standard errors of the fraction, and at least one query.
	all := float64(queries)
	if want := capacity(d, n, others); math.Abs(correct-want) > 4*math.Sqrt(want*(1-want)/all)+1/all {
		t.Errorf("%d components, %d members, %d other items: got %.3f correct of %d queries, want %.3f", d, n, others,
			correct, queries, want)
	}
	if want, limit := agreement(n), 4*0.5/math.Sqrt(float64(queries*d)); math.Abs(agreed-want) > limit {
		t.Errorf("%d components, %d members: agreement: got %.4f, want %.4f +- %.4f", d, n, agreed, want, limit)
	}
	return correct, agreed
}

func TestCapacityIsAProbabilityThatFallsWithMembers(t *testing.T) {
	for _, d := range []int{100, 1000, 10000} {
		last := 1.0
		for n := 1; n < 3000; n = n*3/2 + 1 {
			p := capacity(d, n, 100)
			if !(p >= 0 && p <= last+1e-9) {
				t.Errorf("%d components, %d members: got %v after %v, want a probability that falls", d, n, p, last)
			}
			last = p
		}
		if got := capacity(d, 5, 0); math.Abs(got-1) > 1e-6 {
			t.Errorf("without other items: got %v, want 1", got)
		}
	}
}

// noise measures the mean and the standard deviation of the similarity of unrelated vectors.
func noise(s *Space, pairs int) (mean, deviation float64) {
	source := rand.NewPCG(uint64(s.dimension), 11)
	var sum, square float64
	for range pairs {
		v := random(s, source, 2)
		x := s.Similarity(v[0], v[1])
		sum, square = sum+x, square+x*x
	}
	mean = sum / float64(pairs)
	return mean, math.Sqrt(square/float64(pairs) - mean*mean)
}

func TestNoiseOfUnrelatedVectorsEqualsTheory(t *testing.T) {
	const pairs = 2000
	for _, d := range []int{100, 1000, Dimension} {
		measureNoise(t, d, pairs)
	}
}

// measureNoise checks that the similarities of unrelated vectors have the mean and the deviation of the theory.
func measureNoise(t *testing.T, d, pairs int) (mean, deviation float64) {
	t.Helper()
	mean, deviation = noise(space(t, d), pairs)
	want, all := 1/math.Sqrt(float64(d)), float64(pairs)
	// The standard errors are want/sqrt(pairs) for the mean, and want/sqrt(2 pairs) for the deviation. The limit is
	// four of them.
	if math.Abs(mean) > 4*want/math.Sqrt(all) || math.Abs(deviation-want) > 4*want/math.Sqrt(2*all) {
		t.Errorf("%d components: got mean %.5f and deviation %.5f, want 0 and %.5f", d, mean, deviation, want)
	}
	return mean, deviation
}
