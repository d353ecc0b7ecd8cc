package random

import (
	"fmt"
	"math"
	"testing"
)

// The expected values are the published output of SplitMix64 for the state 1234567.
func TestBitsAreSplitMix64(t *testing.T) {
	s := Stream{base: 1234567}
	for i, want := range []uint64{
		6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
	} {
		if got := s.Bits(uint64(i)); got != want {
			t.Errorf("bits %d: got %d, want %d", i, got, want)
		}
	}
}

// known contains values of scripts/counter_random.py, which is a second implementation of the numbers.
var known = []struct {
	seed    uint64
	name    string
	bits    map[uint64]uint64
	uniform []float64 // must be equal
	normal  []float64 // may differ in the last bits of ln and cos
	inRange []float32 // Between(-0.125, 0.125)
	shifted []float32 // Gaussian(0.5, 0.05)
}{
	{
		seed: 0, name: "",
		bits:    map[uint64]uint64{0: 0xe587d3dff9e92ed0, 1: 0x274e5e9a4929b0bb, 1 << 40: 0x06fb7115c63fb7c4},
		uniform: []float64{0x1.cb0fa7bff3d25p-1, 0x1.3a72f4d2494d8p-3},
		normal:  []float64{1.213549520645653, 0.30872891260523094, 1.4163486892121213},
		inRange: []float32{0.09915095567703247, -0.08661510795354843, -0.021249806508421898},
		shifted: []float32{0.5606774687767029, 0.5154364705085754, 0.5708174109458923},
	},
	{
		seed: 1, name: "fc.weight",
		bits:    map[uint64]uint64{0: 0x4f68fa51787794f0, 1: 0xa366c9a865dbb4d3, 1 << 40: 0x10d9558b4c01a729},
		uniform: []float64{0x1.3da3e945e1de4p-2, 0x1.46cd9350cbb76p-1},
		normal:  []float64{-0.556444521245485, 0.6698809570316875, -1.1186039844919422},
		inRange: []float32{-0.04745110496878624, 0.03457179293036461, 0.07763227820396423},
		shifted: []float32{0.47217777371406555, 0.5334940552711487, 0.4440698027610779},
	},
	{
		seed: math.MaxUint64, name: "layer1.0.conv1.weight",
		bits:    map[uint64]uint64{0: 0x4504735e65c72330, 1: 0xe93a0fce6d4382ec, 1 << 40: 0xb56f6fdd32baeb0b},
		uniform: []float64{0x1.1411cd79971c8p-2, 0x1.d2741f9cda870p-1},
		normal:  []float64{0.6720392156805344, 1.4631530255641052, -1.7667430576288576},
		inRange: []float32{-0.05760021135210991, 0.10276055335998535, 0.044317279011011124},
		shifted: []float32{0.5336019396781921, 0.5731576681137085, 0.41166284680366516},
	},
}

func TestValuesAreThoseOfThePythonTwin(t *testing.T) {
	for _, c := range known {
		t.Run(fmt.Sprintf("seed %d name %q", c.seed, c.name), func(t *testing.T) {
			s := New(c.seed, c.name)
			for i, want := range c.bits {
				if got := s.Bits(i); got != want {
					t.Errorf("bits %d: got %#x, want %#x", i, got, want)
				}
			}
			for i, want := range c.uniform {
				if got := s.Uniform(uint64(i)); got != want {
					t.Errorf("uniform %d: got %x, want %x", i, got, want)
				}
			}
			for i, want := range c.normal {
				if got := s.Normal(uint64(i)); math.Abs(got-want) > 1e-15*(1+math.Abs(want)) {
					t.Errorf("normal %d: got %v, want %v", i, got, want)
				}
			}
			for i := range uint64(3) {
				if got := float32(s.Between(i, -0.125, 0.125)); got != c.inRange[i] {
					t.Errorf("between, %d: got %v, want %v", i, got, c.inRange[i])
				}
				if got := float32(s.Gaussian(i, 0.5, 0.05)); got != c.shifted[i] {
					t.Errorf("gaussian, %d: got %v, want %v", i, got, c.shifted[i])
				}
			}
		})
	}
}

// The limits are five standard errors of each statistic, for n independent numbers. The numbers of the test are always
// the same.
func TestNumbersHaveTheMomentsOfTheirDistribution(t *testing.T) {
	const n = 1 << 18
	root := math.Sqrt(n)
	for _, seed := range []uint64{0, 1, 2, 42, 1 << 63} {
		s := New(seed, "layer4.2.conv3.weight")
		uniform := moments(n, func(i uint64) float64 { return s.Uniform(i) - 0.5 })
		normal := moments(n, s.Normal)
		for _, c := range []struct {
			what                 string
			got, want, deviation float64 // deviation: standard deviation of the statistic for one number
		}{
			{"mean of Uniform - 1/2", uniform[0], 0, math.Sqrt(1. / 12)},
			{"second moment of Uniform - 1/2", uniform[1], 1. / 12, math.Sqrt(1./80 - 1./144)},
			{"product of neighbours of Uniform - 1/2", uniform[4], 0, 1. / 12},
			{"mean of Normal", normal[0], 0, 1},
			{"second moment of Normal", normal[1], 1, math.Sqrt(2)},
			{"third moment of Normal", normal[2], 0, math.Sqrt(15)},
			{"fourth moment of Normal", normal[3], 3, math.Sqrt(96)},
			{"product of neighbours of Normal", normal[4], 0, 1},
		} {
			if limit := 5 * c.deviation / root; !(math.Abs(c.got-c.want) <= limit) {
				t.Errorf("seed %d: %s: got %v, want %v within %.2g", seed, c.what, c.got, c.want, limit)
			}
		}
	}
}

// moments returns the means of x, x², x³ and x⁴, and the mean product of two successive numbers.
func moments(n uint64, number func(uint64) float64) (mean [5]float64) {
	before := number(n)
	for i := range n {
		x := number(i)
		for k, v := range []float64{x, x * x, x * x * x, x * x * x * x, x * before} {
			mean[k] += v / float64(n)
		}
		before = x
	}
	return mean
}

func TestStreamsOfOtherNamesAndSeedsAreUnrelated(t *testing.T) {
	const n = 1 << 16
	base := New(7, "bn1.weight")
	for _, other := range []Stream{
		New(7, "bn2.weight"), New(7, "weight.bn1"), New(7, "bn1.weight "), New(7, ""), New(8, "bn1.weight"),
		New(7<<32, "bn1.weight"),
	} {
		var product float64
		for i := range uint64(n) {
			product += base.Normal(i) * other.Normal(i)
		}
		if correlation := product / n; math.Abs(correlation) > 5/math.Sqrt(n) {
			t.Errorf("streams %#x and %#x: got a correlation of %.4f, want less than %.4f", base.base, other.base,
				correlation, 5/math.Sqrt(n))
		}
	}
}

func TestUniformStaysBelowOneAndNormalStaysFinite(t *testing.T) {
	lowest := Stream{base: ^uint64(gamma) + 1} // Bits(0) = mix(0) = 0
	if got := lowest.Uniform(0); got != 0 {
		t.Errorf("uniform of the bits 0: got %v, want 0", got)
	}
	if got := lowest.Normal(0); got != 0 {
		t.Errorf("normal of the radius 0: got %v, want 0", got)
	}
	highest := Stream{base: unmix(math.MaxUint64) - gamma}
	if got := highest.Uniform(0); got != 1-uniformUlp {
		t.Errorf("uniform of all bits set: got %v, want 1 - 2^-53", got)
	}
	if got := math.Abs(highest.Normal(0)); !(got <= 8.6) {
		t.Errorf("normal of the greatest radius: got %v, want at most 8.6", got)
	}
}

// unmix is the inverse of mix. Odd factors have inverses modulo 2^64. If z ^ z>>k is applied repeatedly, it gives the
// original number.
func unmix(z uint64) uint64 {
	unshift := func(z uint64, k uint) uint64 {
		x := z
		for range 64 / k {
			x = z ^ x>>k
		}
		return x
	}
	inverse := func(odd uint64) uint64 {
		x := odd
		for range 6 { // each Newton iteration doubles the number of correct bits
			x *= 2 - odd*x
		}
		return x
	}
	z = unshift(z, 31) * inverse(0x94d049bb133111eb)
	z = unshift(z, 27) * inverse(0xbf58476d1ce4e5b9)
	return unshift(z, 30)
}

func TestDrawingAllocatesNothing(t *testing.T) {
	if got := testing.AllocsPerRun(10, func() {
		s := New(1, "fc.bias")
		drawn += s.Between(1, -1, 1) + s.Gaussian(1, 0, 1)
	}); got != 0 {
		t.Errorf("allocations: got %v, want 0", got)
	}
}

var drawn float64 // the compiler must not remove the measured code

func BenchmarkGaussian(b *testing.B) {
	s := New(1, "layer4.0.downsample.0.weight")
	for i := uint64(0); b.Loop(); i++ {
		drawn += s.Gaussian(i, 0, 0.01)
	}
}
