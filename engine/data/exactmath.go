package data

import "math"

// The functions of package math differ in their last bits between architectures, which could change a random choice.
// The functions here use only basic operations in a fixed order. Conversions to float64 prevent fused multiply-adds.

// exponential returns e^x for |x| < 1.
func exponential(x float64) float64 {
	sum := 1.0
	for n := 18; n > 0; n-- {
		sum = 1 + float64(x*sum)/float64(n)
	}
	return sum
}

// exponentialWide returns e^x for any x. Its relative error grows with |x|.
func exponentialWide(x float64) float64 {
	switch { // results outside the range of float64
	case x > 709:
		return math.Inf(1)
	case x < -745:
		return 0
	}
	halved := 0
	for ; math.Abs(x) >= 1; halved++ {
		x /= 2
	}
	y := exponential(x)
	for range halved {
		y = float64(y * y)
	}
	return y
}

// logarithm returns ln x for a finite x > 0.
func logarithm(x float64) float64 {
	const ln2 = 0.693147180559945309417232121458176568
	f, e := math.Frexp(x)
	if f < math.Sqrt2/2 {
		f, e = 2*f, e-1
	}
	z := (f - 1) / (f + 1) // ln f = 2·artanh z, |z| < 0.172
	square, sum := float64(z*z), 0.0
	for n := 23; n > 0; n -= 2 {
		sum = 1/float64(n) + float64(square*sum)
	}
	return float64(float64(e)*ln2) + float64(2*float64(z*sum))
}

// normalBelow returns the probability that a standard normal number is below z, with an error of at most 1e-13.
func normalBelow(z float64) float64 {
	if z < -9 {
		return 0
	}
	if z > 9 {
		return 1
	}
	// G. Marsaglia, "Evaluating the normal distribution", 2004: 1/2 + density·(z + z³/3 + z⁵/(3·5) + …)
	sum, term, square := z, z, float64(z*z)
	for n := 3.0; math.Abs(term) > 1e-17*math.Abs(sum); n += 2 {
		term = float64(term*square) / n
		sum += term
	}
	const oneOverRoot = 0.398942280401432677939946059934382
	density := float64(oneOverRoot * exponentialWide(-square/2))
	return min(max(0.5+float64(density*sum), 0), 1)
}

// between returns a uniform number in [low, high).
func (d *draws) between(low, high float64) float64 {
	return low + float64((high-low)*d.float64())
}

// positive returns a uniform number in (0, 1].
func (d *draws) positive() float64 { return 1 - d.float64() }

// normal returns a standard normal number by the polar method (G. Marsaglia and T. Bray, 1964).
func (d *draws) normal() float64 {
	for {
		u, v := d.between(-1, 1), d.between(-1, 1)
		if s := float64(u*u) + float64(v*v); s > 0 && s < 1 {
			return float64(u * math.Sqrt(-2*logarithm(s)/s))
		}
	}
}

// beta returns a random number with distribution Beta(a, a), a > 0.
func (d *draws) beta(a float64) float64 {
	if a <= 1 {
		return d.betaJohnk(a)
	}
	// R. Cheng, "Generating beta variates with nonintegral shape parameters", 1978, algorithm BB for equal parameters.
	const log4 = 1.38629436111989061883446424291635
	slope := math.Sqrt(1 / a) // sqrt((2a-2)/(2a²-2a))
	reach := a + 1/slope
	for {
		u1, u2 := d.positive(), d.positive()
		if u1 == 1 {
			continue
		}
		v := float64(slope * logarithm(u1/(1-u1)))
		w := float64(a * exponentialWide(v))
		r := float64(reach*v) - log4
		if r+float64(2*a*logarithm(2*a/(a+w))) >= logarithm(float64(float64(u1*u1)*u2)) {
			return w / (a + w)
		}
	}
}

// betaJohnk implements the method of M. Jöhnk (1964). It uses logarithms, so that small a do not cause underflow.
func (d *draws) betaJohnk(a float64) float64 {
	for {
		u, v := logarithm(d.positive()), logarithm(d.positive())
		x, y := u/a, v/a // logarithms of u^(1/a) and v^(1/a)
		most := max(x, y)
		if math.IsInf(most, -1) { // both overflow; as in the limit a = 0, the larger of u and v determines the result
			switch {
			case u > v:
				return 1
			case u < v:
				return 0
			}
			return 0.5
		}
		sum := exponentialWide(x-most) + exponentialWide(y-most)
		if most+logarithm(sum) <= 0 {
			return exponentialWide(x-most) / sum
		}
	}
}
