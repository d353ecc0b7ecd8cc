package divide

// A curve may rise and fall many times. If kernels process blocks (tiles) of samples, shares that fill the tiles are
// fast, and the next larger shares are slow. The search for the shares has two steps. The first step finds, by
// bisection over the possible times of ranks, the shortest step for which a division exists (jagged_search.go). The
// second step constructs the division (jagged_divide.go).

// jagged finds the division with the shortest time, for curves of any form. It returns nil if it finds no time within
// which a division exists.
func (u units) jagged(curves []Scaled) []int {
	const tries = 12
	guess := u.guessJagged(curves)
	if n, known := u.jaggedShared(curves, &guess, tries); known {
		return n
	}
	// Use only times beyond these fractions of the guess, first few and then more; 0: all times.
	beyond := []float64{0.95, 0.75, 0}
	for try := range tries {
		within := guess.time(try)
		for beyond[0] > 0 {
			n, short := u.jaggedNear(curves, within, beyond[0]*min(within, guess.balanced*guessMargin))
			if n != nil {
				return n
			}
			if short {
				break
			}
			beyond = beyond[1:]
		}
		if beyond[0] == 0 {
			j := u.newJagged(curves, exactTimes(u.timesWithin(curves, within)))
			if j.divide(within, nil) {
				n, _ := j.search(within, nil)
				return n
			}
		}
	}
	return nil
}

// jaggedShared is jagged for ranks that share the points of their curves. It returns false if few ranks do.
func (u units) jaggedShared(curves []Scaled, guess *guess, tries int) (n []int, known bool) {
	for _, beyond := range []float64{0.75, 0} { // of the guess; first few times of ranks with own points, then all
		classes, many := u.classes(curves, beyond*min(guess.time(0), guess.balanced*guessMargin))
		deep := false
		for try := 0; many && !deep && try < tries; try++ {
			within := guess.time(try)
			list, tolerance := classes.times(curves, within)
			j := classes.newJagged(curves, list)
			j.tolerance, j.least = tolerance, classes.least
			if !j.divide(within, nil) {
				deep = j.deep
				continue
			}
			if n, deep = j.search(within, nil); !deep {
				return n, true
			}
		}
		if !deep {
			return nil, many
		}
	}
	return nil, false
}

// jaggedWithin is jagged for a known division within the limits. A slow known division takes longer, and does not
// change the result.
func (u units) jaggedWithin(curves []Scaled, known []int) []int {
	within := 0.0
	for r, n := range known {
		if n > 0 {
			within = max(within, curves[r].At(float64(u.samples(r, n))))
		}
	}
	n, _ := u.newJagged(curves, exactTimes(u.timesWithin(curves, within))).search(within, known)
	return n
}

// jaggedNear is jagged with the times from least to within only: it leaves out the first units of each rank whose times
// are all at most least. It returns nil if within is too short, or if the result may depend on these units.
func (u units) jaggedNear(curves []Scaled, within, least float64) (n []int, short bool) {
	if !(least > 0) {
		return nil, false
	}
	v := u
	v.floor = make([]int, len(curves))
	for r := range curves {
		if u.limit[r] > 0 {
			samples := curves[r].allWithin(least)
			if r == u.last {
				samples -= u.rest
			}
			v.floor[r] = max(u.fewest(r), min(samples/u.size, u.limit[r]))
		}
	}
	j := v.newJagged(curves, exactTimes(v.timesWithin(curves, within)))
	j.least = least
	if !j.divide(within, nil) {
		return nil, !j.deep
	}
	n, deep := j.search(within, nil)
	if deep {
		return nil, false
	}
	return n, false
}
