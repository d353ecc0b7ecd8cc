package estimate

import "slices"

// largeType is the number of ranks above which the ranks of a type share one curve, and differ from their type only if
// the number of ranks does not explain their times. Smaller: ranks that differ are found later. Larger: noise makes one
// of the ranks of a type appear slow or fast, and intervals are too narrow.
const largeType = 16

// pooledRanks is the number of ranks whose measured shares the curve of a type uses. Smaller: the slope of the curve is
// less exact. Larger: a decision with many ranks takes longer.
const pooledRanks = 512

// deviceTypes are the groups of ranks of one device type. Ranks of one type run the same kernels, so their curves have
// the same shape at different levels.
type deviceTypes struct {
	groups  [][]int      // ranks of one type, at least two
	lenders [][]int      // by rank: ranks of the same type whose measurements it uses; nil: no two have one type
	curves  []*typeCurve // by group; nil: it has few ranks, or no curve
	of      []int        // by rank: its group; -1: no other rank has its type
	peers   []*peers     // by group; nil: it has few ranks
	spreads [][]Spread   // by group: quantiles of the spread of its levels ([deviceTypes.spreadsOf]); nil: few ranks
	classes []Class
	classOf map[[2]int]int // by group and share in use: 1 + the place in classes
}

// typesOf groups the ranks by their types; nil: unknown.
func typesOf(types []string) deviceTypes {
	var groups [][]int
	first := map[string]int{}
	for r, kind := range types {
		at, known := first[kind]
		if !known {
			at = len(groups)
			first[kind], groups = at, append(groups, nil)
		}
		groups[at] = append(groups[at], r)
	}
	groups = slices.DeleteFunc(groups, func(g []int) bool { return len(g) < 2 })
	if len(groups) == 0 {
		return deviceTypes{}
	}
	of := slices.Repeat([]int{-1}, len(types))
	for i, group := range groups {
		for _, r := range group {
			of[r] = i
		}
	}
	return deviceTypes{groups: groups, lenders: make([][]int, len(types)), of: of,
		curves: make([]*typeCurve, len(groups)), spreads: make([][]Spread, len(groups))}
}

// curveOf returns the curve of the type of a rank; nil: the type has few ranks, or no curve.
func (t *deviceTypes) curveOf(rank int) *typeCurve {
	if t.of == nil || t.of[rank] < 0 {
		return nil
	}
	return t.curves[t.of[rank]]
}
