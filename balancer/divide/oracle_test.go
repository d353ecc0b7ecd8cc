package divide_test

import "math/big"

// oracle computes the result of Split by an exhaustive search, for a few ranks and samples.
//
// It first finds the exact real shares. Each rank is at its minimum (1), at its limit, or in proportion to speed;
// exactly one combination is consistent. It then finds the integer shares. Of all integer shares within the bounds that
// sum to total, these are the nearest to the real ones by sum of squares. Among equally near ones, lower ranks get
// more.
func oracle(total int, speed []float64, limit []int) []int {
	target := realShares(total, speed, limit)
	var best []int
	var bestDistance *big.Rat
	shares := make([]int, len(speed))
	var try func(rank, rest int)
	try = func(rank, rest int) {
		if rank == len(shares) {
			if rest != 0 {
				return
			}
			if d := distance(shares, target); bestDistance == nil || d.Cmp(bestDistance) < 0 {
				best, bestDistance = append([]int(nil), shares...), d
			}
			return
		}
		for share := min(limit[rank], rest); share >= min(1, limit[rank]); share-- { // large first: ties to lower ranks
			shares[rank] = share
			try(rank+1, rest-share)
		}
	}
	try(0, total)
	return best
}

func distance(shares []int, target []*big.Rat) *big.Rat {
	sum := new(big.Rat)
	for i, share := range shares {
		d := new(big.Rat).Sub(new(big.Rat).SetInt64(int64(share)), target[i])
		sum.Add(sum, d.Mul(d, d))
	}
	return sum
}

func realShares(total int, speed []float64, limit []int) []*big.Rat {
	const inProportion, atLeast, atLimit, ways = 0, 1, 2, 3
	ranks, combinations := len(speed), 1
	for range ranks {
		combinations *= ways
	}
	for combination := range combinations {
		way, c := make([]int, ranks), combination
		rest, weight := new(big.Rat).SetInt64(int64(total)), new(big.Rat)
		for i := range ranks {
			way[i], c = c%ways, c/ways
			switch way[i] {
			case inProportion:
				weight.Add(weight, new(big.Rat).SetFloat64(speed[i]))
			case atLeast:
				rest.Sub(rest, new(big.Rat).SetInt64(int64(min(1, limit[i]))))
			case atLimit:
				rest.Sub(rest, new(big.Rat).SetInt64(int64(limit[i])))
			}
		}
		if shares := consistent(way, rest, weight, speed, limit); shares != nil {
			return shares
		}
	}
	return nil
}

// consistent returns the shares of one combination, or nil if no rate (samples per unit of speed) puts every rank where
// the combination states it.
func consistent(way []int, rest, weight *big.Rat, speed []float64, limit []int) []*big.Rat {
	const inProportion, atLeast = 0, 1
	if (weight.Sign() == 0) != (rest.Sign() == 0) || rest.Sign() < 0 {
		return nil
	}
	rate, anyRate := new(big.Rat), weight.Sign() == 0
	if !anyRate {
		rate.Quo(rest, weight)
	}
	lowestRate, highestRate := new(big.Rat), (*big.Rat)(nil) // the range that the ranks at a bound allow
	shares := make([]*big.Rat, len(way))
	for i := range way {
		least, most := new(big.Rat).SetInt64(int64(min(1, limit[i]))), new(big.Rat).SetInt64(int64(limit[i]))
		s := new(big.Rat).SetFloat64(speed[i])
		switch way[i] {
		case inProportion:
			shares[i] = new(big.Rat).Mul(rate, s)
			if shares[i].Cmp(least) < 0 || shares[i].Cmp(most) > 0 {
				return nil
			}
		case atLeast:
			shares[i] = least
			if bound := new(big.Rat).Quo(least, s); limit[i] > 0 && (highestRate == nil || bound.Cmp(highestRate) < 0) {
				highestRate = bound
			}
		default:
			shares[i] = most
			if bound := new(big.Rat).Quo(most, s); limit[i] > 0 && bound.Cmp(lowestRate) > 0 {
				lowestRate = bound
			}
		}
	}
	if anyRate {
		rate = lowestRate
	}
	if rate.Cmp(lowestRate) < 0 || highestRate != nil && rate.Cmp(highestRate) > 0 {
		return nil
	}
	return shares
}
