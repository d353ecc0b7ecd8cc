package estimate

import (
	"unsafe"

	"github.com/hetero-train/hetero-train/balancer/divide"
)

// Bytes returns the memory that the model holds: what each rank has measured, the fitted shapes, and the curves.
func (m *Model) Bytes() (beliefs, shapes, curves int64) {
	const pointer, float = int64(unsafe.Sizeof(uintptr(0))), int64(unsafe.Sizeof(float64(0)))
	seen := map[*shape]bool{}
	fit := func(f *shape) {
		if f != nil && !seen[f] {
			seen[f] = true
			shapes += f.bytes()
		}
	}
	add := func(e *posterior) {
		beliefs += int64(unsafe.Sizeof(*e)) + pointer + int64(cap(e.cells))*int64(unsafe.Sizeof(cell{}))
		for _, row := range e.cov[:cap(e.cov)] {
			beliefs += 3*pointer + int64(cap(row))*float
		}
		fit(e.shape)
	}
	for _, e := range m.ranks {
		if add(e); e.before != nil {
			add(e.before)
		}
	}
	points := map[*divide.Points]bool{nil: true}
	for _, t := range m.types.curves {
		if t != nil {
			fit(t.shape)
			curves += t.bytes(points)
		}
	}
	for _, list := range [][]divide.Scaled{m.curves.mean, m.curves.cautious} {
		curves += int64(cap(list)) * int64(unsafe.Sizeof(divide.Scaled{}))
		for r := range list {
			if p := list[r].Points; !points[p] {
				points[p] = true
				curves += p.Bytes()
			}
		}
	}
	curves += int64(len(m.ranks)) * (int64(unsafe.Sizeof(fastest{})) + 2*float)
	curves += int64(cap(m.curves.levels))*int64(unsafe.Sizeof(Level{})) +
		int64(cap(m.types.classes))*int64(unsafe.Sizeof(Class{})) + int64(len(m.types.classOf))*3*pointer
	for _, quantiles := range m.types.spreads {
		curves += int64(cap(quantiles)) * int64(unsafe.Sizeof(Spread{}))
	}
	return beliefs, shapes, curves
}

// bytes returns the memory of what the curve of a type keeps for its ranks, without its fit. points are the points that
// were counted already.
func (t *typeCurve) bytes(points map[*divide.Points]bool) (bytes int64) {
	const float, pair = int64(unsafe.Sizeof(float64(0))), int64(unsafe.Sizeof(ratio{}))
	const header = 3 * int64(unsafe.Sizeof(uintptr(0)))
	bytes = int64(unsafe.Sizeof(*t)) + float*int64(cap(t.logs)) + header*int64(cap(t.ratios)) +
		4*int64(cap(t.shares.small)) + 2*float*int64(len(t.shares.other)) + (float+pair)*int64(len(t.other))
	for _, row := range t.ratios {
		bytes += pair * int64(cap(row))
	}
	count := func(p *divide.Points) {
		if !points[p] {
			points[p] = true
			bytes += p.Bytes()
		}
	}
	for _, p := range t.under.values {
		count(p)
	}
	for _, both := range t.drawn.values {
		count(both[0])
		count(both[1])
	}
	for _, both := range t.optimistic.values {
		bytes += int64(cap(both[0])+cap(both[1])) * int64(unsafe.Sizeof(divide.Point{}))
	}
	for _, p := range t.optimisticTo.values {
		count(p)
	}
	return bytes
}

// bytes returns the memory of a shape with its grid.
func (f *shape) bytes() (bytes int64) {
	const float = int64(unsafe.Sizeof(float64(0)))
	n := int64(len(f.cells))
	bytes = int64(unsafe.Sizeof(*f)) + int64(unsafe.Sizeof(*f.grid)) + n*int64(unsafe.Sizeof(cell{})) +
		int64(cap(f.grid.cells)+cap(f.knots))*int64(unsafe.Sizeof(place{})) + int64(cap(f.filled)) +
		float*int64(cap(f.flat)+cap(f.features)+cap(f.chances)+cap(f.expected)+len(f.cov)*len(f.cov))
	for i := range f.parts {
		p := &f.parts[i]
		bytes += int64(unsafe.Sizeof(*p)) + float*int64(cap(p.half)+cap(p.weights)+cap(p.solved))
	}
	return bytes
}
