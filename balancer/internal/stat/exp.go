package stat

import "math"

// Exp returns e to the x. The result is bit-equal on all processors of one architecture. math.Exp does not guarantee
// this, because it uses fused multiply-add if the processor has it. Ranks that fit the same data must get the same
// curves. The relative error is below 1e-15.
func Exp(x float64) float64 {
	const most = 700 // far beyond any time, and below overflow
	x = min(max(x, -most), most)
	k := math.Round(x / math.Ln2)
	// ln 2 in two parts. The first part has few bits, so that its product with k is exact.
	const high, low = 6.93147180369123816490e-01, 1.90821492927058770002e-10
	r := (x - k*high) - k*low  // |r| <= ln 2 / 2
	const negligible = 0x1p-55 // the sum is at least 0.7, so this term and the later ones do not change it
	sum, term := 1.0, 1.0
	for i := 1; i <= 17; i++ { // 0.35^18 / 18! is below 1e-24
		term *= r / float64(i)
		sum += term
		if math.Abs(term) < negligible {
			break
		}
	}
	return sum * math.Float64frombits(uint64(1023+int64(k))<<52) // 2^k is a normal number
}
