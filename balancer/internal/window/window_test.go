package window

import (
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
)

func TestDecisionsRestOnWholeWindows(t *testing.T) {
	before, after := []int{8, 8}, []int{10, 6}
	settling := true
	type play struct {
		steps    int
		shares   []int
		settling bool
	}
	tests := []struct {
		name  string
		plays []play
		want  []int // steps after which a decision is due
		used  []int // steps that each decision uses
	}{
		{"no change", []play{{12, before, false}}, []int{4, 8, 12}, []int{4, 4, 4}},
		{"a change at once", []play{{4, before, false}, {8, after, false}}, []int{4, 8, 12}, []int{4, 3, 4}},
		{"a change that comes late", []play{{7, before, false}, {9, after, false}}, []int{4, 11, 15}, []int{4, 3, 4}},
		{"plans are made for it meanwhile", []play{{4, before, false}, {6, before, settling}, {8, after, false}},
			[]int{4, 14, 18}, []int{4, 3, 4}},
		{"plans are made for nothing", []play{{4, before, false}, {2, before, settling}, {3, before, false}},
			[]int{4, 8}, []int{4, 1}},
		{"a start that settles", []play{{2, before, settling}, {6, before, false}}, []int{4, 8}, []int{1, 4}},
		{"changes all the time", []play{{1, before, false}, {1, after, false}, {1, before, false}, {1, after, false},
			{1, before, false}}, nil, nil},
	}
	for _, test := range tests {
		w := New(2, 4)
		var due, used []int
		step := 0
		for _, p := range test.plays {
			for range p.steps {
				step++
				if w.Add(&balancer.Step{Shares: p.shares, Own: []float64{1, 2}, Settling: p.settling}) {
					due, used = append(due, step), append(used, len(w.Own[1]))
					w.Next()
				}
			}
		}
		if !slices.Equal(due, test.want) || !slices.Equal(used, test.used) {
			t.Errorf("%s: decisions after steps %v on %v steps, want %v on %v", test.name, due, used, test.want,
				test.used)
		}
	}
}
