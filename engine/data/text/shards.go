package text

import (
	"fmt"
	"path/filepath"

	"github.com/hetero-train/hetero-train/engine/data/tokens"
)

// part writes the shards of one part, training or evaluation.
type part struct {
	*splits
	o    *Options
	name string
	w    *tokens.Writer // nil before the first token of a shard
}

func (p *part) file() string { return fmt.Sprintf("%s-%06d.bin", p.name, len(p.Done)) }

func (p *part) header() tokens.Header {
	t := p.o.Tokenizer
	return tokens.Header{Tokenizer: t.Name(), Vocabulary: t.Vocabulary(), EndOfText: t.EndOfText(),
		VocabularySum: t.VocabularySum()}
}

// resume opens the unfinished shard of an earlier call.
func (p *part) resume() (err error) {
	if p.Tokens > 0 {
		p.w, err = tokens.Resume(filepath.Join(p.o.Folder, p.file()), p.header(), p.Tokens, p.Documents)
	}
	return err
}

func (p *part) append(list []int32) (err error) {
	for len(list) > 0 {
		if p.w == nil {
			if p.w, err = tokens.Create(filepath.Join(p.o.Folder, p.file()), p.header()); err != nil {
				return err
			}
		}
		n := min(int64(len(list)), p.o.ShardTokens-p.w.Count())
		if err := p.w.Append(list[:n]); err != nil {
			return err
		}
		list = list[n:]
		p.Tokens, p.Documents = p.w.Count(), p.w.Documents()
		if p.Tokens == p.o.ShardTokens {
			if err := p.finish(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *part) sync() error {
	if p.w == nil {
		return nil
	}
	return p.w.Sync()
}

// finish completes the current shard, if there is one.
func (p *part) finish() error {
	if p.w == nil {
		return nil
	}
	name := p.file()
	h, err := p.w.Finish()
	p.w = nil
	if err != nil {
		return err
	}
	p.Done = append(p.Done,
		Shard{File: name, Tokens: h.Count, Documents: h.Documents, SHA256: fmt.Sprintf("%x", h.Sum)})
	p.Tokens, p.Documents = 0, 0
	return nil
}

// close closes an unfinished shard. A later call continues the shard.
func (p *part) close() {
	if p.w != nil {
		p.w.Close() // errors have no effect: the journal counts only durable tokens
	}
}
