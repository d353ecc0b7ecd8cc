package measure

import "strconv"

// Figure is a measured number above 0. In JSON a figure that was not measured, 0, is null; older files have 0.
type Figure float64

// Known reports whether it was measured.
func (f Figure) Known() bool { return f > 0 }

// MarshalJSON implements json.Marshaler.
func (f Figure) MarshalJSON() ([]byte, error) {
	if !f.Known() {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(f), 'g', -1, 64), nil
}
