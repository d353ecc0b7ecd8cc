// Package random generates initial values of parameters with a counter-based generator. Each number is a function of
// (seed, name, index) only.
//
// Every parameter has its own stream of numbers, with the name of the parameter ("layer1.0.conv1.weight"). The
// element at row-major position i uses the numbers with index i. The values therefore do not depend on the order of
// parameters, on threads, ranks or the device.
//
// Other programs can compute the same values. scripts/goldens.py does so for the comparison with PyTorch, which
// therefore needs no stored weights.
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
// Bits and Uniform are exact on every machine. Normal uses ln and cos of Go's library; other libraries may differ in
// the last bit of the f64. After rounding to f32, about one value in a hundred million then differs.
//
// SplitMix64: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. It is
// suitable for simulation, but not for cryptography.
package random
