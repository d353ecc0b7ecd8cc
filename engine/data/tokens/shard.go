package tokens

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// Shard is a memory-mapped file of tokens. All methods except Close are safe for concurrent use.
type Shard struct {
	Header
	Path   string
	mapped []byte // contents of the file
	tokens []byte // part of mapped that contains the tokens
	limit  uint32 // vocabulary size; all tokens are smaller
}

// OpenOptions configures the reading of shards.
type OpenOptions struct {
	// Vocabulary is the vocabulary size that the caller supports, for example the number of rows of an embedding table.
	// 0 means the vocabulary size in the header. Open returns an error if the header has a larger vocabulary.
	Vocabulary int
	// TokenBytes is the size of a token in files without a header, 2 or 4. 0 means 2. Open returns an error if the file
	// clearly contains tokens of another size.
	TokenBytes int
	// LeftOut, if not nil, makes OpenCorpus leave out damaged shards, and receives a description of each.
	LeftOut *[]data.LeftOut
}

// Open maps the shard at path and checks its header. If there is a header, Open does not read the tokens. Read checks
// the tokens that it returns, and Verify checks all tokens.
func (o OpenOptions) Open(path string) (*Shard, error) {
	f, info, err := regular.Open(path)
	if err != nil {
		return nil, fault("open token shard", path, "", err)
	}
	defer f.Close() // the mapping remains valid after the file is closed
	head := make([]byte, min(info.Size(), llmcBytes))
	if _, err := io.ReadFull(f, head); err != nil {
		return nil, damaged("read header of token shard", path, err)
	}
	width := 0
	if strings.HasSuffix(path, ".bin") {
		width = cmp.Or(o.TokenBytes, 2)
	}
	h, err := parseHeader(head, info.Size(), width)
	if err == nil && h.Format == FormatNanoGPT {
		err = checkWidth(f, info.Size(), width, o.Vocabulary)
	}
	if err != nil {
		return nil, damaged("read header of token shard", path, err)
	}
	vocabulary := o.Vocabulary
	s := &Shard{Header: h, Path: path, limit: uint32(mostTokens(h.TokenBytes))}
	switch {
	case h.Vocabulary == 0 && vocabulary > 0:
		s.limit = uint32(vocabulary)
	case vocabulary > 0 && h.Vocabulary > vocabulary:
		return nil, fault("open token shard", path,
			"choose a model with the vocabulary of the tokenizer, or tokenise the text again",
			fmt.Errorf("tokenizer %q has %d tokens, want at most the %d of the model", h.Tokenizer, h.Vocabulary,
				vocabulary))
	case h.Vocabulary > 0:
		s.limit = uint32(h.Vocabulary)
	}
	if int64(int(info.Size())) != info.Size() {
		return nil, fault("map token shard", path, "",
			fmt.Errorf("the file has %d bytes, which do not fit into the address space", info.Size()))
	}
	s.mapped, err = platform.Map(f, int(info.Size()))
	if err != nil {
		return nil, fault("map token shard", path, "", err)
	}
	s.tokens = s.mapped[h.start():]
	return s, nil
}

// Close unmaps the file.
func (s *Shard) Close() error {
	mapped := s.mapped
	s.mapped, s.tokens = nil, nil
	if mapped == nil {
		return nil
	}
	return platform.Unmap(mapped)
}

// Read copies the tokens from position at to at+len(dst)-1 to dst. The range must be within the shard. A successful
// Read does not allocate. The error is a *data.Fault if a token is outside the vocabulary, or if the file was truncated
// after Open.
func (s *Shard) Read(at int64, dst []int32) (err error) {
	if at < 0 || at > s.Count-int64(len(dst)) {
		return fault("read token shard", s.Path, "",
			fmt.Errorf("tokens %d to %d of %d", at, at+int64(len(dst)), s.Count))
	}
	// Access to a page beyond the end of a truncated file raises SIGBUS. Without this setting, SIGBUS would end the
	// process.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer s.onPageFault(&err)
	if most := s.decode(at, dst); most < s.limit {
		return nil
	}
	for i, t := range dst {
		if uint32(t) >= s.limit {
			return s.beyond(at+int64(i), uint32(t))
		}
	}
	return nil
}

var errTruncated = errors.New("the file was truncated while it was open, or its disk failed")

// onPageFault must be deferred around access to the mapped file. It turns the panic of a failed access into an error.
func (s *Shard) onPageFault(err *error) {
	p := recover()
	if p == nil {
		return
	}
	if _, memory := p.(interface{ Addr() uintptr }); !memory {
		panic(p)
	}
	*err = fault("read token shard", s.Path, "", errTruncated)
}

func (s *Shard) beyond(at int64, token uint32) error {
	return fault("read token shard", s.Path, "tokenise the text again, or choose a model with a larger vocabulary",
		fmt.Errorf("token %d (byte %d of the file) is %d, want below %d", at, s.start()+at*int64(s.TokenBytes), token,
			s.limit))
}

// decode copies tokens to dst and returns the largest token.
func (s *Shard) decode(at int64, dst []int32) (most uint32) {
	if s.TokenBytes == 2 {
		src := s.tokens[2*at:][:2*len(dst)]
		for i := range dst {
			v := uint32(src[2*i]) | uint32(src[2*i+1])<<8
			dst[i], most = int32(v), max(most, v)
		}
		return most
	}
	src := s.tokens[4*at:][:4*len(dst)]
	for i := range dst {
		b := src[4*i : 4*i+4]
		v := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
		dst[i], most = int32(v), max(most, v)
	}
	return most
}

// Summary is the result of Shard.Verify.
type Summary struct {
	Largest   int32 // largest token
	Documents int64 // number of end-of-text tokens
}

// Verify reads all tokens, and checks their values against the vocabulary size, and their SHA-256 against the header.
func (s *Shard) Verify(ctx context.Context) (Summary, error) {
	var sum Summary
	hash := sha256.New()
	block := make([]int32, 1<<16)
	for at := int64(0); at < s.Count; at += int64(len(block)) {
		if err := ctx.Err(); err != nil {
			return sum, err
		}
		block = block[:min(int64(len(block)), s.Count-at)]
		if err := s.Read(at, block); err != nil {
			return sum, err
		}
		for _, t := range block {
			sum.Largest = max(sum.Largest, t)
			if t == s.EndOfText {
				sum.Documents++
			}
		}
		if err := s.hashRange(hash, at, len(block)); err != nil {
			return sum, err
		}
	}
	if s.Format != FormatOwn {
		return sum, nil
	}
	if got := [32]byte(hash.Sum(nil)); got != s.Sum {
		return sum, fault("verify token shard", s.Path, "copy the file, or tokenise the text, again",
			fmt.Errorf("tokens: got SHA-256 %x, want %x as in the header", got, s.Sum))
	}
	if s.EndOfText != NoToken && sum.Documents != s.Documents {
		return sum, fault("verify token shard", s.Path, "tokenise the text again",
			fmt.Errorf("got %d end-of-document tokens, want %d as in the header", sum.Documents, s.Documents))
	}
	return sum, nil
}

// hashRange writes n tokens as stored to w, beginning with the token at position at.
func (s *Shard) hashRange(w io.Writer, at int64, n int) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer s.onPageFault(&err)
	size := int64(s.TokenBytes)
	_, err = w.Write(s.tokens[at*size : (at+int64(n))*size])
	return err
}

// damaged returns the *data.Fault of a damaged file.
func damaged(op, path string, err error) error {
	f := data.FileFault(op, path, err)
	f.Damaged = data.IsDamage(err)
	return f
}

// fault returns err as the Fault of an operation on a shard. An error that is already a Fault is returned unchanged.
func fault(op, path, advice string, err error) error {
	var already *data.Fault
	if errors.As(err, &already) {
		return err
	}
	f := data.FileFault(op, path, err)
	f.Advice = advice
	return f
}
