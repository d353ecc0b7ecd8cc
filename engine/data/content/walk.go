package content

// walk is an order of n units, which contains each unit once. Every section of the order is spread evenly over all
// units, because the step between successive units is n divided by the golden ratio. The order needs no memory.
type walk struct{ n, start, step int }

func newWalk(n int, seed uint64) walk {
	if n <= 1 {
		return walk{n: n}
	}
	const perGolden = 0.6180339887498949
	w := walk{n, int((seed ^ seed>>32) * 0x9E3779B97F4A7C15 % uint64(n)), max(int(float64(n)*perGolden), 1)}
	for gcd(w.step, n) != 1 {
		w.step++ // the loop ends at n-1 at the latest if n > 2, and at 1 if n = 2
	}
	return w
}

// at returns the unit at position k of the order, 0 <= k < n.
func (w walk) at(k int) int { return int((uint64(w.start) + uint64(k)*uint64(w.step)) % uint64(w.n)) }

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
