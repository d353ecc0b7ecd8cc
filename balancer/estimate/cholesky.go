package estimate

import "math"

// cholesky overwrites the lower triangle of an n x n matrix with its Cholesky factor. It returns false if the
// factorization fails numerically.
func cholesky(l []float64, n int) bool {
	for i := range n {
		row := l[i*n : i*n+i+1]
		for j := range row {
			sum := row[j] - dot(row[:j], l[j*n:])
			if i != j {
				row[j] = sum / l[j*n+j]
				continue
			}
			if !(sum > 0) {
				return false
			}
			row[i] = math.Sqrt(sum)
		}
	}
	return true
}

// forward solves L y = b and overwrites b with y.
func forward(l, b []float64) []float64 {
	n := len(b)
	for i := range b {
		b[i] = (b[i] - dot(b[:i], l[i*n:])) / l[i*n+i]
	}
	return b
}

// backward solves Lᵀ x = y and overwrites y with x.
func backward(l, y []float64) []float64 {
	n := len(y)
	x := make([]float64, n)
	for i := n - 1; i >= 0; i-- {
		sum := y[i]
		for k := i + 1; k < n; k++ {
			sum -= l[k*n+i] * x[k]
		}
		x[i] = sum / l[i*n+i]
	}
	return x
}

// dot returns the dot product of a and the beginning of b.
func dot(a, b []float64) (sum float64) {
	b = b[:len(a)]
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}
