package drawing

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// roundTicks labels four to eight round numbers. The default of gonum labels only about three.
type roundTicks struct{}

// Ticks implements plot.Ticker.
func (roundTicks) Ticks(low, high float64) []plot.Tick {
	span := high - low
	if !(span > 0) || math.IsInf(span, 0) {
		return []plot.Tick{{Value: low, Label: strconv.FormatFloat(low, 'g', 4, 64)}}
	}
	power := math.Pow(10, math.Floor(math.Log10(span/5)))
	step := 10 * power
	for _, factor := range []float64{1, 2, 5} {
		if span/(factor*power) <= 7 {
			step = factor * power
			break
		}
	}
	decimals := max(0, int(-math.Floor(math.Log10(step)+1e-9)))
	var ticks []plot.Tick
	// Adding 0 converts -0 to 0, so that the label is not "-0".
	for i := math.Ceil(low/step-1e-9) + 0; i*step <= high+1e-9*span; i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: strconv.FormatFloat(i*step, 'f', decimals, 64)})
	}
	return ticks
}
