package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Export describes the files that the Python library transformers needs to load a tokenizer.
type Export struct {
	Positions int  // largest number of tokens of a text
	Framed    bool // a text is [CLS] text [SEP], a pair is [CLS] text [SEP] text [SEP], as for BERT; WordPiece only
}

// Files returns the contents of the files by name. All tokenizers have tokenizer.json and tokenizer_config.json.
// WordPiece also has vocab.txt, and byte-pair encodings also have vocab.json and merges.txt. With these files,
// transformers recognises the tokenizer.
func (e Export) Files(t Tokenizer) (map[string][]byte, error) {
	switch t := t.(type) {
	case *WordPiece:
		return e.wordPiece(t), nil
	case *gpt2:
		return e.bytePairs(t.bytes, t.merges(), "GPT2Tokenizer", true), nil
	case byteTokenizer:
		single := make([]string, bytesEndOfText)
		for b := range single {
			single[b] = string([]byte{byte(b)})
		}
		return e.bytePairs(single, nil, "PreTrainedTokenizerFast", false), nil
	}
	return nil, fmt.Errorf("transformers has no form of tokenizer %s", t.Name())
}

// definition is the content of tokenizer.json.
type definition struct {
	Version       string  `json:"version"`
	Truncation    any     `json:"truncation"`
	Padding       any     `json:"padding"`
	AddedTokens   []added `json:"added_tokens"`
	Normalizer    any     `json:"normalizer"`
	PreTokenizer  any     `json:"pre_tokenizer"`
	PostProcessor any     `json:"post_processor"`
	Decoder       any     `json:"decoder"`
	Model         object  `json:"model"`
}

type object = map[string]any

// added is a special token.
type added struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

func special(id int32, content string) added { return added{ID: id, Content: content, Special: true} }

func (e Export) wordPiece(w *WordPiece) map[string][]byte {
	s := w.Specials
	named := []added{special(s.Pad, "[PAD]"), special(s.Unknown, "[UNK]"), special(s.Class, "[CLS]"),
		special(s.Separator, "[SEP]"), special(s.Mask, "[MASK]")}
	d := definition{Version: "1.0", AddedTokens: named,
		Normalizer: object{"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
			"strip_accents": nil, "lowercase": !w.cased},
		PreTokenizer: object{"type": "BertPreTokenizer"},
		Decoder:      object{"type": "WordPiece", "prefix": pieceMark, "cleanup": true},
		Model: object{"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": pieceMark,
			"max_input_chars_per_word": mostWordRunes,
			"vocab":                    numbered(w.words)}}
	settings := object{"do_lower_case": !w.cased, "strip_accents": nil, "tokenize_chinese_chars": true,
		"model_max_length": e.Positions,
		"pad_token":        "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]",
		"mask_token":      "[MASK]",
		"tokenizer_class": "PreTrainedTokenizerFast"}
	if e.Framed {
		settings["tokenizer_class"] = "BertTokenizer"
		token := func(name string, segment int) object {
			return object{"SpecialToken": object{"id": name, "type_id": segment}}
		}
		text := func(name string, segment int) object {
			return object{"Sequence": object{"id": name, "type_id": segment}}
		}
		single := []object{token("[CLS]", 0), text("A", 0), token("[SEP]", 0)}
		d.PostProcessor = object{"type": "TemplateProcessing", "single": single,
			"pair": append(single[:3:3], text("B", 1), token("[SEP]", 1)),
			"special_tokens": object{
				"[CLS]": object{"id": "[CLS]", "ids": []int32{s.Class}, "tokens": []string{"[CLS]"}},
				"[SEP]": object{"id": "[SEP]", "ids": []int32{s.Separator}, "tokens": []string{"[SEP]"}}}}
	}
	return map[string][]byte{"tokenizer.json": encoded(d), configName: encoded(settings),
		"vocab.txt": []byte(strings.Join(w.words, "\n") + "\n")}
}

// bytePairs returns the files of a byte-pair encoding. The parameter tokens contains the bytes of each token, without
// the end-of-text token. If words is true, merges do not cross word boundaries, as in GPT-2.
func (e Export) bytePairs(tokens []string, merges [][2]string, class string, words bool) map[string][]byte {
	visible := make([]string, len(tokens), len(tokens)+1)
	for i, t := range tokens {
		visible[i] = byteNames(t)
	}
	pairs := make([]string, len(merges))
	for i, m := range merges {
		pairs[i] = byteNames(m[0]) + " " + byteNames(m[1])
	}
	level := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": words}
	d := definition{Version: "1.0", AddedTokens: []added{special(int32(len(tokens)), endOfTextName)},
		PreTokenizer: level, Decoder: level,
		Model: object{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": "",
			"end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false,
			"vocab": numbered(append(visible, endOfTextName)), "merges": pairs}}
	settings := object{"add_prefix_space": false, "model_max_length": e.Positions, "tokenizer_class": class,
		"bos_token": endOfTextName, "eos_token": endOfTextName, "unk_token": endOfTextName}
	return map[string][]byte{"tokenizer.json": encoded(d), configName: encoded(settings),
		"vocab.json": numbered(append(visible, endOfTextName)),
		"merges.txt": []byte("#version: 0.2\n" + strings.Join(pairs, "\n") + "\n")}
}

// merges returns, for each token of more than one byte, the two tokens whose merge is this token. Only tokens with
// smaller numbers are used to build it, because their merges come first.
func (g *gpt2) merges() (merges [][2]string) {
	for i, token := range g.bytes {
		if len(token) < 2 {
			continue
		}
		parts := strings.Split(token, "")
		if len(parts) != len(token) { // Split keeps the bytes of a character together
			parts = parts[:0]
			for b := range len(token) {
				parts = append(parts, token[b:b+1])
			}
		}
		for len(parts) > 2 {
			best, at := int32(i), -1
			for p := range len(parts) - 1 {
				if t, ok := g.token[parts[p]+parts[p+1]]; ok && t < best {
					best, at = t, p
				}
			}
			if at < 0 {
				panic(fmt.Sprintf("the embedded vocabulary of GPT-2 has no merges for token %d", i))
			}
			parts = append(append(parts[:at:at], parts[at]+parts[at+1]), parts[at+2:]...)
		}
		merges = append(merges, [2]string{parts[0], parts[1]})
	}
	return merges
}

// byteNames returns bytes as the visible characters that GPT-2's files use. Printable characters of Latin-1 represent
// themselves. The characters from U+0100 on represent all other bytes.
func byteNames(bytes string) string {
	var b strings.Builder
	for i := range len(bytes) {
		b.WriteRune(byteName[bytes[i]])
	}
	return b.String()
}

var byteName = func() (names [256]rune) {
	next := rune(0x100)
	for b := range names {
		if r := rune(b); '!' <= r && r <= '~' || '¡' <= r && r <= '¬' || '®' <= r && r <= 'ÿ' {
			names[b] = r
		} else {
			names[b] = next
			next++
		}
	}
	return names
}()

// numbered returns a JSON object that maps each text to its index, in the order of the indices.
func numbered(texts []string) json.RawMessage {
	out := []byte{'{'}
	for i, text := range texts {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, encoded(text)...)
		out = fmt.Appendf(out, ":%d", i)
	}
	return append(out, '}')
}

func encoded(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types contain only strings, numbers and lists
	}
	return text
}
