package hybrid

import "math"

const (
	scenarios = 64   // draws from the posterior of all ranks
	quantiles = 1024 // number of quantiles of the normal distribution from which draws select
)

// normals are quantiles of the normal distribution.
var normals = func() (z [quantiles]float64) {
	for i := range z {
		z[i] = math.Sqrt2 * math.Erfinv((2*float64(i)+1)/quantiles-1)
	}
	return z
}()

// largest is the largest normal number.
var largest = normals[quantiles-1]

// draws is a stream of normal numbers, the same in every run (splitmix64).
type draws uint64

// drawsFrom returns the stream without its first n numbers.
func drawsFrom(n uint64) draws { return draws(n * golden) }

// skip leaves out n numbers.
func (d *draws) skip(n uint64) { *d += draws(n * golden) }

const golden = 0x9e3779b97f4a7c15

func (d *draws) next() float64 { return normals[d.bits()%quantiles] }

// uniform returns a number of at least 0 and below 1.
func (d *draws) uniform() float64 { return float64(d.bits()>>11) / (1 << 53) }

func (d *draws) bits() uint64 {
	*d += golden
	x := uint64(*d)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
