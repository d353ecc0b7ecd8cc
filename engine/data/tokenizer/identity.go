package tokenizer

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// Identity states how a tokenizer converts text to tokens. The zero value is an unknown tokenizer. Two tokenizers of
// the same vocabulary size usually give different meanings to a token, so programs compare identities instead of sizes.
type Identity struct {
	Name string // as Tokenizer.Name, or the name in token files of other programs, or Other; "": unknown
	// Sum is a digest of the vocabulary, and of the merges of a byte-pair encoding. It does not cover whether WordPiece
	// keeps capital letters, because the name states this. "": unknown, or Name alone determines the tokens.
	Sum string
}

// Other is the name of a tokenizer that this package does not implement.
const Other = "other"

// Digests of the vocabularies that are part of the program. TestSumsOfBuiltInTokenizers recomputes them.
const (
	gpt2Sum  = "aade2e8cbd8e95ca"
	bytesSum = "348d7a24ab221994"
)

// Unknown is the tokenizer name in old checkpoints, and in token files whose writer did not know the tokenizer.
const Unknown = "unknown"

// IdentityOf returns the identity of the tokenizer with the given name. The parameter vocabulary is the SHA-256 of its
// vocabulary file, or zero if there is no such file.
func IdentityOf(name string, vocabulary [32]byte) Identity {
	name = Named(name)
	if vocabulary == ([32]byte{}) {
		return Identity{Name: name}
	}
	return Identity{Name: name, Sum: hex.EncodeToString(vocabulary[:8])}
}

// Named returns name in the form of Identity.Name: "" if name states that the tokenizer is unknown.
func Named(name string) string {
	if name == Unknown {
		return ""
	}
	return name
}

// Known reports whether the identity states anything.
func (i Identity) Known() bool { return i != Identity{} }

// BuiltIn reports whether the tokenizer is part of the program.
func (i Identity) BuiltIn() bool { return i.Name == "gpt2" || i.Name == "bytes" }

// String describes the tokenizer: "tokenizer wordpiece (vocabulary 07eced375cec144d)".
func (i Identity) String() string {
	switch {
	case !i.Known():
		return "an unknown tokenizer"
	case i.BuiltIn():
		return "tokenizer " + i.Name
	}
	text := "tokenizer " + i.Name
	switch i.Name {
	case "":
		text = "a tokenizer"
	case Other:
		text = "a tokenizer of another program"
	}
	if i.Sum == "" {
		return text
	}
	return text + " (vocabulary " + i.Sum + ")"
}

// Relation is the result of a comparison of two identities.
type Relation int

// The relations.
const (
	Unproved  Relation = iota // an identity is unknown or incomplete
	Equal                     // equal texts have equal tokens
	Different                 // at least one text has other tokens
)

// Compare compares two identities.
func (i Identity) Compare(other Identity) Relation {
	a, b := i.complete(), other.complete()
	switch {
	case a.Name != "" && b.Name != "" && a.Name != b.Name, a.Sum != "" && b.Sum != "" && a.Sum != b.Sum:
		return Different
	case a.Sum != "" && a.Sum == b.Sum, a == b && a.Known():
		return Equal
	}
	return Unproved
}

// complete sets the digest of a vocabulary that is part of the program. Another digest of such a vocabulary has no
// meaning: token files of other programs may contain the digest of a file with the same vocabulary in another form.
func (i Identity) complete() Identity {
	switch {
	case i.Name == "gpt2":
		i.Sum = gpt2Sum
	case i.Name == "bytes":
		i.Sum = bytesSum
	}
	return i
}

// Files of the library transformers that define a byte-pair encoding.
const (
	definitionName = "tokenizer.json"
	vocabularyName = "vocab.json"
	mergesName     = "merges.txt"
	addedName      = "added_tokens.json"
)

// mostDefinitionBytes limits the size of each file that InFolder reads. The largest known files have about 35 MB, and
// parsing takes several times the size of the file in memory.
const mostDefinitionBytes = 64 << 20

// InFolder returns the identity of the byte-pair encoding in a folder of the library transformers. tokenizer.json has
// priority over vocab.json and merges.txt, as in the library. Without these files, or if the kind of the tokenizer is
// unknown, the identity is unknown. If a file is faulty, the error is a *data.Fault.
func InFolder(folder string) (Identity, error) {
	sum, err := sumOfDefinition(filepath.Join(folder, definitionName))
	if errors.Is(err, fs.ErrNotExist) {
		sum, err = sumOfPairs(folder)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Identity{}, nil
	case err != nil, sum == "":
		return Identity{}, err
	case sum == gpt2Sum:
		return Identity{Name: "gpt2"}, nil
	case sum == bytesSum:
		return Identity{Name: "bytes"}, nil
	}
	return Identity{Name: Other, Sum: sum}, nil
}

// stored is the part of tokenizer.json that determines the tokens of a text.
type stored struct {
	AddedTokens  []added         `json:"added_tokens"`
	Normalizer   json.RawMessage `json:"normalizer"`
	PreTokenizer json.RawMessage `json:"pre_tokenizer"`
	Model        json.RawMessage `json:"model"`
}

// kind returns the type of the model, or "" if the type is unknown. Files of old versions of the library tokenizers do
// not state the type. The library then infers it from the keys, and so does kind.
func (d *stored) kind() string {
	var model map[string]json.RawMessage
	if json.Unmarshal(d.Model, &model) != nil {
		return ""
	}
	if raw, stated := model["type"]; stated {
		var kind string
		if json.Unmarshal(raw, &kind) != nil {
			return ""
		}
		return kind
	}
	has := func(key string) bool { _, ok := model[key]; return ok }
	vocabulary := bytes.TrimSpace(model["vocab"])
	switch {
	case has("merges"):
		return kindPairs
	case has("continuing_subword_prefix"):
		return "WordPiece"
	case bytes.HasPrefix(vocabulary, []byte("[")):
		return "Unigram"
	case bytes.HasPrefix(vocabulary, []byte("{")) && has("unk_token"):
		return "WordLevel"
	}
	return ""
}

// kindPairs is the type of a byte-pair encoding.
const kindPairs = "BPE"

// storedPairs is the model in tokenizer.json if it is a byte-pair encoding.
type storedPairs struct {
	Dropout      *float64          `json:"dropout"`
	Prefix       string            `json:"continuing_subword_prefix"`
	Suffix       string            `json:"end_of_word_suffix"`
	IgnoreMerges bool              `json:"ignore_merges"`
	Vocabulary   map[string]int64  `json:"vocab"`
	Merges       []json.RawMessage `json:"merges"` // "a b", or ["a", "b"]
}

// storedLevel is the pre-tokenizer in tokenizer.json if it is that of GPT-2.
type storedLevel struct {
	Type     string `json:"type"`
	AddSpace bool   `json:"add_prefix_space"`
	Words    *bool  `json:"use_regex"` // default: true
}

// sumOfDefinition returns the digest of a tokenizer.json. Byte-pair encodings of bytes have the same digest as their
// vocab.json and merges.txt. The digest is "" if the kind of the tokenizer is unknown.
func sumOfDefinition(path string) (string, error) {
	var d stored
	if err := readJSON(path, &d); err != nil {
		return "", err
	}
	kind := d.kind()
	if kind == "" {
		return "", nil
	}
	if kind == kindPairs {
		p, ok := d.pairs()
		if ok && len(p.tokens) == 0 {
			return "", faultyDefinition(path, errNoVocabulary)
		}
		if ok {
			p.add(d.AddedTokens)
			return p.sum(), nil
		}
	}
	// The order of the keys of an object depends on the program that wrote the file.
	var parts []any
	for _, raw := range []json.RawMessage{d.Normalizer, d.PreTokenizer, d.Model} {
		var part any
		if len(raw) > 0 {
			if err := json.Unmarshal(raw, &part); err != nil {
				return "", faultyDefinition(path, err)
			}
		}
		parts = append(parts, part)
	}
	for _, t := range d.AddedTokens {
		if !t.Special {
			parts = append(parts, t.ID, t.Content)
		}
	}
	sum := sha256.Sum256(encoded(parts))
	return hex.EncodeToString(sum[:8]), nil
}

var errNoVocabulary = errors.New("got no tokens, want a vocabulary")

// pairs returns the byte-pair encoding of a tokenizer.json, without its added tokens. The result ok is false if the
// encoding differs from that of GPT-2 in more than vocabulary and merges.
func (d *stored) pairs() (p pairs, ok bool) {
	var model storedPairs
	var level storedLevel
	if json.Unmarshal(d.Model, &model) != nil || json.Unmarshal(d.PreTokenizer, &level) != nil ||
		model.Dropout != nil && *model.Dropout != 0 || model.Prefix != "" || model.Suffix != "" || model.IgnoreMerges ||
		level.Type != "ByteLevel" || len(d.Normalizer) > 0 && string(d.Normalizer) != "null" {
		return p, false
	}
	p = pairs{tokens: model.Vocabulary, addSpace: level.AddSpace, words: level.Words == nil || *level.Words}
	for _, raw := range model.Merges {
		var text string
		var both []string
		if json.Unmarshal(raw, &both) == nil && len(both) == 2 {
			text = both[0] + " " + both[1]
		} else if json.Unmarshal(raw, &text) != nil {
			return p, false
		}
		p.merges = append(p.merges, text)
	}
	return p, true
}

// add adds the ordinary tokens to the vocabulary, and removes the special ones, because text never becomes a special
// token.
func (p pairs) add(tokens []added) {
	for _, t := range tokens {
		if t.Special {
			delete(p.tokens, t.Content)
		} else {
			p.tokens[t.Content] = int64(t.ID)
		}
	}
}

// sumOfPairs returns the digest of vocab.json and merges.txt.
func sumOfPairs(folder string) (string, error) {
	p := pairs{words: true}
	if err := readJSON(filepath.Join(folder, vocabularyName), &p.tokens); err != nil {
		return "", err
	}
	path := filepath.Join(folder, mergesName)
	text, err := regular.Read(path, mostDefinitionBytes)
	if err != nil {
		return "", faultyDefinition(path, err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if line := lines.Text(); line != "" && !strings.HasPrefix(line, "#version") {
			p.merges = append(p.merges, line)
		}
	}
	if err := lines.Err(); err != nil {
		return "", faultyDefinition(path, err)
	}
	if len(p.tokens) == 0 {
		return "", faultyDefinition(filepath.Join(folder, vocabularyName), errNoVocabulary)
	}
	var settings struct {
		AddSpace bool `json:"add_prefix_space"`
	}
	more := map[string]int64{}
	err = errors.Join(unlessMissing(readJSON(filepath.Join(folder, configName), &settings)),
		unlessMissing(readJSON(filepath.Join(folder, addedName), &more)))
	if err != nil {
		return "", err
	}
	p.addSpace = settings.AddSpace
	for token, id := range more { // the file does not state which tokens are special
		if !strings.HasPrefix(token, "<") && !strings.HasPrefix(token, "[") {
			p.tokens[token] = id
		}
	}
	return p.sum(), nil
}

// pairs is a byte-pair encoding of bytes.
type pairs struct {
	tokens   map[string]int64 // with the visible characters of GPT-2's files
	merges   []string         // "a b"
	addSpace bool             // a text begins with a space
	words    bool             // merges do not cross the words of GPT-2
}

// sum returns the digest. It leaves out the end-of-text token, which some files list as a special token only.
func (p pairs) sum() string {
	delete(p.tokens, endOfTextName)
	h := sha256.New()
	fmt.Fprintf(h, "%v %v\n", p.addSpace, p.words && len(p.merges) > 0)
	for _, token := range slices.SortedFunc(maps.Keys(p.tokens), func(a, b string) int {
		return cmp.Or(cmp.Compare(p.tokens[a], p.tokens[b]), strings.Compare(a, b))
	}) {
		fmt.Fprintf(h, "%d %q\n", p.tokens[token], token)
	}
	for _, merge := range p.merges {
		fmt.Fprintf(h, "%q\n", merge)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// readJSON parses a file. If the file is faulty or cannot be read, the error is a *data.Fault.
func readJSON(path string, to any) error {
	text, err := regular.Read(path, mostDefinitionBytes)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		return faultyDefinition(path, err)
	}
	return nil
}

func faultyDefinition(path string, err error) error {
	return &data.Fault{Op: "read tokenizer", Path: path, Index: -1, Err: err,
		Advice: "want the files of a tokenizer of the library transformers: copy them again, or remove them"}
}

func unlessMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
