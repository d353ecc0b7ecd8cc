package estimate

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Many small jumps, such as changes of a clock, must not hide that a large surprise may be a jump.
func TestSmallJumpsDoNotExcludeALargeOne(t *testing.T) {
	const burst, variance = 1.6, 0.001
	var none, small jumps
	for range 100 {
		none.windows++
		small.windows++
	}
	for range 20 {
		small.add(0.1, 1)
	}
	if got, want := small.density(burst, variance), none.density(burst, variance)/2; got < want {
		t.Errorf("got a density of %.2g after jumps of 10 %%, want at least %.2g", got, want)
	}
	if got, least := small.density(0.1, variance), 5*none.density(0.1, variance); got < least {
		t.Errorf("got a density of %.2g for another small jump, want at least %.2g", got, least)
	}
}

// A share in doubt must not teach the rank that its windows have less noise, or more, than they have.
func TestAShareInDoubtDoesNotTeachJitter(t *testing.T) {
	k := &source{r: rand.New(rand.NewPCG(3, 4)), curve: sloped, level: steady, noise: 0.05}
	e := newPosterior(nil, 0, 64)
	play(e, k, 60, 32, 60, 32)
	e.jitter = 0.004
	k.level = func(int) float64 { return 8 }
	play(e, k, 44)
	if play(e, k, 44); math.Abs(e.jitter-0.004) > 0.0005 {
		t.Errorf("got jitter %.4f after a share in doubt, want about 0.004", e.jitter)
	}
}

// A share fills a known tile, and is as much faster as the curve predicts. A surprise beyond that is no evidence for
// the tile a second time.
func TestAKnownTileCountsOnce(t *testing.T) {
	curve := func(n int) float64 {
		if n%8 == 0 {
			return 0.65 * sloped(n)
		}
		return sloped(n)
	}
	k := &source{r: rand.New(rand.NewPCG(5, 4)), curve: curve, level: steady, noise: 0.005}
	e := newPosterior(nil, 0, 128)
	play(e, k, 60, 64, 51, 56, 43, 48, 60, 64, 51)
	tile := 2
	if chance := e.shape.chances[tile]; tiles[tile].period != 8 || chance < 0.9 {
		t.Fatalf("got a probability of %.2f of a tile of %d samples, want at least 0.9 of 8", chance,
			tiles[tile].period)
	}
	faster, slower := e.jumped(24, -0.35, 0.001), e.jumped(24, 0.35, 0.001)
	if math.Abs(math.Log(faster/slower)) > 0.7 {
		t.Errorf("got a probability of %.3f that the level has jumped if the share is faster, and %.3f if it is slower by as much; want about the same",
			faster, slower)
	}
}
