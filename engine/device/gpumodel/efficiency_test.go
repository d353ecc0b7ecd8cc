package gpumodel

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/golden"
)

// measurement is a line of testdata/h100.tsv. It describes the launches of one kind in one step. Times are in us.
type measurement struct {
	work, kind                  string
	launches                    float64
	arithmetic, limit, measured float64 // measured includes the gaps between kernels
}

func readMeasurements(t *testing.T) (all []measurement) {
	t.Helper()
	f, err := os.Open("testdata/h100.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		if strings.HasPrefix(fields[0], "#") || fields[0] == "work" {
			continue
		}
		m := measurement{work: fields[0], kind: fields[1]}
		var numbers [5]float64
		for i := range numbers {
			if numbers[i], err = strconv.ParseFloat(fields[2+i], 64); err != nil {
				t.Fatalf("%q: %v", lines.Text(), err)
			}
		}
		m.launches, m.arithmetic, m.limit = numbers[0], numbers[2], numbers[3]
		m.measured = numbers[4] + 1e6*gapTime*numbers[1]
		all = append(all, m)
	}
	return all
}

// repeated reports whether m contains weight gradients in f32. Other measurements contain the 16-bit weight gradients
// of the same step.
func (m measurement) repeated() bool {
	return strings.HasPrefix(m.kind, "conv2d_diff_weights") && !strings.Contains(m.kind, narrow)
}

// bound returns the limit to which the efficiency of a kind is relative.
func (m measurement) bound(k Kind) float64 {
	if k.Traffic > 0 {
		return m.arithmetic
	}
	return m.limit
}

// sums contains sums over launches: their limits, and their measured times without fixed times.
type sums struct{ limit, time float64 }

func (s *sums) add(m measurement, fixed, limit float64) {
	s.limit += limit
	s.time += m.measured - 1e6*fixed*m.launches
}

func (s sums) efficiency() float64 { return s.limit / s.time }

// fit computes efficiencies from measurements: by kind, and for products (true) and other ops (false). It omits kinds
// whose limits add up to at most leastLimit, because fixed times hide their efficiency.
func fit(t *testing.T, all []measurement, leastLimit float64) (kinds map[string]float64, groups map[bool]float64) {
	t.Helper()
	byKind, byGroup := map[string]*sums{}, map[bool]*sums{true: {}, false: {}}
	for _, m := range all {
		k, ok := find(m.kind)
		if !ok {
			t.Fatalf("%s: no such kind", m.kind)
		}
		if byKind[m.kind] == nil {
			byKind[m.kind] = new(sums)
		}
		byKind[m.kind].add(m, k.Fixed, m.bound(k))
		if !m.repeated() {
			byGroup[k.Product].add(m, launchTime, m.bound(k))
		}
	}
	kinds, groups = map[string]float64{}, map[bool]float64{}
	for name, s := range byKind {
		if s.limit > leastLimit {
			kinds[name] = s.efficiency()
		}
	}
	for product, s := range byGroup {
		groups[product] = s.efficiency()
	}
	return kinds, groups
}

// Every kind must have been measured, and its efficiency must follow from the measurements.
func TestEfficienciesAreMeasured(t *testing.T) {
	kinds, groups := fit(t, readMeasurements(t), 0)
	near := func(name string, got, want float64) {
		if math.Abs(got/want-1) > 0.006 { // efficiencies have three digits
			t.Errorf("%s: got an efficiency of %.3g, measured %.4g", name, got, want)
		}
	}
	for _, k := range Kinds {
		if want, ok := kinds[k.Name]; !ok {
			t.Errorf("%s was not measured", k.Name)
		} else {
			near(k.Name, k.Efficiency, want)
		}
	}
	near("other products", otherProducts, groups[true])
	near("other ops", otherMoves, groups[false])
	for kind, like := range sameAs {
		if _, ok := find(like); !ok {
			t.Errorf("%s: like %s, which was not measured", kind, like)
		}
		if _, ok := find(kind); ok {
			t.Errorf("%s was measured, and needs no similar kind", kind)
		}
	}
}

// The golden file contains the error of each kind. It also contains the error of each step, if the efficiencies come
// from the other step.
func TestErrorsOfPredictions(t *testing.T) {
	all := readMeasurements(t)
	var out strings.Builder
	fmt.Fprintf(&out, "%-9s %-42s %8s %10s %10s %8s\n", "work", "kind", "launches", "measured", "predicted", "error")
	for _, work := range []string{"resnet50", "gpt2"} {
		var others []measurement
		for _, m := range all {
			if m.work != work {
				others = append(others, m)
			}
		}
		kinds, groups := fit(t, others, 100)
		var measured, predicted, blind, shared, sharedBlind float64
		for _, m := range all {
			if m.work != work || m.repeated() {
				continue
			}
			k, _ := find(m.kind)
			us := 1e6*k.Fixed*m.launches + m.bound(k)/k.Efficiency
			fmt.Fprintf(&out, "%-9s %-42s %8.0f %10.1f %10.1f %+7.1f%%\n", work, m.kind, m.launches, m.measured, us,
				100*(us/m.measured-1))
			measured, predicted = measured+m.measured, predicted+us
			if e, ok := kinds[m.kind]; ok {
				us = 1e6*k.Fixed*m.launches + m.bound(k)/e
				shared, sharedBlind = shared+m.measured, sharedBlind+us
			} else {
				us = 1e6*launchTime*m.launches + m.limit/groups[k.Product]
			}
			blind += us
		}
		line := func(name string, measured, predicted float64) {
			fmt.Fprintf(&out, "%-9s %-51s %10.1f %10.1f %+7.1f%%\n", work, name, measured, predicted,
				100*(predicted/measured-1))
		}
		line("all kernels", measured, predicted)
		line("all kernels, predicted from the other work", measured, blind)
		check := CrossChecks[map[string]int{"resnet50": 0, "gpt2": 1}[work]]
		if got := blind/measured - 1; math.Abs(got-check.Error) > 0.0005 {
			t.Errorf("%s from the other work: got an error of %.4f, CrossChecks has %+v", work, got, check)
		}
		line("of these, kinds that the other work contains", shared, sharedBlind)
		if math.Abs(predicted/measured-1) > 0.02 {
			t.Errorf("%s: predicted %.0f us, measured %.0f us, want at most 2 %% apart", work, predicted, measured)
		}
	}
	golden.Check(t, "testdata/errors.txt", out.String())
}
