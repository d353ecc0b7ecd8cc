package weights

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/data/pyjson"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// SettingsFile is the name of the file in which transformers stores the settings of a model.
const SettingsFile = "config.json"

const mostSettingsBytes = 1 << 20

// Settings contains the contents of config.json, for a row of families.
type Settings interface {
	// Model is the value of model.name for weights with these settings if no key selects a model.
	Model() string
	// WordPiece reports whether the tokenizer is a WordPiece vocabulary, vocab.txt, with special tokens around each
	// text.
	WordPiece() bool
	// SetTokens stores the numbers of the special tokens; pad is nil if the tokenizer has no token for padding.
	SetTokens(end int, pad *int)

	check() error
}

// Classifier is implemented by Settings of models that may classify texts.
type Classifier interface {
	Settings
	Classifies() bool      // whether the settings are those of a classifier
	Classes() []string     // names of the classes by number, or nil if the settings have none
	SetClasses(n []string) // makes the settings those of a classifier

	checkProblem(path string) error
}

// GPT2Settings contains the settings of a GPT2LMHeadModel of transformers. Fields have the names of transformers.
type GPT2Settings struct {
	Architectures        []string `json:"architectures"`
	ModelType            string   `json:"model_type"` // "gpt2"
	VocabSize            int      `json:"vocab_size"`
	NPositions           int      `json:"n_positions"`
	NEmbd                int      `json:"n_embd"`
	NLayer               int      `json:"n_layer"`
	NHead                int      `json:"n_head"`
	NInner               *int     `json:"n_inner"` // null: 4·n_embd
	ActivationFunction   string   `json:"activation_function"`
	LayerNormEpsilon     float64  `json:"layer_norm_epsilon"`
	ScaleAttnWeights     bool     `json:"scale_attn_weights"`
	ScaleAttnByLayer     bool     `json:"scale_attn_by_inverse_layer_idx"`
	ReorderAndUpcastAttn bool     `json:"reorder_and_upcast_attn"`
	AddCrossAttention    bool     `json:"add_cross_attention"`
	TieWordEmbeddings    bool     `json:"tie_word_embeddings"`
	EmbdPdrop            float64  `json:"embd_pdrop"`
	AttnPdrop            float64  `json:"attn_pdrop"`
	ResidPdrop           float64  `json:"resid_pdrop"`
	BOSTokenID           *int     `json:"bos_token_id"` // null: none
	EOSTokenID           *int     `json:"eos_token_id"`
}

// BERTSettings contains the settings of a BertForMaskedLM, BertForPreTraining or BertForSequenceClassification of
// transformers.
type BERTSettings struct {
	Architectures          []string `json:"architectures"`
	ModelType              string   `json:"model_type"` // "bert"
	VocabSize              int      `json:"vocab_size"`
	MaxPositionEmbeddings  int      `json:"max_position_embeddings"`
	TypeVocabSize          int      `json:"type_vocab_size"`
	HiddenSize             int      `json:"hidden_size"`
	NumHiddenLayers        int      `json:"num_hidden_layers"`
	NumAttentionHeads      int      `json:"num_attention_heads"`
	IntermediateSize       int      `json:"intermediate_size"`
	HiddenAct              string   `json:"hidden_act"`
	LayerNormEps           float64  `json:"layer_norm_eps"`
	PositionEmbeddingType  string   `json:"position_embedding_type"`
	IsDecoder              bool     `json:"is_decoder"`
	TieWordEmbeddings      bool     `json:"tie_word_embeddings"`
	HiddenDropoutProb      float64  `json:"hidden_dropout_prob"`
	AttentionProbsDropProb float64  `json:"attention_probs_dropout_prob"`
	PadTokenID             *int     `json:"pad_token_id,omitempty"` // nil: 0

	// for a BertForSequenceClassification: the names of the classes by number, and the numbers by name
	ID2Label    labels       `json:"id2label,omitempty"`
	Label2ID    labelNumbers `json:"label2id,omitempty"`
	ProblemType string       `json:"problem_type,omitempty"` // "" or "single_label_classification"
}

// Model implements [Settings].
func (*GPT2Settings) Model() string { return "gpt2" }

// WordPiece implements [Settings].
func (*GPT2Settings) WordPiece() bool { return false }

// SetTokens implements [Settings].
func (s *GPT2Settings) SetTokens(end int, _ *int) {
	begin := end
	s.BOSTokenID, s.EOSTokenID = &begin, &end
}

// Model implements [Settings].
func (*BERTSettings) Model() string { return "bert_base" }

// WordPiece implements [Settings].
func (*BERTSettings) WordPiece() bool { return true }

// SetTokens implements [Settings].
func (s *BERTSettings) SetTokens(_ int, pad *int) {
	if pad != nil {
		s.PadTokenID = pad
	}
}

// Classes implements [Classifier].
func (s *BERTSettings) Classes() []string { return s.ID2Label }

// labels are the names of classes by number. In JSON they are an object with the numbers as keys. transformers also
// reads a list.
type labels []string

// UnmarshalJSON implements [json.Unmarshaler]. Unless the text contains exactly one name for each number from 0 on, the
// result is nil.
func (l *labels) UnmarshalJSON(text []byte) error {
	*l = nil
	var list []string
	if json.Unmarshal(text, &list) == nil {
		*l = list
		return nil
	}
	var names map[string]string
	if json.Unmarshal(text, &names) != nil {
		return nil
	}
	for i := range len(names) {
		name, ok := names[strconv.Itoa(i)]
		if !ok {
			return nil
		}
		list = append(list, name)
	}
	*l = list
	return nil
}

// MarshalJSON implements [json.Marshaler].
func (l labels) MarshalJSON() ([]byte, error) {
	names := map[string]string{}
	for i, name := range l {
		names[strconv.Itoa(i)] = name
	}
	return json.Marshal(names)
}

// labelNumbers are the numbers of classes by name. They are written for transformers, but not read, because
// transformers itself uses id2label.
type labelNumbers map[string]int

// UnmarshalJSON implements [json.Unmarshaler].
func (*labelNumbers) UnmarshalJSON([]byte) error { return nil }

// Classifies implements [Classifier].
func (s *BERTSettings) Classifies() bool {
	return slices.Contains(s.Architectures, bertClassifier)
}

// SetPreTraining makes the settings those of a BertForPreTraining, which also predicts the next sentence.
func (s *BERTSettings) SetPreTraining() { s.Architectures = []string{"BertForPreTraining"} }

const bertClassifier = "BertForSequenceClassification"

// SetClasses makes the settings those of a BertForSequenceClassification with the given class names.
func (s *BERTSettings) SetClasses(names []string) {
	s.Architectures, s.ID2Label, s.Label2ID = []string{bertClassifier}, names, labelNumbers{}
	for i, name := range names {
		s.Label2ID[name] = i
	}
}

// NewGPT2Settings returns settings with the defaults of transformers.
func NewGPT2Settings() *GPT2Settings {
	return &GPT2Settings{Architectures: []string{"GPT2LMHeadModel"}, ModelType: "gpt2", VocabSize: 50257,
		NPositions: 1024, NEmbd: 768, NLayer: 12, NHead: 12,
		ActivationFunction: "gelu_new", LayerNormEpsilon: 1e-5, ScaleAttnWeights: true, TieWordEmbeddings: true,
		EmbdPdrop: 0.1, AttnPdrop: 0.1, ResidPdrop: 0.1}
}

// NewBERTSettings returns settings with the defaults of transformers.
func NewBERTSettings() *BERTSettings {
	return &BERTSettings{Architectures: []string{"BertForMaskedLM"}, ModelType: "bert", VocabSize: 30522,
		MaxPositionEmbeddings: 512, TypeVocabSize: 2, HiddenSize: 768,
		NumHiddenLayers: 12, NumAttentionHeads: 12, IntermediateSize: 3072, HiddenAct: "gelu", LayerNormEps: 1e-12,
		PositionEmbeddingType: "absolute",
		TieWordEmbeddings:     true, HiddenDropoutProb: 0.1, AttentionProbsDropProb: 0.1}
}

func (s *GPT2Settings) check() error {
	if s.NInner != nil && *s.NInner == 4*s.NEmbd {
		s.NInner = nil
	}
	s.ActivationFunction = activation(s.ActivationFunction)
	if s.NInner != nil {
		if err := wantPositive(map[string]int{"n_inner": *s.NInner}); err != nil {
			return err
		}
	}
	return wantPositive(map[string]int{"vocab_size": s.VocabSize, "n_positions": s.NPositions, "n_embd": s.NEmbd,
		"n_layer": s.NLayer, "n_head": s.NHead})
}

// Inner returns the number of channels of the feed-forward layers.
func (s *GPT2Settings) Inner() int {
	if s.NInner == nil {
		return 4 * s.NEmbd
	}
	return *s.NInner
}

// activation returns one name for all names of the same activation function, because transformers has several
// implementations of a function.
func activation(name string) string {
	switch name {
	case "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate":
		return "gelu_new"
	case "gelu_python":
		return "gelu"
	}
	return name
}

func (s *BERTSettings) check() error {
	s.HiddenAct = activation(s.HiddenAct)
	return wantPositive(map[string]int{"vocab_size": s.VocabSize, "max_position_embeddings": s.MaxPositionEmbeddings,
		"type_vocab_size": s.TypeVocabSize,
		"hidden_size":     s.HiddenSize, "num_hidden_layers": s.NumHiddenLayers,
		"num_attention_heads": s.NumAttentionHeads,
		"intermediate_size":   s.IntermediateSize})
}

// wantPositive returns an error for sizes below 1 and for sizes that are too large for any model. With this limit,
// products of two sizes do not overflow.
func wantPositive(sizes map[string]int) error {
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		if n := sizes[name]; n < 1 || n > 1<<24 {
			return fmt.Errorf("%s: got %d, want 1 to %d", name, n, 1<<24)
		}
	}
	return nil
}

// ReadSettings reads a config.json. Missing settings get the defaults of transformers. If the contents are not valid,
// the error is a *checkpoint.CorruptError. If the file is missing, the error is os.ErrNotExist. If the file belongs to
// a model of timm, the error is ErrTimm.
func ReadSettings(path string) (Settings, error) {
	text, err := regular.Read(path, mostSettingsBytes)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, err
	case errors.As(err, new(*regular.Error)):
		return nil, &checkpoint.CorruptError{Path: path, Reason: err.Error()}
	case err != nil:
		return nil, &checkpoint.IOError{Op: "read", Path: path, Err: err}
	}
	s, err := parseSettings(text)
	if errors.Is(err, ErrTimm) {
		return nil, err
	}
	if kind := new(otherModelError); errors.As(err, &kind) {
		return nil, &checkpoint.MismatchError{Path: path, Settings: true, Differences: []checkpoint.Difference{
			{Name: kind.field, File: kind.got, Model: kinds()}}}
	} else if err != nil {
		return nil, &checkpoint.CorruptError{Path: path, Reason: err.Error()}
	}
	if c, ok := s.(Classifier); ok && c.Classifies() {
		if err := c.checkProblem(path); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// checkProblem returns an error for a head whose outputs are not probabilities of exclusive classes.
func (s *BERTSettings) checkProblem(path string) error {
	const exclusive = "single_label_classification"
	problem := s.ProblemType
	if problem == "" && len(s.ID2Label) == 1 {
		problem = "regression" // as transformers decides
	}
	if problem == "" || problem == exclusive {
		return nil
	}
	return fmt.Errorf("%w: %w", &checkpoint.MismatchError{Path: path, Settings: true,
		Differences: []checkpoint.Difference{{Name: "problem_type", File: problem, Model: exclusive}}}, ErrProblem)
}

// ErrProblem means that the head of a classifier solves another problem. No setting changes this.
var ErrProblem = errors.New("this program has no heads for regression, and none for several labels per text; select a classifier with one label per text, or a model without a head; for a new head, a copy of the folder with \"architectures\": [\"BertModel\"] in config.json works")

// ErrTimm means that a config.json belongs to an image model of the library timm. It does not contain the sizes of the
// model.
var ErrTimm = errors.New("config.json of the library timm")

// otherModelError reports that a config.json belongs to a model that this program lacks.
type otherModelError struct{ field, got string }

func (e *otherModelError) Error() string {
	return fmt.Sprintf("%s: got %s, want %s", e.field, e.got, kinds())
}

// kinds lists the values of model_type that this program knows.
func kinds() string {
	var all []string
	for _, f := range families {
		all = append(all, f.kind)
	}
	return strings.Join(all, " or ")
}

func parseSettings(text []byte) (Settings, error) {
	var all map[string]json.RawMessage
	// Replace a number that is not finite by a text, which causes an error only in a setting that this program reads.
	if err := json.Unmarshal(pyjson.Replace(text, `"not finite"`), &all); err != nil {
		return nil, fmt.Errorf("want the config.json of a transformers model: %w", err)
	}
	if _, ok := all["pretrained_cfg"]; ok && all["model_type"] == nil {
		return nil, ErrTimm
	}
	of, err := modelType(all)
	if err != nil {
		return nil, err
	}
	s := of.settings()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		one, err := json.Marshal(map[string]json.RawMessage{name: all[name]})
		if err == nil {
			err = json.Unmarshal(one, of.settings())
		}
		if err != nil && auxiliary(name) {
			continue // in a form that this program does not support
		} else if err != nil {
			return nil, fmt.Errorf("want the config.json of a transformers model: %w", err)
		}
		if err := json.Unmarshal(one, s); err != nil {
			return nil, err // unreachable: other settings have accepted the value
		}
	}
	return s, s.check()
}

// modelType returns the family of a config.json. The first published files have no model_type; architectures and the
// names of the settings then determine the family.
func modelType(all map[string]json.RawMessage) (*family, error) {
	field, got, is := "model_type", "no such field", func(f family) bool {
		return !slices.ContainsFunc(f.fields, func(name string) bool { return all[name] == nil })
	}
	var kind string
	var classes []string
	if json.Unmarshal(all["model_type"], &kind) == nil && kind != "" {
		got, is = kind, func(f family) bool { return f.kind == kind }
	} else if json.Unmarshal(all["architectures"], &classes) == nil && len(classes) > 0 {
		field, got, is = "architectures", classes[0], func(f family) bool {
			return strings.HasPrefix(classes[0], f.classes)
		}
	}
	at := slices.IndexFunc(families, is)
	if at < 0 {
		return nil, &otherModelError{field, got}
	}
	return &families[at], nil
}

// EncodeSettings returns s as the text of a config.json.
func EncodeSettings(s Settings) []byte {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // the types contain only numbers, strings and lists
	}
	return append(text, '\n')
}

// CompareSettings returns a *checkpoint.MismatchError with all differences that change the computation of the model.
// It ignores dropout probabilities, special tokens and names of classes.
func CompareSettings(path string, file, model Settings) error {
	a, b := fields(file), fields(model)
	var differences []checkpoint.Difference
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if got, ok := a[name]; !ok || !bytes.Equal(got, b[name]) {
			differences = append(differences,
				checkpoint.Difference{Name: name, File: string(got), Model: string(b[name])})
		}
	}
	if len(differences) > 0 {
		return &checkpoint.MismatchError{Path: path, Settings: true, Differences: differences}
	}
	return nil
}

// fields returns the settings that change the computation, as JSON.
func fields(s Settings) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(EncodeSettings(s), &all); err != nil {
		panic(err) // the text is a JSON object
	}
	maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool { return auxiliary(name) })
	return all
}

// auxiliary reports whether a setting does not change the computation of the model.
func auxiliary(name string) bool {
	return name == "architectures" || strings.Contains(name, "drop") || strings.HasSuffix(name, "_token_id") ||
		name == "id2label" || name == "label2id" || name == "problem_type"
}
