package hyper

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Levels are the vectors of numbers between 0 and 1. Level 0 is a random vector. Each level differs from level 0 in all
// components in which the previous level differs, and in some more. The last level differs in half of the components
// and is therefore unrelated to level 0.
type Levels struct {
	space   *Space
	vectors []Vector
}

// NewLevels returns n levels, at least 2 and at most half of the dimension. Levels of different names are unrelated.
func (s *Space) NewLevels(name string, n int) (*Levels, error) {
	half := s.dimension / 2
	if n < 2 || n > half {
		return nil, fmt.Errorf("levels of %q: got %d, want 2 to %d", name, n, half)
	}
	l := &Levels{space: s, vectors: make([]Vector, n)}
	l.vectors[0] = s.Random(name)
	order := rand.New(rand.NewPCG(s.seed+1, hash(name))).Perm(s.dimension)
	for i := 1; i < n; i++ {
		v := append(Vector(nil), l.vectors[i-1]...)
		for _, c := range order[half*(i-1)/(n-1) : half*i/(n-1)] {
			v[c/64] ^= 1 << (c % 64)
		}
		l.vectors[i] = v
	}
	return l, nil
}

// Len returns the number of levels.
func (l *Levels) Len() int { return len(l.vectors) }

// Index returns the level of x. Numbers below 0 have level 0, and numbers above 1 have the last level. The index of NaN
// is -1.
func (l *Levels) Index(x float64) int {
	if math.IsNaN(x) {
		return -1
	}
	return int(math.Round(min(max(x, 0), 1) * float64(len(l.vectors)-1)))
}

// At returns the vector of a level. The caller must not change it.
func (l *Levels) At(index int) Vector { return l.vectors[index] }

// Decode returns the number whose level is most similar to v, and this similarity. Ties go to the smaller number.
func (l *Levels) Decode(v Vector) (x, similarity float64) {
	best, least := 0, l.space.dimension+1
	for i, level := range l.vectors {
		if d := l.space.Distance(level, v); d < least {
			best, least = i, d
		}
	}
	return float64(best) / float64(len(l.vectors)-1), 1 - 2*float64(least)/float64(l.space.dimension)
}
