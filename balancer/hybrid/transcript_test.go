package hybrid_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/policies"
	"github.com/hetero-train/hetero-train/balancer/straggler"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata")

// TestTranscripts plays the scenario above the line ---- of each file in testdata, and compares the decisions with the
// text below the line. The head of blind_start.txt explains the format.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 25 {
		t.Fatalf("got %d transcripts (%v), want at least 25", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			head, want, _ := strings.Cut(string(text), "----\n")
			s, err := parseScene(head)
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.play()
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(file, []byte(head+"----\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != want {
				t.Errorf("%s differs; read the difference that -update writes:\n%s", file, got)
			}
		})
	}
}

// scene is a scenario: the true ranks, what changes, and what the policy knows.
type scene struct {
	options balancer.Options
	curves  []divide.Curve
	noise   float64 // standard deviation of the log of a time
	seed    uint64
	steps   int
	shown   int // decisions; further ones are counted
	profile bool
	slower  []slower
}

// slower makes ranks slower by a factor, from a step until another.
type slower struct {
	rank, from, until int // rank -1: all ranks
	factor            float64
	every             int // of these steps, only the first third is slower; 0: all
}

func (w *slower) at(rank, step int) float64 {
	if w.rank >= 0 && rank != w.rank || step < w.from || step >= w.until || w.every > 0 &&
		step%w.every >= (w.every+2)/3 {
		return 1
	}
	return w.factor
}

// parseScene reads a scenario: one statement a line.
func parseScene(text string) (*scene, error) {
	s := &scene{noise: 0.02, seed: 1, steps: 120, shown: math.MaxInt, options: balancer.Options{Interval: 10}}
	o := &s.options
	var ranks []string
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		name, rest, _ := strings.Cut(line, ":")
		rest = strings.TrimSpace(rest)
		var err error
		switch name {
		case "batch":
			_, err = fmt.Sscanf(rest, "%d samples", &o.Total)
		case "unit":
			_, err = fmt.Sscanf(rest, "%d samples", &o.Unit)
		case "interval":
			_, err = fmt.Sscanf(rest, "%d steps", &o.Interval)
		case "steps":
			_, err = fmt.Sscanf(rest, "%d", &s.steps)
		case "noise":
			_, err = fmt.Sscanf(rest, "%g %%", &s.noise)
			s.noise /= 100
		case "show":
			_, err = fmt.Sscanf(rest, "%d decisions", &s.shown)
		case "seed":
			_, err = fmt.Sscanf(rest, "%d", &s.seed)
		case "scores":
			o.Scores, err = numbers(rest)
		case "memory":
			var limits []float64
			limits, err = numbers(strings.TrimSuffix(rest, " samples"))
			for _, n := range limits {
				o.Limits = append(o.Limits, int(n))
			}
		case "watts":
			o.Watts, err = numbers(rest)
		case "idle watts":
			o.IdleWatts, err = numbers(rest)
		case "prices":
			o.Watts, err = numbers(rest)
		case "minimize":
			var what string
			_, err = fmt.Sscanf(rest, "%s slowdown %g %%", &what, &o.Slowdown)
			o.Objective, o.Slowdown = map[string]balancer.Objective{
				"energy": balancer.Energy, "cost": balancer.Cost}[what], o.Slowdown/100
		case "exclude ranks that are not worth their samples":
			o.Bench = true
		case "profile of an earlier run":
			s.profile = true
		case "slower":
			w := slower{until: math.MaxInt}
			if strings.HasPrefix(rest, "all") {
				rest = "rank -1" + strings.TrimPrefix(rest, "all")
			}
			_, err = fmt.Sscanf(rest, "rank %d by %g from step %d to %d in bursts of %d", &w.rank, &w.factor, &w.from,
				&w.until, &w.every)
			if w.factor > 0 { // the end of the line may be missing
				err = nil
			}
			s.slower = append(s.slower, w)
		case "rank", "ranks":
			ranks = append(ranks, rest)
		default:
			if !strings.HasPrefix(line, "#") {
				err = fmt.Errorf("unknown statement")
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
	}
	for _, text := range ranks {
		if err := s.addRanks(text); err != nil {
			return nil, fmt.Errorf("rank %q: %w", text, err)
		}
	}
	o.Ranks = len(s.curves)
	if len(o.Limits) == 1 {
		o.Limits = slices.Repeat(o.Limits, o.Ranks)
	}
	if s.profile {
		o.Curves = s.curves
	}
	return s, nil
}

func numbers(text string) (list []float64, err error) {
	for _, field := range strings.Fields(text) {
		var v float64
		if _, err := fmt.Sscanf(field, "%g", &v); err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// addRanks adds ranks such as "type a, 4 ms + 1 ms per sample; tiles of 16 take 70 %; 500 of them".
func (s *scene) addRanks(text string) error {
	parts := strings.Split(text, "; ")
	var kind string
	var fixed, perSample float64
	if _, err := fmt.Sscanf(strings.Replace(parts[0], ",", "", 1), "type %s %g ms + %g ms per sample", &kind, &fixed,
		&perSample); err != nil {
		return err
	}
	count, effects := 1, []func(b, seconds float64) float64{}
	for _, part := range parts[1:] {
		var n int
		var v float64
		if _, err := fmt.Sscanf(part, "%d of them", &n); err == nil {
			count = n
		} else if _, err := fmt.Sscanf(part, "tiles of %d take %g %%", &n, &v); err == nil {
			effects = append(effects, func(b, seconds float64) float64 {
				if math.Mod(b, float64(n)) == 0 {
					return seconds * v / 100
				}
				return seconds
			})
		} else if _, err := fmt.Sscanf(part, "whole tiles of %d", &n); err == nil {
			effects = append(effects, func(b, _ float64) float64 {
				return (fixed + perSample*math.Ceil(b/float64(n))*float64(n)) / 1000
			})
		} else if _, err := fmt.Sscanf(part, "below %d samples at least %g ms", &n, &v); err == nil {
			effects = append(effects, func(b, seconds float64) float64 {
				if b < float64(n) {
					return max(seconds, v/1000)
				}
				return seconds
			})
		} else {
			return fmt.Errorf("got %q", part)
		}
	}
	var curve divide.Curve
	last := float64(s.options.Total)
	for b := 1.0; b <= last; b++ {
		if len(effects) == 0 && b > 1 { // a line needs no points between its ends
			b = last
		}
		seconds := (fixed + perSample*b) / 1000
		for _, effect := range effects {
			seconds = effect(b, seconds)
		}
		curve = append(curve, divide.Point{Samples: b, Seconds: seconds})
	}
	for range count {
		s.curves, s.options.Types = append(s.curves, curve), append(s.options.Types, kind)
	}
	return nil
}

// play runs policy hybrid and a detector of stragglers, and writes a paragraph for each decision.
func (s *scene) play() (string, error) {
	p, err := policies.New("hybrid", s.options)
	if err != nil {
		return "", err
	}
	ranks := s.options.Ranks
	random := rand.New(rand.NewPCG(s.seed, 0x5eed))
	detector, healthy := straggler.NewDetector(ranks), straggler.NewReferences(ranks)
	detector.SetTypes(s.options.Types)
	shares, rest := p.Start(), 0
	var b strings.Builder
	fmt.Fprintf(&b, "start: %s\n", few(shares))
	for step := range s.steps {
		x := &balancer.Step{Shares: shares, Own: make([]float64, ranks), Left: s.steps - 1 - step}
		truth := s.world(step)
		for r, c := range truth {
			x.Own[r] = c.At(float64(shares[r])) * math.Exp(s.noise*random.NormFloat64())
			x.Seconds = max(x.Seconds, x.Own[r])
		}
		d, due := p.Observe(x)
		if !due {
			continue
		}
		verdicts, err := judge(detector, healthy, int64(step), d)
		if err != nil {
			return "", err
		}
		healthy.Keep(detector, d.Shares, p.(balancer.Learner).Curves(), d.Ranks)
		if s.shown--; s.shown >= 0 {
			s.write(&b, step, d, truth, verdicts)
		} else if d.Changed {
			rest++
		}
		shares = slices.Clone(d.Next)
	}
	if s.shown < 0 {
		fmt.Fprintf(&b, "… %d more decisions, %d of them changes\n", -s.shown, rest)
	}
	truth := s.world(s.steps - 1)
	fmt.Fprintf(&b, "end: %s, in truth %.1f %% of the oracle\n", few(shares), 100*s.ofOracle(truth, shares))
	return b.String(), nil
}

// world returns the true curves at a step.
func (s *scene) world(step int) []divide.Curve {
	out := slices.Clone(s.curves)
	for r := range out {
		factor := 1.0
		for i := range s.slower {
			factor *= s.slower[i].at(r, step)
		}
		if factor == 1 {
			continue
		}
		out[r] = slices.Clone(out[r])
		for i := range out[r] {
			out[r][i].Seconds *= factor
		}
	}
	return out
}

func (s *scene) ofOracle(truth []divide.Curve, shares []int) float64 {
	now, _ := divide.Slowest(truth, shares)
	then := now
	batch := s.options.Batch
	batch.Limits = batch.Capacities(len(shares))
	for range 2 { // with all ranks, and without the excluded ones
		if best, err := divide.Solve(batch, truth); err == nil {
			seconds, _ := divide.Slowest(truth, best)
			then = min(then, seconds)
		}
		for r, n := range shares {
			if n == 0 {
				batch.Limits[r] = 0
			}
		}
	}
	return then / now
}

// judge gives a window to the detector, with the curves of the time when the ranks were healthy.
func judge(detector *straggler.Detector, healthy *straggler.References, step int64, d *balancer.Decision) (
	[]straggler.Verdict, error) {
	window := make([]straggler.Observation, len(d.Shares))
	for r := range window {
		o := &window[r]
		*o = straggler.Observation{Seconds: d.Ranks[r].Seconds, Samples: d.Shares[r], Data: math.NaN(),
			Link: math.NaN(), Health: telemetry.Summary{Value: telemetry.Unknown()}}
		o.Expected, o.ExpectedError = healthy.Expect(r, d.Shares[r])
	}
	return detector.Observe(step, window)
}

// write writes the paragraph of a decision.
func (s *scene) write(b *strings.Builder, step int, d *balancer.Decision, truth []divide.Curve,
	verdicts []straggler.Verdict) {
	var took, belief []string
	for r, v := range d.Ranks[:min(len(d.Ranks), 4)] {
		if d.Shares[r] == 0 {
			took, belief = append(took, "-"), append(belief, "-")
			continue
		}
		took = append(took, fmt.Sprintf("%.1f", 1000*v.Seconds))
		belief = append(belief, fmt.Sprintf("%.1f ± %.1f (%.1f)", 1000*v.Fitted, 1000*v.Error,
			1000*truth[r].At(float64(d.Shares[r]))))
	}
	more := ""
	if len(d.Ranks) > 4 {
		more = ", …"
	}
	fmt.Fprintf(b, "\nstep %d: shares %s take %s%s ms\n", step+1, few(d.Shares), strings.Join(took, ", "), more)
	fmt.Fprintf(b, "  belief    %s%s ms\n", strings.Join(belief, ", "), more)
	if d.Unknown != "" {
		fmt.Fprintf(b, "  oracle    unknown: %s\n", d.Unknown)
	} else {
		of := d.OfOracle
		fmt.Fprintf(b, "  oracle    %.1f %% (%.1f to %.1f); in truth %.1f %%\n", 100*of.Value, 100*of.Low, 100*of.High,
			100*s.ofOracle(truth, d.Shares))
	}
	if d.Disagreement != "" {
		fmt.Fprintf(b, "  differs   %s\n", d.Disagreement)
	}
	for _, v := range verdicts[:min(len(verdicts), 4)] {
		if v.Kind == straggler.Sick {
			fmt.Fprintf(b, "  verdict   rank %d is sick since step %d: %s\n", v.Rank, v.SinceStep+1, v.Evidence)
		}
	}
	decision := "stay"
	if d.Changed {
		decision = few(d.Next)
	}
	fmt.Fprintf(b, "  decision  %s: %s\n", decision, d.Reason)
}

// few writes the shares of the first eight ranks.
func few(shares []int) string {
	text := strings.Trim(fmt.Sprint(shares[:min(len(shares), 8)]), "[]")
	if len(shares) > 8 {
		text += fmt.Sprintf(" … (%d ranks)", len(shares))
	}
	return text
}
