"""The counter-based generator of engine/nn/random, in numpy: the same numbers for the same (seed, name, index).

engine/nn/random/doc.go has the definition. engine/nn/random/stream_test.go compares both generators through fixed values.
This command prints these values:

    python3 scripts/counter_random.py
"""

import numpy as np

U64 = np.uint64
MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15


def mix(z):
    """SplitMix64's finaliser, of an array of uint64 (which wraps around)."""
    z = (z ^ (z >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> U64(27))) * U64(0x94D049BB133111EB)
    return z ^ (z >> U64(31))


def mix_one(z):
    return int(mix(np.array([z], dtype=U64))[0])


def fnv1a(text):
    h = 0xCBF29CE484222325
    for b in text.encode():
        h = ((h ^ b) * 0x100000001B3) & MASK
    return h


class Stream:
    """The random numbers of one (seed, name). i is an array of indices, uint64."""

    def __init__(self, seed, name):
        self.base = U64(mix_one(fnv1a(name) ^ mix_one(seed)))

    def bits(self, i):
        return mix(self.base + (i + U64(1)) * U64(GAMMA))

    def uniform(self, i):
        return (self.bits(i) >> U64(11)).astype(np.float64) * 2.0**-53

    def normal(self, i):
        u, v = self.uniform(U64(2) * i), self.uniform(U64(2) * i + U64(1))
        return np.sqrt(-2.0 * np.log(1.0 - u)) * np.cos(2.0 * np.pi * v)

    def fill_uniform(self, shape, lo, hi):
        """Row-major array of f32."""
        return (lo + (hi - lo) * self.uniform(indices(shape))).astype(np.float32).reshape(shape)

    def fill_normal(self, shape, mean, std):
        """Row-major array of f32."""
        return (mean + std * self.normal(indices(shape))).astype(np.float32).reshape(shape)


def indices(shape):
    return np.arange(int(np.prod(shape)), dtype=U64)


def main():
    for seed, name in ((0, ""), (1, "fc.weight"), (MASK, "layer1.0.conv1.weight")):
        s = Stream(seed, name)
        print(f"seed {seed} name {name!r}")
        print("  bits    ", *(hex(int(b)) for b in s.bits(np.array([0, 1, 1 << 40], dtype=U64))))
        print("  uniform ", *(float(u).hex() for u in s.uniform(indices((2,)))))
        print("  normal  ", *(repr(float(n)) for n in s.normal(indices((3,)))))
        print("  f32 [-0.125, 0.125)  ", *(repr(float(x)) for x in s.fill_uniform((3,), -0.125, 0.125)))
        print("  f32 N(0.5, 0.05)     ", *(repr(float(x)) for x in s.fill_normal((3,), 0.5, 0.05)))


if __name__ == "__main__":
    main()
