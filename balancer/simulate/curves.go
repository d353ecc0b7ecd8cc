package simulate

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/balancer"
)

// header is the first line of a file of curves.
const header = "rank,batch,seconds"

// ReadCurves reads curves as lines of rank,batch,seconds, in any order, with or without that header; blank lines and those that begin with # are
// left out. Ranks count from 0 without a gap. Every fault is named with its line. Times that fall where the batch grows are no fault, as caches and
// tiles make them so, but warnings name them.
func ReadCurves(r io.Reader) (curves []balancer.Curve, warnings []string, err error) {
	byRank := map[int]balancer.Curve{}
	lines := bufio.NewScanner(r)
	var faults []error
	for n, first := 1, true; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		if first && strings.ReplaceAll(strings.ToLower(text), " ", "") == header {
			first = false
			continue
		}
		first = false
		rank, p, err := parsePoint(text)
		if err != nil {
			faults = append(faults, fmt.Errorf("line %d: %w", n, err))
			if len(faults) == 10 {
				break
			}
			continue
		}
		byRank[rank] = append(byRank[rank], p)
	}
	if err := lines.Err(); err != nil {
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return nil, nil, errors.Join(faults...)
	}
	if len(byRank) == 0 {
		return nil, nil, fmt.Errorf("no points: want lines of %s", header)
	}
	for rank := range len(byRank) {
		c, ok := byRank[rank]
		if !ok {
			return nil, nil, fmt.Errorf("no points of rank %d: got %d ranks, want them to count from 0 without a gap", rank, len(byRank))
		}
		slices.SortStableFunc(c, func(a, b balancer.Point) int { return cmp.Compare(a.Samples, b.Samples) })
		if err := c.Check(); err != nil {
			return nil, nil, fmt.Errorf("rank %d: %w", rank, err)
		}
		for i := 1; i < len(c); i++ {
			if c[i].Seconds < c[i-1].Seconds {
				warnings = append(warnings, fmt.Sprintf("rank %d: the time falls from %v s at batch %v to %v s at batch %v", rank, c[i-1].Seconds, c[i-1].Samples, c[i].Seconds, c[i].Samples))
			}
		}
		curves = append(curves, c)
	}
	return curves, warnings, nil
}

func parsePoint(text string) (rank int, p balancer.Point, err error) {
	fields := strings.Split(text, ",")
	if len(fields) != 3 {
		return 0, p, fmt.Errorf("got %q, want %s", text, header)
	}
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	const mostRanks = 1 << 20
	if rank, err = strconv.Atoi(fields[0]); err != nil || rank < 0 || rank >= mostRanks {
		return 0, p, fmt.Errorf("rank: got %q, want an integer from 0", fields[0])
	}
	if p.Samples, err = strconv.ParseFloat(fields[1], 64); err != nil || !(p.Samples > 0) || math.IsInf(p.Samples, 0) {
		return 0, p, fmt.Errorf("batch: got %q, want a number above 0", fields[1])
	}
	if p.Seconds, err = strconv.ParseFloat(fields[2], 64); err != nil || !(p.Seconds > 0) || math.IsInf(p.Seconds, 0) {
		return 0, p, fmt.Errorf("seconds: got %q, want a number above 0", fields[2])
	}
	return rank, p, nil
}

// WriteCurves writes what ReadCurves reads. A rank without a curve is an error, since ranks have no gaps.
func WriteCurves(w io.Writer, curves []balancer.Curve) error {
	var b strings.Builder
	b.WriteString(header + "\n")
	for rank, c := range curves {
		if len(c) == 0 {
			return fmt.Errorf("rank %d has no curve", rank)
		}
		for _, p := range c {
			fmt.Fprintf(&b, "%d,%v,%v\n", rank, p.Samples, p.Seconds)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
