package weights

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// family describes a kind of model for which Hugging Face's library transformers uses almost the same names.
type family struct {
	kind     string          // model_type in config.json
	classes  string          // prefix of the names of its classes (architectures)
	fields   []string        // settings that together identify the first published config.json files
	settings func() Settings // settings with the defaults of transformers

	prefix string            // prefix of the names of all tensors but the head's; files without a head omit it
	table  string            // name of the token embedding after prefix; identifies models of the family
	heads  []string          // prefixes of names that do not start with prefix
	tied   map[string]string // maps names of copies that transformers may store to the parameter
	ignore *regexp.Regexp    // matches buffers that are not weights
	unused []string          // prefixes of layers that a model may lack
	// layer between the encoder and a classifier, which files of other tasks lack; "": the family has none
	pooler string
}

var families = []family{
	{
		kind: "gpt2", classes: "GPT2", fields: []string{"n_embd"},
		settings: func() Settings { return NewGPT2Settings() },
		prefix:   "transformer.", table: "wte.weight", heads: []string{"lm_head.", "score.", "multiple_choice_head."},
		tied:   map[string]string{"lm_head.weight": "transformer.wte.weight"},
		ignore: regexp.MustCompile(`^transformer\.h\.\d+\.attn\.(masked_)?bias$`),
		unused: []string{"score.", "multiple_choice_head."},
	},
	{
		kind: "bert", classes: "Bert", fields: []string{"hidden_size", "type_vocab_size"},
		settings: func() Settings { return NewBERTSettings() },
		prefix:   "bert.", table: "embeddings.word_embeddings.weight",
		heads: []string{"cls.", "classifier.", "qa_outputs."},
		tied: map[string]string{"cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
			"cls.predictions.decoder.bias": "cls.predictions.bias"},
		ignore: regexp.MustCompile(`^bert\.embeddings\.(position_ids|token_type_ids)$`),
		unused: []string{"cls.seq_relationship.", "cls.predictions.", "bert.pooler.", "qa_outputs."},
		pooler: "bert.pooler",
	},
}

// familyOf returns the family of a model, or nil if it belongs to none.
func familyOf(wanted map[string]bool) *family {
	at := slices.IndexFunc(families, func(f family) bool { return wanted[f.prefix+f.table] })
	if at < 0 {
		return nil
	}
	return &families[at]
}

// adapt converts names of transformers to names of the model. It also returns the copies of tied parameters, by the
// name of the parameter.
func (f *family) adapt(names map[string]string, wanted map[string]bool) (changed, copies map[string]string,
	done []string) {
	changed, copies = maps.Clone(names), map[string]string{}
	if _, bare := names[f.table]; bare {
		clear(changed)
		for name, from := range names {
			if !slices.ContainsFunc(f.heads, func(p string) bool { return strings.HasPrefix(name, p) }) {
				name = f.prefix + name
			}
			changed[name] = from
		}
		done = append(done, fmt.Sprintf("prefix %q added to the names of the network", f.prefix))
	}
	old := 0 // number of names of LayerNorm in the style of the first published files
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		for suffix, to := range map[string]string{".gamma": ".weight", ".beta": ".bias"} {
			layer, ok := strings.CutSuffix(name, suffix)
			if _, taken := changed[layer+to]; ok && !taken && wanted[layer+to] {
				changed[layer+to] = changed[name]
				delete(changed, name)
				old++
			}
		}
	}
	if old > 0 {
		done = append(done, fmt.Sprintf("%d tensors renamed from gamma and beta to weight and bias", old))
	}
	buffers, unused := 0, []string(nil)
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		from, target := changed[name], f.tied[name]
		switch {
		case wanted[name]:
		case target != "" && wanted[target]:
			delete(changed, name)
			if _, both := changed[target]; both {
				copies[target] = from
			} else {
				changed[target] = from
			}
		case f.ignore.MatchString(name):
			delete(changed, name)
			buffers++
		case slices.ContainsFunc(f.unused, func(p string) bool {
			return strings.HasPrefix(name, p) && !anyIn(p, wanted)
		}):
			delete(changed, name)
			unused = append(unused, name)
		}
	}
	if buffers > 0 {
		done = append(done, fmt.Sprintf("%d buffers ignored", buffers))
	}
	if len(unused) > 0 {
		done = append(done, fmt.Sprintf("%d tensors of layers that the model lacks ignored: %s", len(unused),
			some(unused)))
	}
	return changed, copies, done
}

// anyIn reports whether a name starts with prefix.
func anyIn(prefix string, names map[string]bool) bool {
	for name := range names {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// conv1D matches the names of weights that transformers stores as (inputs, outputs).
var conv1D = regexp.MustCompile(`^transformer\.h\.\d+\.(attn\.c_attn|attn\.c_proj|mlp\.c_fc|mlp\.c_proj)\.weight$`)

// Conv1D reports whether transformers stores the tensor with this name transposed, as (inputs, outputs).
func Conv1D(name string) bool { return conv1D.MatchString(name) }

// storesConv1D reports whether a GPT-2 file stores the weights that match conv1D as (inputs, outputs). It decides by
// the shape of c_attn, which has three times as many outputs as inputs. The parameter tensors contains the tensors of
// the file by their names in the model.
func storesConv1D(tensors map[string]checkpoint.Info) bool {
	for name, t := range tensors {
		if strings.HasSuffix(name, ".attn.c_attn.weight") && len(t.Shape) == 2 {
			return t.Shape[1] > t.Shape[0]
		}
	}
	return false
}

// Transpose writes the transpose of a row-major matrix (rows, columns) to dst. The parameter element is the size of a
// number in bytes. dst must have the size of src.
func Transpose(dst, src []byte, rows, columns int, element int64) {
	e := int(element)
	for r := range rows {
		for c := range columns {
			copy(dst[(c*rows+r)*e:][:e], src[(r*columns+c)*e:])
		}
	}
}

// checkCopies compares copies of tied parameters with the parameters. If they differ, the file belongs to a model
// without tied parameters.
func checkCopies(f *checkpoint.File, have map[string]checkpoint.Info, copies map[string]string) error {
	for _, target := range slices.Sorted(maps.Keys(copies)) {
		twin, _ := f.Info(copies[target])
		own := have[target]
		difference := checkpoint.Difference{Name: twin.Name, File: describe(twin), Model: describe(own) + ", tied to " +
			target}
		if twin.DType == own.DType && twin.Shape.Equal(own.Shape) {
			a, b := make([]byte, own.Bytes()), make([]byte, twin.Bytes())
			if err := f.ReadInto(own.Name, a); err != nil {
				return err
			}
			if err := f.ReadInto(twin.Name, b); err != nil {
				return err
			}
			if bytes.Equal(a, b) {
				continue
			}
			difference.File += ", other values than " + own.Name
		}
		return &checkpoint.MismatchError{Path: f.Path(), Differences: []checkpoint.Difference{difference}}
	}
	return nil
}
