package estimate

// mostShares is the number of measured shares that a rank remembers. Larger values change the shares little.
const mostShares = 24

// cell is a measured share.
type cell struct {
	samples float64
	log     float64 // of seconds
	was     float64 // log without what the open surprise, and windows after it, say about the level of the rank
	age     int     // windows since it was measured
	steps   int     // in which it was measured
}

// roomier returns a copy of the first n rows of a covariance, with room for more rows and columns. All rows are in one
// piece of memory, because each piece costs time when a decision adds a share to many ranks.
func roomier(cov [][]float64, n int) [][]float64 {
	room := n + max(n/2, 3)
	if n <= mostShares {
		room = min(room, mostShares+1) // with one more share, forget drops one
	}
	flat, out := make([]float64, room*room), make([][]float64, room)
	for i := range out {
		out[i] = flat[i*room : i*room : (i+1)*room]
	}
	for i, row := range cov[:n] {
		out[i] = append(out[i], row...)
	}
	return out[:n]
}

// copyRows returns a copy of a covariance. It uses the memory of out if out has as many rows.
func copyRows(out, cov [][]float64) [][]float64 {
	n := len(cov)
	if len(out) != n {
		flat := make([]float64, n*n)
		out = make([][]float64, n)
		for i := range out {
			out[i] = flat[i*n : (i+1)*n : (i+1)*n]
		}
	}
	for i, row := range cov {
		copy(out[i], row)
	}
	return out
}
