package nccl

import (
	"bytes"
	"encoding/binary"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/queue"
	"github.com/hetero-train/hetero-train/engine/collective/signature"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// slot holds an in-flight operation and the matching operation on the control communicator. The matching operation is a
// gather of the ranks' descriptions, or the operation itself if NCCL cannot satisfy the contract. Slots are reused.
type slot struct {
	op     collective.Op
	number uint64
	sig    signature.Signature
	byGPU  bool // NCCL performs the operation, not Control
	word   collective.Op

	gather  collective.Op // gathers the words of all ranks
	words   *memory       // one word per rank
	rank    int
	started *queue.Link // After event of the operation on Control, if this is the operation itself
	agreed  *queue.Link // Done event of the operation on Control
}

// wordBytes is the size of an encoded signature.
const wordBytes = 48

func newSlot(rank, size int) *slot {
	s := &slot{words: newMemory(wordBytes * size), rank: rank, started: queue.NewLink(), agreed: queue.NewLink()}
	counts := make([]int64, size)
	for i := range counts {
		counts[i] = wordBytes
	}
	s.gather = collective.AllGather{Name: "nccl agreement", Buffer: device.Whole(s.words), DType: tensor.U8,
		Counts: counts, Done: s.agreed}
	return s
}

// take assigns the slot to an operation.
func (s *slot) take(op collective.Op, number uint64) {
	s.started.Clear()
	s.agreed.Clear()
	s.op, s.number, s.sig = op, number, signature.Of(op, number)
	s.sig.Parts = hashOf(op.Parts())
	buffer, _, _ := op.Memory()
	_, onGPU := addressOf(buffer)
	s.byGPU = onGPU && exact(s.sig)
	if buffer.Bytes == 0 || s.byGPU {
		s.encode()
		s.word = s.gather
		return
	}
	s.word = moved(op, s.started, s.agreed)
}

// exact reports whether NCCL satisfies the contract for an operation. NCCL's Max and Min of real numbers lose NaN.
func exact(sig signature.Signature) bool {
	if sig.Reduce == collective.Sum {
		return true
	}
	return sig.DType == tensor.I32 || sig.DType == tensor.I64 || sig.DType == tensor.U8
}

// moved returns op with the given events in place of its own.
func moved(op collective.Op, after, done device.Event) collective.Op {
	switch op := op.(type) {
	case collective.AllReduce:
		op.After, op.Done = after, done
		return op
	case collective.Broadcast:
		op.After, op.Done = after, done
		return op
	case collective.AllGather:
		op.After, op.Done = after, done
		return op
	case collective.ReduceScatter:
		op.After, op.Done = after, done
		return op
	}
	return collective.Barrier{Name: op.Tags().Name, After: after, Done: done}
}

// encode writes this rank's word: its encoded signature.
func (s *slot) encode() {
	b := s.words.bytes[wordBytes*s.rank : wordBytes*(s.rank+1)]
	for i, v := range [...]uint64{s.sig.Number, uint64(s.sig.Kind), uint64(s.sig.DType)<<32 | uint64(s.sig.Reduce),
		uint64(s.sig.Root), uint64(s.sig.Elements), s.sig.Parts} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
}

// differing returns the first rank whose word differs from this rank's word, and its signature. The rank is -1 if all
// words are equal.
func (s *slot) differing() (rank int, theirs signature.Signature) {
	own := s.words.bytes[wordBytes*s.rank : wordBytes*(s.rank+1)]
	for rank := range len(s.words.bytes) / wordBytes {
		b := s.words.bytes[wordBytes*rank : wordBytes*(rank+1)]
		if bytes.Equal(b, own) {
			continue
		}
		var v [6]uint64
		for i := range v {
			v[i] = binary.LittleEndian.Uint64(b[8*i:])
		}
		return rank, signature.Signature{Number: v[0], Kind: signature.Kind(v[1]), DType: tensor.DType(v[2] >> 32),
			Reduce: collective.Reduce(v[2]),
			Root:   int(v[3]), Elements: int64(v[4]), Parts: v[5]}
	}
	return -1, theirs
}

// hashOf returns the FNV-1a hash of the counts, or 0 if there are none.
func hashOf(counts []int64) uint64 {
	if counts == nil {
		return 0
	}
	h := uint64(14695981039346656037)
	for _, c := range counts {
		for shift := 0; shift < 64; shift += 8 {
			h = (h ^ uint64(c)>>shift&0xff) * 1099511628211
		}
	}
	return h
}
