package train

import (
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// grouped returns o with two changes: the samples of a step have similar lengths, and there are shorter passes for such
// steps.
func grouped(o replica.Options, shorter ...int) replica.Options {
	o.Positions, o.Shorter = phraseLength, shorter
	return o
}

// A step on the first positions of its samples must equal a step on all positions, because the other positions are
// padding.
func TestStepsOnFewerPositionsEqualPaddedSteps(t *testing.T) {
	accumulated := classifyOptions(3, 0.2)
	accumulated.BatchSize, accumulated.Accumulation = 4, 2
	small := languageOptions(0.2) // in a small batch, all samples may be short
	small.BatchSize = 4
	for name, o := range map[string]replica.Options{"classes": classifyOptions(3, 0.2),
		"classes, micro-batches": accumulated, "next tokens": small} {
		for kind, open := range map[string]func(*testing.T) device.Device{"reference": openReference, "cpu": openCPU} {
			t.Run(name+" "+kind, func(t *testing.T) {
				padded, short := alone(t, grouped(o), open), alone(t, grouped(o, 2, 4, 5), open)
				follows(t, padded, []session{short})
				var seen []float64
				for i, step := range short.steps {
					if padded.steps[i].Positions != 1 {
						t.Errorf("step %d without shorter passes computed the fraction %v of the positions", i+1,
							padded.steps[i].Positions)
					}
					if !slices.Contains(seen, step.Positions) {
						seen = append(seen, step.Positions)
					}
				}
				if len(seen) < 2 || slices.Min(seen) >= 1 {
					t.Errorf("fractions of the positions are %v, want steps of several lengths", seen)
				}
			})
		}
	}
}

func TestUnequalSharesOfShortTextsTrainAsOneRank(t *testing.T) {
	options := func(dropout float64) replica.Options { return grouped(twoOrThreeClasses(dropout), 2, 4) }
	trainsAsOneRank(t, options, func(t *testing.T, one session, ranks []session) {
		if !slices.ContainsFunc(one.steps, func(s StepRecord) bool { return s.Positions < 1 }) {
			t.Error("one rank: all steps computed all positions, want shorter ones")
		}
		for rank, s := range ranks {
			for i, step := range s.steps {
				if want := one.steps[i].Positions; step.Positions != want || step.Ranks[0].Positions != want {
					t.Errorf("rank %d, step %d: fraction %v of the positions, one rank has %v", rank, i+1,
						step.Positions, want)
				}
			}
		}
	})
}

func TestShorterPassesAreChecked(t *testing.T) {
	for want, o := range map[string]replica.Options{
		"want ascending numbers from 1 to 5":  grouped(classifyOptions(2, 0), 4, 6),
		"for [0 4] positions":                 grouped(classifyOptions(2, 0), 0, 4),
		"for [4 2] positions":                 grouped(classifyOptions(2, 0), 4, 2),
		"images.Classify cannot be shortened": grouped(testOptions(), 2),
	} {
		if _, err := replica.New(openReference(t), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
