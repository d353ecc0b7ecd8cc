package reference

// The functions of this file add the products of each sum in ascending order, so a sum does not depend on the number of
// sums that a loop computes concurrently.

// dots sets dst[k] to the inner product of row and the elements of rows from k·stride on. It computes four sums in the
// same loop, because each addition must wait for the previous addition of the same sum.
func dots[T real](dst, row, rows []T, stride int) {
	n, k := len(row), 0
	for ; k+4 <= len(dst); k += 4 {
		a, b := rows[k*stride:][:n], rows[(k+1)*stride:][:n]
		c, d := rows[(k+2)*stride:][:n], rows[(k+3)*stride:][:n]
		var sa, sb, sc, sd T
		for i, x := range row {
			sa += T(x * a[i])
			sb += T(x * b[i])
			sc += T(x * c[i])
			sd += T(x * d[i])
		}
		dst[k], dst[k+1], dst[k+2], dst[k+3] = sa, sb, sc, sd
	}
	for ; k < len(dst); k++ {
		dst[k] = dot(row, rows[k*stride:])
	}
}

// dot returns the inner product of a and the first elements of b.
func dot[T real](a, b []T) T {
	var sum T
	b = b[:len(a)]
	for i, x := range a {
		sum += T(x * b[i])
	}
	return sum
}

// addProduct adds factor·x to y; x may be longer than y.
func addProduct[T real](y []T, factor T, x []T) {
	x = x[:len(y)]
	for i := range y {
		y[i] += T(factor * x[i])
	}
}
