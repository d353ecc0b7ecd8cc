package hyper

import "math"

// Agreement returns the expected fraction of components in which a bundle of n independent random vectors agrees with
// each of them:
//
//	1/2 + C(n-1, floor((n-1)/2)) / 2^n
//
// The majority differs from the member only if the n-1 others outvote it. For large n it is about
// 1/2 + 1/sqrt(2 pi n).
func Agreement(n int) float64 {
	if n < 1 {
		return 0.5
	}
	k := float64((n - 1) / 2)
	a, _ := math.Lgamma(float64(n))
	b, _ := math.Lgamma(k + 1)
	c, _ := math.Lgamma(float64(n) - k)
	return 0.5 + math.Exp(a-b-c-float64(n)*math.Ln2)
}

// Capacity returns the probability that a query finds one member of a bundle: n random vectors of dimension d are
// bundled, and the item memory contains this member and others unrelated items. The query is correct if the member is
// more similar to the bundle than all unrelated items are.
//
// The number of agreeing components is binomial: Binomial(d, Agreement(n)) for the member, Binomial(d, 1/2) for an
// unrelated item. Capacity uses the normal approximation of both, and integrates over the agreement of the member:
//
//	P = integral of phi(x) * Phi((mean(member) + x * deviation(member) - d/2) / sqrt(d/4))^others dx
func Capacity(d, n, others int) float64 {
	p := Agreement(n)
	mean, deviation := float64(d)*p, math.Sqrt(float64(d)*p*(1-p))
	// Simpson's rule over 8 standard deviations; what lies outside is below 1e-14.
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
