package divide

import "fmt"

// Solve finds the shares with the shortest time of the slowest rank:
//
//	min over integer shares b, sum b = Total, 1 <= b[r] <= Limits[r], of max over r of curves[r](b[r])
//
// A step also contains exposed communication. If the slowest rank takes longer, exposed communication becomes shorter
// by at most the same time. The shares with the shortest time of the slowest rank therefore also give the shortest
// step.
//
// Solve is exact. For curves that rise, or first fall and then rise, it takes about 64 * ranks * log(points)
// operations. Curves that fall again take longer, because Solve then sorts the times of all shares. On rising curves,
// several divisions may be equally fast. Solve then chooses the one with the shortest times of all other ranks, then
// the one in proportion, and then gives more to lower ranks.
func Solve(b Batch, curves []Curve) ([]int, error) { return SolveScaled(b, Plain(curves)) }

// SolveScaled is [Solve] for scaled curves.
func SolveScaled(b Batch, curves []Scaled) ([]int, error) {
	u, err := b.units(len(curves))
	if err != nil {
		return nil, fmt.Errorf("divide %d samples among %d ranks: %w", b.Total, len(curves), err)
	}
	rise, once := true, true
	for r := range curves {
		c := &curves[r]
		rises, valid := c.isValid()
		if !valid {
			return nil, fmt.Errorf("rank %d: %w", r, c.Whole().Check())
		}
		if !rises {
			rise, once = false, once && c.turnsOnce()
		}
	}
	if rise {
		return u.shares(u.fill(curves)), nil
	}
	if !once {
		if n := u.jagged(curves); n != nil {
			return u.shares(n), nil
		}
	}
	above := make([]Curve, len(curves))
	for r := range curves {
		above[r] = curves[r].Whole().smoothed()
	}
	v := u.valleys(above)
	n := v.solve()
	if !once {
		n = u.jaggedWithin(curves, n)
	}
	return u.shares(n), nil
}
