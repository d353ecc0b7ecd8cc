package scheduler

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A job that does not fit on any available GPU must not take the place of another job in the assignment.
func TestAlloxStartsJobsThatFitWhileATypeIsDown(t *testing.T) {
	var jobs []Job
	for range alloxDepth + 8 {
		jobs = append(jobs, Job{Work: 1, GPUs: 1, Kind: 1})
	}
	s := still(append(jobs, Job{Work: 500, GPUs: 1})...).down(0, 1)
	s.Cluster.Types[1].Memory, s.Workload.Kinds[1].GPUMemory = 4, 6 // kind 1 fits on fast GPUs only, which are down
	if a, want := reset(t, "allox", Options{}, s).Decide(s), len(jobs); a.Verb != Start || a.Job != want {
		t.Errorf("got %+v, want that job %d starts on a slow GPU", a, want)
	}
}

// No permutation may have a smaller sum than the assignment.
func TestAssignmentIsOptimal(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var a assignment
	for range 500 {
		rows := 1 + random.IntN(5)
		columns := rows + random.IntN(3)
		costs := make([]float64, rows*columns)
		for i := range costs {
			costs[i] = float64(random.IntN(20))
			if random.IntN(6) == 0 {
				costs[i] = math.Inf(1)
			}
		}
		var most int // rows that have a column
		least := math.Inf(1)
		used := make([]bool, columns)
		var try func(row, assigned int, sum float64)
		try = func(row, assigned int, sum float64) {
			if row == rows {
				if assigned > most || assigned == most && sum < least {
					most, least = assigned, sum
				}
				return
			}
			for c := range columns {
				if v := costs[row*columns+c]; !used[c] && !math.IsInf(v, 1) {
					used[c] = true
					try(row+1, assigned+1, sum+v)
					used[c] = false
				}
			}
			try(row+1, assigned, sum)
		}
		try(0, 0, 0)
		got, assigned, taken := 0.0, 0, map[int]bool{}
		for c, from1 := range a.solve(rows, columns, func(r, c int) float64 { return costs[r*columns+c] }) {
			row := from1 - 1
			if row < 0 {
				continue
			}
			if taken[row] {
				t.Fatalf("row %d is assigned twice", row)
			}
			taken[row] = true
			assigned++
			got += costs[row*columns+c]
		}
		if assigned != most || most == rows && got != least {
			t.Fatalf("%d x %d: got %d rows and a sum of %v, want %d and %v: %v", rows, columns, assigned, got, most,
				least, costs)
		}
	}
}
