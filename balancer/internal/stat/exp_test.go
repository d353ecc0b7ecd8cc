package stat

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestExpIsThatOfTheStandardLibrary(t *testing.T) {
	for x := -50.0; x <= 50; x += 0.0137 {
		if got, want := Exp(x), math.Exp(x); math.Abs(got-want) > 2e-15*want {
			t.Errorf("Exp(%v): got %v, want %v", x, got, want)
		}
	}
	for x, want := range map[float64]float64{0: 1, math.Inf(-1): math.Exp(-700), math.Inf(1): math.Exp(700)} {
		if got := Exp(x); math.Abs(got-want) > 1e-14*want {
			t.Errorf("Exp(%v): got %v, want %v", x, got, want)
		}
	}
}

// expOneByOne is the reference of Exp. It adds terms one by one until they no longer change the sum. Exp must return
// the same bits.
func expOneByOne(x float64) float64 {
	k := math.Round(x / math.Ln2)
	const high, low = 6.93147180369123816490e-01, 1.90821492927058770002e-10
	r := (x - k*high) - k*low
	sum, term := 1.0, 1.0
	for i := 1; i <= 30; i++ {
		term *= r / float64(i)
		sum += term
	}
	return sum * math.Float64frombits(uint64(1023+int64(k))<<52)
}

func TestExpNeedsNoFurtherTerms(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 200_000 {
		x := (2*random.Float64() - 1) * math.Exp2(float64(random.IntN(60)-50))
		if random.IntN(4) == 0 { // near the ends of the reduced interval
			x = (float64(random.IntN(200)-100) + 0.5) * math.Ln2 * (1 + 1e-15*float64(random.IntN(9)-4))
		}
		if x = min(max(x, -700), 700); Exp(x) != expOneByOne(x) {
			t.Fatalf("Exp(%v): got %v, want %v", x, Exp(x), expOneByOne(x))
		}
	}
}

func TestRoundIsThatOfTheStandardLibrary(t *testing.T) {
	for _, near := range []float64{0, 0.5, 1, 1.5, 2.5, 1010.5, 1<<30 + 0.5} {
		for _, x := range []float64{near, math.Nextafter(near, 0), math.Nextafter(near, 2e9)} {
			if round(x) != math.Round(x) || round(-x) != math.Round(-x) {
				t.Errorf("%v: got %v and %v, want %v and %v", x, round(x), round(-x), math.Round(x), math.Round(-x))
			}
		}
	}
}

func BenchmarkExp(b *testing.B) {
	sum := 0.0
	for i := range b.N {
		sum += Exp(float64(i%1000)*0.01 - 5)
	}
	if sum < 0 {
		b.Error(sum)
	}
}
