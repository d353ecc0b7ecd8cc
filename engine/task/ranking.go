package task

import (
	"math"
	"slices"
)

// Ranking collects the scores of samples with independent classes, for the average precision of each class.
type Ranking struct {
	scored [][]scored // by class
	left   int        // number of targets that still fit
}

type scored struct {
	score float32
	has   bool
}

// mostScored is the largest number of targets of a Ranking. They need 512 MiB.
const mostScored = 1 << 26

// NewRanking returns a Ranking without targets.
func NewRanking(classes int) *Ranking { return &Ranking{make([][]scored, classes), mostScored} }

// Add adds one target of a sample.
func (r *Ranking) Add(class int, score float64, has bool) {
	if r.left--; r.left >= 0 {
		r.scored[class] = append(r.scored[class], scored{float32(score), has})
	}
}

// AveragePrecision returns the average precision of each class, and the mean over the classes that have samples. For a
// class without samples, it is NaN. The average precision is a sum over the targets of a class in the order of their
// scores. Each term is the precision times the increase of recall. Targets with equal scores form a single term (as in
// scikit-learn). The result known is false if there were too many targets, if a score is NaN, or if no class has
// samples.
func (r *Ranking) AveragePrecision() (byClass []float64, mean float64, known bool) {
	classes := 0
	for _, list := range r.scored {
		slices.SortFunc(list, func(a, b scored) int {
			switch {
			case a.score > b.score:
				return -1
			case a.score < b.score:
				return 1
			}
			return 0
		})
		sum, hits, before := 0.0, 0, 0
		for i, s := range list {
			if s.has {
				hits++
			}
			if s.score != s.score {
				return nil, 0, false
			}
			if i+1 == len(list) || list[i+1].score != s.score {
				sum += float64(hits-before) * float64(hits) / float64(i+1)
				before = hits
			}
		}
		ap := math.NaN()
		if hits > 0 {
			ap = sum / float64(hits)
			mean += ap
			classes++
		}
		byClass = append(byClass, ap)
	}
	return byClass, mean / float64(classes), r.left >= 0 && classes > 0
}
