package tokens

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// Corpus joins one or several shards to one sequence of tokens. All methods except Close are safe for concurrent use.
type Corpus struct {
	Shards []*Shard
	starts []int64 // position of the first token of each shard, then the number of all tokens
}

// OpenCorpus opens shards and joins them in the given order. All shards must come from the same tokenizer. The
// argument vocabulary has the same meaning as in Open.
func OpenCorpus(paths []string, vocabulary int) (*Corpus, error) {
	if len(paths) == 0 {
		return nil, errors.New("open token shards: no paths")
	}
	c := &Corpus{starts: []int64{0}}
	for _, path := range paths {
		s, err := Open(path, vocabulary)
		if err == nil {
			c.Shards = append(c.Shards, s)
			c.starts = append(c.starts, c.Len()+s.Count)
			err = sameTokenizer(c.Shards[0], s)
		}
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

func sameTokenizer(a, b *Shard) error {
	if a.Tokenizer == b.Tokenizer && a.Vocabulary == b.Vocabulary && a.VocabularySum == b.VocabularySum && a.EndOfText == b.EndOfText {
		return nil
	}
	return fault("open token shard", b.Path, "", fmt.Errorf("got tokenizer %s, want the tokenizer of %q: %s", describe(&b.Header), a.Path, describe(&a.Header)))
}

func describe(h *Header) string {
	return fmt.Sprintf("%q with %d tokens, end of text %d, vocabulary file %x", h.Tokenizer, h.Vocabulary, h.EndOfText, h.VocabularySum[:4])
}

// Len returns the number of tokens.
func (c *Corpus) Len() int64 { return c.starts[len(c.starts)-1] }

// EndOfText returns the token that ends a document, or NoToken if the headers contain no such token.
func (c *Corpus) EndOfText() int32 { return c.Shards[0].EndOfText }

// Close closes all shards.
func (c *Corpus) Close() error {
	var errs []error
	for _, s := range c.Shards {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// Read copies the tokens from position at to at+len(dst)-1. The range may span several shards. A successful Read does
// not allocate.
func (c *Corpus) Read(at int64, dst []int32) error {
	if at < 0 || at > c.Len()-int64(len(dst)) {
		return fmt.Errorf("read tokens %d to %d of %d", at, at+int64(len(dst)), c.Len())
	}
	i := sort.Search(len(c.Shards), func(i int) bool { return c.starts[i+1] > at })
	for len(dst) > 0 {
		n := min(int64(len(dst)), c.starts[i+1]-at)
		if err := c.Shards[i].Read(at-c.starts[i], dst[:n]); err != nil {
			return err
		}
		at, dst = at+n, dst[n:]
		i++
	}
	return nil
}

// Found lists the shards at a path.
type Found struct{ Train, Eval []string }

// Find lists the shards at path. path is a shard, a pattern such as "shards/train-*.bin", or a folder. In a folder,
// files named *train*.bin are for training, and files named *val*.bin are for evaluation. hetero-train, llm.c and
// nanoGPT use these names.
func Find(path string) (Found, error) {
	info, err := os.Stat(path)
	if err != nil && strings.ContainsAny(path, "*?[") {
		return findPattern(path)
	}
	if err != nil {
		return Found{}, fault("find token shards", path, "", err)
	}
	if !info.IsDir() {
		return Found{Train: []string{path}}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return Found{}, fault("find token shards", path, "", err)
	}
	var f Found
	for _, e := range entries { // os.ReadDir sorts the entries by name
		name := e.Name()
		switch {
		case !strings.HasSuffix(name, ".bin"):
		case strings.Contains(name, "train"):
			f.Train = append(f.Train, filepath.Join(path, name))
		case strings.Contains(name, "val"):
			f.Eval = append(f.Eval, filepath.Join(path, name))
		}
	}
	if f.Train == nil && f.Eval == nil {
		return Found{}, fault("find token shards", path, "write them with hetero-train data tokenize", errors.New("no files named *train*.bin or *val*.bin"))
	}
	return f, nil
}

func findPattern(pattern string) (Found, error) {
	paths, err := filepath.Glob(pattern)
	if err == nil && len(paths) == 0 {
		err = errors.New("no file has such a name")
	}
	if err != nil {
		return Found{}, fault("find token shards", pattern, "", err)
	}
	slices.Sort(paths)
	return Found{Train: paths}, nil
}
