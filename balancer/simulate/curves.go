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

	"github.com/hetero-train/hetero-train/balancer/divide"
)

// leastSeconds is the shortest time of a curve, s: the model of policy hybrid has no shorter times.
const leastSeconds = 1 / divide.MostSeconds

// header is the first line of a file of curves.
const header = "rank,batch,seconds"

// ReadCurves reads curves as lines of rank,batch,seconds, in any order, with or without a header. It ignores blank
// lines and lines that begin with #. The ranks must be 0, 1, 2 and so on, without a gap. The error lists the first ten
// faults with their lines. A shorter time at a larger batch is not a fault, because caches and tiles can cause it. One
// warning contains the number of such places, and the steepest one.
func ReadCurves(r io.Reader) (curves []divide.Curve, warnings []string, err error) {
	byRank, err := readPoints(r)
	if err != nil {
		return nil, nil, err
	}
	falls, steepest, example := 0, 1.0, ""
	for rank := range len(byRank) {
		c, ok := byRank[rank]
		if !ok {
			return nil, nil,
				fmt.Errorf(
					"rank %d has no points: the file has %d of the ranks, want ranks numbered from 0 without gaps",
					rank, len(byRank))
		}
		slices.SortFunc(c, func(a, b divide.Point) int { return cmp.Compare(a.Samples, b.Samples) })
		for i := 1; i < len(c); i++ {
			if ratio := c[i].Seconds / c[i-1].Seconds; ratio < 1 {
				if falls++; ratio < steepest {
					steepest, example = ratio, fmt.Sprintf("rank %d from %v s at batch %v to %v s at batch %v", rank,
						c[i-1].Seconds, c[i-1].Samples, c[i].Seconds, c[i].Samples)
				}
			}
		}
		curves = append(curves, c)
	}
	switch {
	case falls == 1:
		warnings = append(warnings, "the time falls at a larger batch: "+example)
	case falls > 1:
		warnings = append(warnings, fmt.Sprintf("the time falls at a larger batch in %d places; the steepest: %s",
			falls, example))
	}
	return curves, warnings, nil
}

// readPoints reads the points of each rank. The error lists the first ten faults. Two points of a rank with the same
// batch are a fault.
func readPoints(r io.Reader) (map[int]divide.Curve, error) {
	type place struct {
		rank    int
		samples float64
	}
	byRank, seen := map[int]divide.Curve{}, map[place]int{}
	var faults []error
	lines := bufio.NewScanner(r)
	n, first := 1, true
	for ; len(faults) < 10 && lines.Scan(); n++ {
		// some spreadsheets write a byte order mark
		text := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\ufeff"))
		if text == "" || text[0] == '#' {
			continue
		}
		if named := isHeader(text); first && named {
			first = false
			if got := strings.ReplaceAll(strings.ToLower(text), " ", ""); got != header {
				return nil, fmt.Errorf("line %d: header: got %s, want %s", n, quoted(text), header)
			}
			continue
		}
		first = false
		rank, p, err := parsePoint(text)
		at := place{rank, p.Samples}
		switch {
		case err != nil:
			faults = append(faults, fmt.Errorf("line %d: %w", n, err))
		case seen[at] > 0:
			faults = append(faults,
				fmt.Errorf("line %d: rank %d: got batch %v a second time (first in line %d), want each batch once", n,
					rank, p.Samples, seen[at]))
		default:
			seen[at] = n
			byRank[rank] = append(byRank[rank], p)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		faults = append(faults, fmt.Errorf("line %d: got more than %d bytes, want %s", n, bufio.MaxScanTokenSize,
			header))
	} else if err != nil {
		faults = append(faults, fmt.Errorf("line %d: %w", n, err))
	}
	if len(faults) == 0 && len(byRank) == 0 {
		return nil, fmt.Errorf("no points: want lines of %s", header)
	}
	return byRank, errors.Join(faults...)
}

// quoted quotes a text for an error, and shortens it.
func quoted(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		return fmt.Sprintf("%q… (%d bytes)", string(runes[:most]), len(text))
	}
	return strconv.Quote(text)
}

// isHeader reports whether the first line names columns: it has several fields, none of which is a number.
func isHeader(line string) bool {
	return strings.Contains(line, ",") && !slices.ContainsFunc(strings.Split(line, ","), func(field string) bool {
		_, err := strconv.ParseFloat(strings.TrimSpace(field), 64)
		return err == nil
	})
}

func parsePoint(text string) (rank int, p divide.Point, err error) {
	fields := strings.Split(text, ",")
	if len(fields) != 3 {
		return 0, p, fmt.Errorf("got %s, want %s", quoted(text), header)
	}
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	const mostRanks = 1 << 20
	if rank, err = strconv.Atoi(fields[0]); err != nil || rank < 0 || rank >= mostRanks {
		return 0, p, fmt.Errorf("rank: got %s, want an integer from 0 to %d", quoted(fields[0]), mostRanks-1)
	}
	if p.Samples, err = strconv.ParseFloat(fields[1], 64); err != nil || !(p.Samples > 0) || math.IsInf(p.Samples, 0) {
		return 0, p, fmt.Errorf("batch: got %s, want a finite number above 0", quoted(fields[1]))
	}
	if p.Seconds, err = strconv.ParseFloat(fields[2], 64); err != nil || !(p.Seconds >= leastSeconds) ||
		p.Seconds > divide.MostSeconds {
		return 0, p, fmt.Errorf("seconds: got %s, want a number from %v to %v", quoted(fields[2]), leastSeconds,
			divide.MostSeconds)
	}
	return rank, p, nil
}

// WriteCurves writes curves in the format of ReadCurves. A rank without a curve is an error, because ranks are numbered
// without gaps. A time of 0 is also an error.
func WriteCurves(w io.Writer, curves []divide.Curve) error {
	if err := checkCurves(curves); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(header + "\n")
	for rank, c := range curves {
		for _, p := range c {
			fmt.Fprintf(&b, "%d,%v,%v\n", rank, p.Samples, p.Seconds)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// checkCurves reports curves that no device can have, such as a curve with a time of 0.
func checkCurves(curves []divide.Curve) error {
	if len(curves) == 0 {
		return errors.New("no curves")
	}
	for rank, c := range curves {
		if err := c.Check(); err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
		for i, p := range c {
			if p.Seconds < leastSeconds || p.Seconds > divide.MostSeconds {
				return fmt.Errorf("rank %d: point %d: got %v s, want %v to %v s", rank, i, p.Seconds, leastSeconds,
					divide.MostSeconds)
			}
		}
	}
	return nil
}
