package schedule

import (
	"reflect"
	"testing"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// Jobs that share a GPU at the same time must never have the same lane.
func TestLanesOfJobsThatShare(t *testing.T) {
	got := lanesOf([]scheduler.Segment{
		{GPUs: []int{0}, From: 0, To: 10}, {GPUs: []int{0, 1}, From: 5, To: 20}, {GPUs: []int{0}, From: 12, To: 25},
		{GPUs: []int{0}, From: 25, To: 30},
	}, 2)
	want := [][]lane{{{0, 2}}, {{1, 2}, {0, 1}}, {{0, 2}}, {{0, 1}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
