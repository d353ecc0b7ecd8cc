package profile

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/profiler/measure"
	"github.com/hetero-train/hetero-train/profiler/profiles"
)

func TestBudgetsOfAProfileFitItsLimit(t *testing.T) {
	for _, c := range []struct {
		name   string
		budget profileBudget
		limit  time.Duration
	}{{"full", fullBudget, time.Minute}, {"quick", quickBudget, 10 * time.Second}} {
		b := c.budget
		if b.model > 0 && modelTime+curveTime > b.model*3/4 {
			t.Errorf("%s: the steps of a model take %v, want at most three quarters of %v", c.name, modelTime+curveTime,
				b.model)
		}
		sum := b.score + 2*b.products + b.memory + b.copies + b.triad + b.disk + b.links + b.allReduce
		if b.limit >= c.limit || sum > b.limit*9/10 {
			t.Errorf("%s: the parts take %v, the limit is %v, want less than %v", c.name, sum, b.limit, c.limit)
		}
	}
}

func TestReportsOfSeveralMachinesBecomeOneProfile(t *testing.T) {
	report := func(host string, first bool, tflops, fraction float64) rankReport {
		r := rankReport{HostID: host, MemoryFraction: fraction,
			Rank: profiles.Rank{Host: host, Fingerprint: host, MemoryBytes: 1,
				Measured: profiles.Measured{TFLOPS: measure.Figure(tflops), Memory: measure.Bandwidth{Copy: 50}}}}
		if first {
			r.Host = &profiles.Host{Name: host}
		}
		return r
	}
	reports := []rankReport{report("a", true, 1, 0.2), report("b", true, 8, 0.6), report("a", false, 1, 0),
		report("b", false, 8, 0.4)}
	for rank := range reports {
		reports[rank].Rank.Rank = rank
	}
	reports[0].Links = []measure.Link{{A: 0, B: 1}}
	p := &profiling{flags: new(profileFlags), model: "resnet50"}
	ranks, machines, err := p.merge(reports)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%.2f %s", ranks.Score.MemoryFraction, ranks.Score.Model); got != "0.40 resnet50" {
		t.Errorf("got %s, want the mean of the shares that are known", got)
	}
	if len(machines.Hosts) != 2 || !slices.Equal(machines.Hosts[0].Ranks, []int{0, 2}) ||
		!slices.Equal(machines.Hosts[1].Ranks, []int{1, 3}) || len(machines.Links) != 1 {
		t.Errorf("got %+v", machines)
	}
	if ranks.Ranks[0].RelativeScore != 1 || !(ranks.Ranks[3].RelativeScore > 3) ||
		machines.Fingerprint != ranks.Fingerprint || ranks.Fingerprint == "" {
		t.Errorf("got %+v", ranks)
	}
	var shown bytes.Buffer
	if err := showProfile(&shown, ranks, machines); err != nil ||
		!strings.Contains(shown.String(), "Registered 4 nodes") || !strings.Contains(shown.String(), "of resnet50") {
		t.Errorf("got %s, %v", &shown, err)
	}
	reports[1].Rank.Measured.TFLOPS = 0
	if _, _, err := p.merge(reports); err == nil || !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("a rank without figures: got %v", err)
	}
}

// Slow rounds and single slow visits must not change the times of shares relative to each other.
func TestStepTimesAreThoseOfQuietVisits(t *testing.T) {
	times := stepTimes([]int{16, 8, 32}, []int{4, 5, 6},
		[][]float64{{0.02, 0.01, 0.04}, {0.04, 0.02, 0.08}, {0.02, 0.01, 0.4}, {0.02, 0.01, 0.04}})
	want := []profiles.StepTime{{Samples: 8, Seconds: 0.01, Steps: 5}, {Samples: 16, Seconds: 0.02, Steps: 4},
		{Samples: 32, Seconds: 0.04, Steps: 6}}
	for i, p := range times.Points {
		if p.Samples != want[i].Samples || p.Steps != want[i].Steps ||
			math.Abs(float64(p.Seconds/want[i].Seconds)-1) > 1e-9 {
			t.Errorf("got %+v, want %+v", p, want[i])
		}
	}
	if !(times.Error > 0.1) {
		t.Errorf("got an error of %v, want one that shows the slow visit", times.Error)
	}
	if quiet := stepTimes([]int{8, 16}, []int{1, 1}, [][]float64{{0.01, 0.02}, {0.02, 0.04}}); !(quiet.Error < 1e-9) {
		t.Errorf("got an error of %v of rounds that differ in nothing but their level, want 0", quiet.Error)
	}
}

func TestAProfileMeasuresTheSharesForWhichItHasTime(t *testing.T) {
	shares := []int{64, 128, 32}
	for _, c := range []struct {
		perSample float64 // in s
		want      []int
	}{{1e-3, shares}, {0.009, []int{64, 128}}, {0.011, []int{64, 32}}, {0.05, []int{32}}, {1, nil}} {
		if got := affordable(shares, c.perSample); !slices.Equal(got, c.want) {
			t.Errorf("%v s for a sample: got the shares %v of %v, want %v", c.perSample, got, shares, c.want)
		}
	}
}
