package compare

import (
	"encoding/json"
	"math"
)

// number is null in JSON if it is NaN.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

type estimateJSON struct {
	Mean      number `json:"mean"`
	Deviation number `json:"standard_deviation"`
	Low       number `json:"low"`
	High      number `json:"high"`
}

func (e Estimate) json() estimateJSON {
	return estimateJSON{number(e.Mean), number(e.Deviation), number(e.Low), number(e.High)}
}

// MarshalJSON writes unknown numbers as null.
func (e Estimate) MarshalJSON() ([]byte, error) { return json.Marshal(e.json()) }

// MarshalJSON writes unknown numbers as null.
func (r Ratio) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		estimateJSON
		Student  number `json:"p_student"`
		Wilcoxon number `json:"p_wilcoxon"`
	}{r.json(), number(r.Student), number(r.Wilcoxon)})
}

// MarshalJSON writes unknown numbers as null.
func (r Regression) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Slope     number `json:"slope"`
		Intercept number `json:"intercept"`
		R2        number `json:"r2"`
		P         number `json:"p"`
		Runs      int    `json:"runs"`
	}{number(r.Slope), number(r.Intercept), number(r.R2), number(r.P), r.Runs})
}
