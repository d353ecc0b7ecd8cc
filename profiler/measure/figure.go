package measure

import "strconv"

// Figure is a measured number above 0, or 0 if it was not measured. In JSON, the latter is null; files of older
// versions of the program contain 0.
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
