package inflate

import (
	"hash/crc32"
	"slices"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// marker collects restart points.
type marker struct {
	spacing int64 // least bytes of output between two points
	points  []Point
	used    [windowBytes]bool // of the last point's window: bytes that are copied from
}

// Mark makes the Reader collect restart points, at least spacing bytes of output apart; the first is at the start. It
// is called before the first Read.
func (r *Reader) Mark(spacing int64) { r.marker = &marker{spacing: spacing} }

// Points are the points collected, in order; complete once Read has returned io.EOF.
func (r *Reader) Points() []Point {
	r.marker.seal()
	return r.marker.points
}

// block is called where a block begins.
func (m *marker) block(s *stream) {
	if n := len(m.points); n > 0 && s.total-m.points[n-1].Out < m.spacing {
		return
	}
	m.seal()
	window := make([]byte, s.window)
	copy(window, s.out[s.write-s.window:s.write])
	m.points = append(m.points, Point{In: s.in.position(), Out: s.total, Window: window})
}

// copied is called for a match before it is copied.
func (m *marker) copied(s *stream) {
	p := &m.points[len(m.points)-1]
	// Distance from the point to where the copy begins: negative within the window.
	from := s.total - p.Out - int64(s.dist)
	for k := from; k < 0 && k < from+int64(s.length); k++ {
		if at := len(p.Window) + int(k); at >= 0 {
			m.used[at] = true
		}
	}
}

// output is called for output that no later point covers.
func (m *marker) output(out []byte) {
	if n := len(m.points); n > 0 {
		m.points[n-1].Sum = crc32.Update(m.points[n-1].Sum, castagnoli, out)
	}
}

// seal drops what nothing refers to from the last point's window.
func (m *marker) seal() {
	if len(m.points) == 0 {
		return
	}
	p := &m.points[len(m.points)-1]
	first := len(p.Window)
	for i := range p.Window {
		if !m.used[i] {
			p.Window[i] = 0
		} else {
			first = min(first, i)
		}
	}
	p.Window = slices.Clone(p.Window[first:])
	clear(m.used[:])
}
