package jpeg

// Block smoothing of libjpeg-turbo (jdcoefct.c). The scans of a progressive image may leave out a part of the first
// coefficients. These are then estimated from the first coefficient (the mean) of the block and of its 24 neighbours.

// kernel contains the weights of the means of 5 x 5 blocks, in units of 1/256.
type kernel [5][5]int32

func (k kernel) transposed() (t kernel) {
	for y := range k {
		for x := range k {
			t[y][x] = k[x][y]
		}
	}
	return t
}

// Kernels of the coefficients 0 to 9, in the order of the file. ofMeans is for a channel with means only. ofSome is for
// a channel that also has other coefficients; coefficients 0 and 6 to 9 are then not estimated.
var (
	ofMeans = func() [10]kernel {
		k01 := kernel{{-1, -1, 0, 1, 1}, {-3, 13, 0, -13, 3}, {-3, 38, 0, -38, 3}, {-3, 13, 0, -13, 3},
			{-1, -1, 0, 1, 1}}
		k02 := kernel{{}, {0, 2, -5, 2}, {1, 7, -14, 7, 1}, {0, 2, -5, 2}}
		k11 := kernel{{-1, 0, 0, 0, 1}, {0, 9, 0, -9}, {}, {0, -9, 0, 9}, {1, 0, 0, 0, -1}}
		k03 := kernel{{}, {0, 1, 0, -1}, {0, 2, 0, -2}, {0, 1, 0, -1}}
		k12 := kernel{{}, {0, 1, -3, 1}, {}, {0, -1, 3, -1}}
		k00 := kernel{{-2, -6, -8, -6, -2}, {-6, 6, 42, 6, -6}, {-8, 42, 152, 42, -8}, {-6, 6, 42, 6, -6},
			{-2, -6, -8, -6, -2}}
		return [10]kernel{k00, k01, k01.transposed(), k02.transposed(), k11, k02, k03, k12, k12.transposed(),
			k03.transposed()}
	}()
	ofSome = func() [10]kernel {
		k01 := kernel{2: {-7, 50, 0, -50, 7}}
		k02 := kernel{2: {-1, 13, -24, 13, -1}}
		k11 := kernel{{0, -1, 0, 1}, {-1, 10, 0, -10, 1}, {}, {1, -10, 0, 10, -1}, {0, 1, 0, -1}}
		return [10]kernel{1: k01, 2: k01.transposed(), 3: k02.transposed(), 4: k11, 5: k02}
	}()
)

// smooth reports whether the blocks of an image are smoothed.
func (p *picture) smooth() bool {
	if !p.progressive {
		return false
	}
	found := false
	for _, c := range p.channels {
		if c.accuracy[0] < 0 {
			return false
		}
		for k := range 10 {
			if c.quant[natural[k]] == 0 {
				return false
			}
			found = found || k > 0 && c.accuracy[k] != 0
		}
	}
	return found
}

// estimate adds estimates to b, the block in row y and column x of a channel.
func (c *channel) estimate(b *block, y, x int) {
	kernels, count := &ofMeans, 10
	for k := 1; k < 10; k++ {
		if c.accuracy[k] >= 0 {
			kernels, count = &ofSome, 6
		}
	}
	means := c.meansAround(y, x)
	first := int64(c.quant[0])
	for k := 1; k < count; k++ {
		if at := natural[k]; c.accuracy[k] != 0 && b[at] == 0 {
			most := int64(1) << 62
			if low := c.accuracy[k]; low > 0 {
				most = 1<<low - 1
			}
			b[at] = estimated(&kernels[k], &means, first, int64(c.quant[at]), most)
		}
	}
	if count == 10 {
		b[0] = estimated(&kernels[0], &means, first, first, 1<<62)
	}
}

// estimated returns the estimate of a coefficient whose quantization factor is quant. The parameter most limits its
// absolute value.
func estimated(k *kernel, means *kernel, first, quant, most int64) int16 {
	sum := int64(0)
	for y := range k {
		for x, w := range k[y] {
			sum += int64(w * means[y][x])
		}
	}
	if sum *= first; sum < 0 {
		return int16(-min((quant<<7-sum)/(quant<<8), most))
	}
	return int16(min((quant<<7+sum)/(quant<<8), most))
}

// meansAround returns the means of 5 x 5 blocks. At the borders, the nearest blocks repeat. In the last row of units,
// libjpeg-turbo computes row numbers as if all units had as few rows of blocks as the last unit. meansAround does the
// same. It therefore uses other rows than expected for some blocks near the lower border.
func (c *channel) meansAround(y, x int) (means kernel) {
	units, perUnit := quotient(c.blocksHigh, c.fileV), c.fileV
	if y/c.fileV == units-1 {
		perUnit = c.blocksHigh - (units-1)*c.fileV
	}
	row, rows := y/c.fileV*perUnit+y%c.fileV, perUnit*units
	ys := [5]int{y, y, y, y, y}
	if row > 0 {
		ys[0], ys[1] = y-1, y-1
	}
	if row > 1 {
		ys[0] = y - 2
	}
	if row < rows-1 {
		ys[3], ys[4] = y+1, y+1
	}
	if row < rows-2 {
		ys[4] = y + 2
	}
	for i, yy := range ys {
		for j := range means[i] {
			xx := min(max(0, x+j-2), c.blocksWide-1)
			if at := 64 * (yy*c.stride + xx); at < len(c.coefficients) {
				means[i][j] = int32(c.coefficients[at])
			}
		}
	}
	return means
}
