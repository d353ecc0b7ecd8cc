package tokens

import (
	"fmt"
	"io"
	"path/filepath"
	"sort"

	"github.com/hetero-train/hetero-train/engine/data"
)

// contentBlock is the number of tokens in a unit of Content. Smaller units need more memory for the table of hashes.
// With larger units, a comparison of a few units covers fewer places of the data.
const contentBlock = 32 << 10

// Content returns the tokens of corpora as units that machines compare. A unit is a block of up to 32,768 tokens of one
// shard. Shards with the same tokens in different formats count as different.
func Content(corpora ...*Corpus) data.Content {
	c := &blocks{}
	for _, corpus := range corpora {
		for _, s := range corpus.Shards {
			c.shards, c.ends = append(c.shards, s), append(c.ends, c.Len()+int((s.Count+contentBlock-1)/contentBlock))
		}
	}
	return c
}

// blocks is the Content of shards.
type blocks struct {
	shards []*Shard
	ends   []int // number of units up to the end of each shard
}

// Len implements [data.Content].
func (b *blocks) Len() int {
	if len(b.ends) == 0 {
		return 0
	}
	return b.ends[len(b.ends)-1]
}

// find returns the shard of unit i, and the range of its tokens in this shard.
func (b *blocks) find(i int) (s *Shard, at int64, n int) {
	k := sort.SearchInts(b.ends, i+1)
	first := 0
	if k > 0 {
		first = b.ends[k-1]
	}
	s, at = b.shards[k], int64(i-first)*contentBlock
	return s, at, int(min(contentBlock, s.Count-at))
}

// Name implements [data.Content].
func (b *blocks) Name(i int) string {
	s, at, n := b.find(i)
	return fmt.Sprintf("%s, tokens %d to %d", filepath.Base(s.Path), at, at+int64(n)-1)
}

// Listed implements [data.Content]. It covers the properties of the shard, including the checksum if the format has
// one.
func (b *blocks) Listed(i int) uint64 {
	s, at, _ := b.find(i)
	return data.MixSum(uint64(at), data.SumOf(fmt.Appendf(nil, "%d %d %d %q %x %x", s.Count, s.Vocabulary, s.TokenBytes,
		s.Tokenizer, s.VocabularySum, s.Sum)))
}

// NewSummer implements [data.Content].
func (b *blocks) NewSummer() (data.Summer, error) { return &blockSummer{b: b}, nil }

type blockSummer struct {
	b        *blocks
	contents []byte
}

// Write implements [io.Writer].
func (s *blockSummer) Write(contents []byte) (int, error) {
	s.contents = append(s.contents, contents...)
	return len(contents), nil
}

// Sum implements [data.Summer].
func (s *blockSummer) Sum(i int) (sum uint64, bytes int, err error) {
	shard, at, n := s.b.find(i)
	s.contents = s.contents[:0]
	if err := shard.hashRange(s, at, n); err != nil { // hash a copy, because a page fault must not occur in a checksum
		return 0, 0, err
	}
	return data.SumOf(s.contents), len(s.contents), nil
}

// Close implements [data.Summer].
func (s *blockSummer) Close() error { return nil }

var _ io.Writer = (*blockSummer)(nil)

// TextContent returns the samples of labelled texts, with their tokens and labels, as units that machines compare.
func TextContent(sets ...*Classification) data.Content { return textContent(sets) }

// textContent is the Content of labelled texts in memory.
type textContent []*Classification

// Len implements [data.Content].
func (t textContent) Len() (n int) {
	for _, set := range t {
		n += set.Len()
	}
	return n
}

// find returns the set and the sample of unit i.
func (t textContent) find(i int) (set, sample int) {
	for i >= t[set].Len() {
		i -= t[set].Len()
		set++
	}
	return set, i
}

// Name implements [data.Content].
func (t textContent) Name(i int) string {
	set, sample := t.find(i)
	return fmt.Sprintf("text %d of file %d", sample+1, set+1)
}

// Listed implements [data.Content]. It covers the whole sample, because all samples are in memory.
func (t textContent) Listed(i int) uint64 {
	sum, _, _ := t.Sum(i) // never fails
	return sum
}

// NewSummer implements [data.Content].
func (t textContent) NewSummer() (data.Summer, error) { return t, nil }

// Sum implements [data.Summer].
func (t textContent) Sum(i int) (sum uint64, bytes int, err error) {
	set, sample := t.find(i)
	line := t[set].appendRow(nil, sample)
	return data.MixSum(uint64(set), data.SumOf(line)), len(line), nil
}

// Close implements [data.Summer].
func (t textContent) Close() error { return nil }
