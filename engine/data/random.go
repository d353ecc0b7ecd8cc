package data

import "math/bits"

// Random numbers are functions of (seed, epoch, index, stream) and of the number of previous draws. The generator is
// Philox 4x32-10: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

// stream identifies a use of random numbers. Different streams use different numbers.
type stream uint8

const (
	streamPermutation stream = iota + 1 // order of an epoch; index 0
	streamAugment                       // crop and flip of a sample
	streamClass                         // pattern of a synthetic class; index = class
	streamSynthetic                     // a synthetic sample; epoch = part (training, evaluation)
	streamSubset                        // order of a sample in Limited; seed 0
	streamRandAugment                   // operations of RandAugment on a sample
	streamJitter                        // colour changes of a sample
	streamErase                         // erased rectangles of a sample
	streamMix                           // choices of Mix; index = optimizer step, pair or position in the epoch
	streamGroups                        // order of the batches of an epoch of samples of similar length; index 0
)

const (
	philoxMul0, philoxMul1   = 0xD2511F53, 0xCD9E8D57
	philoxStep0, philoxStep1 = 0x9E3779B9, 0xBB67AE85
)

// philox maps a counter and a key to 128 random bits.
func philox(ctr [4]uint32, k0, k1 uint32) [4]uint32 {
	for range 10 {
		hi0, lo0 := bits.Mul32(philoxMul0, ctr[0])
		hi1, lo1 := bits.Mul32(philoxMul1, ctr[2])
		ctr = [4]uint32{hi1 ^ ctr[1] ^ k0, lo1, hi0 ^ ctr[3] ^ k1, lo0}
		k0 += philoxStep0
		k1 += philoxStep1
	}
	return ctr
}

// draws is a sequence of 2^34 random 32-bit numbers.
type draws struct {
	k0, k1 uint32
	ctr    [4]uint32 // block, epoch, low part of index, stream with the high part of index
	out    [4]uint32
	next   int // index of the next number in out; 4 if a new block is needed
}

// newDraws starts the sequence of (seed, epoch, index, stream). Different arguments never use the same block, because
// each argument has separate bits of the counter: epoch 32, index 56, stream 8.
func newDraws(seed uint64, epoch, index int, s stream) draws {
	i := uint64(index)
	return draws{
		k0: uint32(seed), k1: uint32(seed >> 32),
		ctr:  [4]uint32{0, uint32(epoch), uint32(i), uint32(i>>32)&0xFFFFFF | uint32(s)<<24},
		next: 4,
	}
}

// uint32 returns 32 uniform bits.
func (d *draws) uint32() uint32 {
	if d.next == 4 {
		d.out = philox(d.ctr, d.k0, d.k1)
		d.ctr[0]++
		d.next = 0
	}
	v := d.out[d.next]
	d.next++
	return v
}

// below returns a uniform integer in [0, n), n > 0, without bias (D. Lemire, "Fast random integer generation in an
// interval", 2019).
func (d *draws) below(n int) int {
	hi, lo := bits.Mul32(d.uint32(), uint32(n))
	if lo < uint32(n) {
		for least := -uint32(n) % uint32(n); lo < least; {
			hi, lo = bits.Mul32(d.uint32(), uint32(n))
		}
	}
	return int(hi)
}

// float64 returns a uniform number in [0, 1) with 53 random bits.
func (d *draws) float64() float64 {
	hi, lo := uint64(d.uint32()), uint64(d.uint32())
	return float64((hi<<32|lo)>>11) * (1.0 / (1 << 53))
}

// Purpose identifies a use of random numbers in packages that generate samples of text.
type Purpose uint8

// The uses of random numbers for text. Their random numbers are independent of those for images.
const (
	ForWindows   Purpose = 64 + iota // offset of the windows of an epoch; index 0
	ForMasks                         // masked tokens and second text of a sample
	ForMarkov                        // tokens of a Markov sample; epoch = part (training, evaluation)
	ForChain                         // transitions of the Markov chain; index 0
	ForDocuments                     // choice of whether a document is for training or evaluation; index = document
	ForLengths                       // length of a Markov sample; epoch = part (training, evaluation)
)

// Random is a sequence of 2^34 random 32-bit numbers. It is a function of (seed, epoch, index, purpose). Random is a
// value and needs no allocation.
type Random struct{ d draws }

// NewRandom starts a sequence. The parameter index must be below 2^56.
func NewRandom(seed uint64, epoch, index int, p Purpose) Random {
	return Random{newDraws(seed, epoch, index, stream(p))}
}

// Uint32 returns 32 uniform bits.
func (r *Random) Uint32() uint32 { return r.d.uint32() }

// Below returns a uniform integer in [0, n), 0 < n < 2^32, without bias.
func (r *Random) Below(n int) int { return r.d.below(n) }

// Float64 returns a uniform number in [0, 1) with 53 random bits.
func (r *Random) Float64() float64 { return r.d.float64() }
