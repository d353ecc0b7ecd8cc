package measure

import "strconv"

// Figure is a measured number above 0, or 0 if it was not measured. In JSON, a number that was not measured is null;
// older versions of the program wrote 0.
type Figure float64

// Known reports whether the figure was measured.
func (f Figure) Known() bool { return f > 0 }

// MarshalJSON implements json.Marshaler.
func (f Figure) MarshalJSON() ([]byte, error) {
	if !f.Known() {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(f), 'g', -1, 64), nil
}
