package estimate

import (
	"math"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/internal/stat"
)

// everyShare is the number of samples up to which a curve with tiles has every share. Larger values take longer.
const everyShare = 4096

// between returns a curve up to limit samples through the given points. Between the points, it has the form of f, which
// differs from lines only if f has tiles.
func (f *shape) between(points divide.Curve, limit int) divide.Curve {
	if f == nil || !f.jagged() {
		return points
	}
	curve, _ := f.curves(limit, 0)
	ratio := make(divide.Curve, 0, len(points)+1)
	for _, p := range points {
		ratio = append(ratio, divide.Point{Samples: p.Samples, Seconds: p.Seconds / curve.At(p.Samples)})
	}
	end := ratio[len(ratio)-1]
	ratio = append(ratio, divide.Point{Samples: end.Samples + 1, Seconds: end.Seconds}) // flat from here on
	for i, p := range curve {
		curve[i].Seconds = p.Seconds * ratio.At(p.Samples)
	}
	return curve
}

// under returns the expected curve up to limit samples if the rank has one tile, with a weight that is sigmas standard
// deviations above the expected weight. It returns nil if the fit fails numerically.
func (f *shape) under(tile int, sigmas float64, limit int) divide.Curve {
	p := f.regress(tile, f.expected[tile], sigmas)
	if p == nil {
		return nil
	}
	p.chance, p.valley = 1, p.valleyOf(f.known, f.cov)
	one := *f
	one.parts = []part{*p}
	mean, _ := one.curves(limit, 0)
	return mean
}

// curves returns the mean curve, and the mean plus sigmas standard deviations, up to limit samples or b0, whichever is
// larger. With 0 standard deviations, both are the same curve.
func (f *shape) curves(limit int, sigmas float64) (mean, off divide.Curve) {
	knots := f.knotsTo(limit)
	k := make([]float64, len(f.cells))
	bases, spreads := make([]divide.Curve, len(f.parts)), make([]divide.Curve, len(f.parts))
	for i := range f.parts {
		p := &f.parts[i]
		bases[i], spreads[i] = make(divide.Curve, len(knots)), divide.Curve{{Samples: 1, Seconds: 0}}
		if sigmas != 0 {
			spreads[i] = make(divide.Curve, len(knots))
		}
		for j, at := range knots {
			bases[i][j] = divide.Point{Samples: at.samples, Seconds: f.base(p, at, k)}
			if sigmas != 0 {
				spreads[i][j] = divide.Point{Samples: at.samples, Seconds: f.free(p, at, k)}
			}
		}
		settle(bases[i], knotOf(knots, p.valley), func(j int) float64 {
			f.base(p, knots[j], k)
			return f.free(p, knots[j], k)
		})
	}
	var shares []float64
	if f.jagged() {
		for b := 1.0; b <= min(knots[len(knots)-1].samples, everyShare); b++ {
			shares = append(shares, b)
		}
	}
	for _, at := range knots {
		if !f.jagged() || at.samples > everyShare {
			shares = append(shares, at.samples)
		}
	}
	mean, off = make(divide.Curve, len(shares)), make(divide.Curve, len(shares))
	next := 0 // the first knot that is at least the share
	for j, b := range shares {
		m, v := 0.0, 0.0
		for next < len(knots)-1 && knots[next].samples < b {
			next++
		}
		for i := range f.parts {
			p := &f.parts[i]
			z := 0.0
			if b <= everyShare {
				z = tiles[p.tile].feature(b)
			}
			t := onto(bases[i], next, b) / max(1-p.weight*z, leastPlain)
			m += p.chance * t
			v += p.chance * (onto(spreads[i], next, b) + stat.Square(z*t)*p.spread + t*t)
		}
		mean[j] = divide.Point{Samples: b, Seconds: m * f.scale}
		if sigmas != 0 { // rounding can make the variance negative
			off[j] = divide.Point{Samples: b, Seconds: max(m+sigmas*math.Sqrt(max(v-m*m, 0)), 0.02*m) * f.scale}
		}
	}
	if sigmas == 0 {
		return mean, mean
	}
	if !f.jagged() && (sigmas > 0 || f.parts[0].valley == 0) {
		settle(off, knotOf(knots, f.parts[0].valley), func(j int) float64 {
			f.base(&f.parts[0], knots[j], k)
			return f.free(&f.parts[0], knots[j], k)
		})
	}
	return mean, off
}

// onto is [divide.Curve.At] for a share whose next point is known. The next point is the first point that is at least
// the share.
func onto(c divide.Curve, next int, samples float64) float64 {
	if next == 0 || len(c) == 1 {
		return c[0].Seconds
	}
	return divide.Between(c[next-1], c[next], samples)
}
