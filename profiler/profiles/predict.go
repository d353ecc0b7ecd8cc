package profiles

import (
	"fmt"
	"math"
)

// Prediction describes how well compute scores predict the time per sample of each rank for a model.
type Prediction struct {
	Model string          `json:"model"`
	Ranks []PredictedRank `json:"ranks"`
	Error float64         `json:"error"` // mean error over the ranks as a fraction: 0.05 means 5 %
	Worst int             `json:"worst_rank"`
}

// PredictedRank contains the measured time per sample of a rank, and its relative times: measured and predicted.
// Relative times are divided by their geometric mean over all ranks.
type PredictedRank struct {
	Rank             int     `json:"rank"`
	SecondsPerSample float64 `json:"seconds_per_sample"`
	Measured         float64 `json:"measured_relative_time"`
	Predicted        float64 `json:"predicted_relative_time"`
}

// Predict compares scores with measured seconds per sample. All values must be above 0. It returns nil if a value of a
// rank is missing. It also returns nil for a single rank, because scores only compare ranks.
func Predict(model string, scores, secondsPerSample []float64) *Prediction {
	n := len(scores)
	if n < 2 || len(secondsPerSample) != n {
		return nil
	}
	meanScore, meanSeconds := 0.0, 0.0 // means of the logarithms
	for i := range scores {
		if !positive(scores[i]) || !positive(secondsPerSample[i]) {
			return nil
		}
		meanScore += math.Log(scores[i]) / float64(n)
		meanSeconds += math.Log(secondsPerSample[i]) / float64(n)
	}
	p := &Prediction{Model: model}
	sum, most := 0.0, -1.0
	for i := range scores {
		predicted, measured := meanScore-math.Log(scores[i]), math.Log(secondsPerSample[i])-meanSeconds
		p.Ranks = append(p.Ranks, PredictedRank{Rank: i, SecondsPerSample: secondsPerSample[i],
			Measured: math.Exp(measured), Predicted: math.Exp(predicted)})
		deviation := math.Abs(predicted - measured)
		sum += deviation
		if deviation > most {
			most, p.Worst = deviation, i
		}
	}
	p.Error = math.Expm1(sum / float64(n))
	return p
}

// String returns the prediction as a sentence.
func (p *Prediction) String() string {
	w := p.Ranks[p.Worst]
	return fmt.Sprintf("the compute scores predict the ranks' times per sample for %s with a mean error of %.0f %%; largest error: rank %d, predicted %.2f and measured %.2f times the mean of the ranks",
		p.Model, 100*p.Error, p.Worst, w.Predicted, w.Measured)
}

func positive(v float64) bool { return v > 0 && !math.IsInf(v, 1) }
