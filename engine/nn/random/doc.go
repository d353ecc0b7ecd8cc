// Package random makes parameters: a counter-based generator whose numbers are functions of (seed, name, index) alone.
//
// Every parameter has a stream of its own, named as the parameter is ("layer1.0.conv1.weight"), and the element at
// row-major position i takes the numbers of index i. So the values depend neither on the order in which parameters are
// made, nor on threads, ranks or device, and another program can make them again: scripts/goldens.py does, which is
// why no weights are committed for the runs that are compared with PyTorch.
//
//	weight := random.New(seed, "layer1.0.conv1.weight")
//	value := weight.Gaussian(i, 0, math.Sqrt(2/fanOut))
//
// # Definition
//
// All integers are 64 bits wide and wrap around.
//
//	mix(z)      z ^= z>>30; z *= 0xbf58476d1ce4e5b9; z ^= z>>27; z *= 0x94d049bb133111eb; z ^= z>>31
//	base        mix(fnv1a(name) ^ mix(seed)), fnv1a over the bytes of name
//	Bits(i)     mix(base + (i+1)·0x9e3779b97f4a7c15): SplitMix64 started at base
//	Uniform(i)  (Bits(i)>>11)·2^-53, in [0, 1)
//	Normal(i)   sqrt(-2·ln(1-Uniform(2i)))·cos(2π·Uniform(2i+1)): Box and Muller, f64
//
// Bits and Uniform are exact on every machine. Normal takes ln and cos from Go's library; another library may differ in
// the last bit of the f64, which a value rounded to f32 shows about once in a hundred million.
//
// SplitMix64: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. It is made
// for simulation, never for secrets.
package random
