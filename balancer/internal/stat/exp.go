package stat

import "math"

// Exp returns e to the x. The result is bit-equal on all processors of one architecture. math.Exp does not guarantee
// this, because it uses fused multiply-add if the processor has it. Ranks that fit the same data must get the same
// curves. The relative error is below 1e-15.
func Exp(x float64) float64 {
	const most = 700 // far beyond any time, and below overflow
	x = min(max(x, -most), most)
	k := round(x / math.Ln2)
	// ln 2 in two parts. The first part has few bits, so that its product with k is exact.
	const high, low = 6.93147180369123816490e-01, 1.90821492927058770002e-10
	r := (x - k*high) - k*low // |r| <= ln 2 / 2
	// The sum of the terms r^i / i!. It is at least 0.7, and 0.35^14 / 14! is below 2^-55, so later terms do not change
	// it. The quotients are those of r and i: half of a quotient is exact.
	r3, r5 := r/3, r/5
	ratios := [...]float64{r / 2, r3, r / 4, r5, r3 / 2, r / 7, r / 8, r / 9, r5 / 2, r / 11, r3 / 4, r / 13}
	term := r
	sum := 1 + term
	for i := range ratios {
		term *= ratios[i]
		sum += term
	}
	return sum * math.Float64frombits(uint64(1023+int64(k))<<52) // 2^k is a normal number
}

// round is [math.Round] of numbers below 2^52, and faster. The constant is the number before 0.5, because 0.5 plus the
// number before 0.5 is rounded to 1.
func round(x float64) float64 { return math.Trunc(x + math.Copysign(0.5-0x1p-54, x)) }
