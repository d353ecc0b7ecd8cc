package weights

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// numbered returns the tensors of a file. All values in row i of the head are i.
func numbered() []checkpoint.Tensor {
	row := func(elements int) (data []byte) {
		for i := range 3 {
			for range elements {
				data = append(data, 0, 0, 0, byte(0x40+i)) // 2, 8 and 32 as f32
			}
		}
		return data
	}
	return foreign(tensor.F32, "", func(m map[string]checkpoint.Tensor) {
		m["fc.weight"] = checkpoint.Tensor{DType: tensor.F32, Shape: tensor.Shape{3, 2}, Data: row(2)}
		m["fc.bias"] = checkpoint.Tensor{DType: tensor.F32, Shape: tensor.Shape{3}, Data: row(1)}
	})
}

func TestHeadsCorrespondByName(t *testing.T) {
	for _, c := range []struct {
		name        string
		file, model []string
		initOf      string
		want        []byte // rows of the file for each class of the model; nil: the head is new
		byNumber    bool
		why         string // part of the error, or of the reason for a new head
	}{
		{"equal", []string{"a", "b", "c"}, []string{"a", "b", "c"}, HeadAuto, []byte{0, 1, 2}, false, ""},
		{"another order", []string{"c", "a", "b"}, []string{"a", "b", "c"}, HeadAuto, []byte{1, 2, 0}, false, ""},
		{"another order, kept", []string{"c", "a", "b"}, []string{"a", "b", "c"}, HeadKeep, []byte{1, 2, 0}, false, ""},
		{"other case", []string{"C", "A", "b"}, []string{"a", "b", "c"}, HeadAuto, []byte{1, 2, 0}, false, ""},
		{"ambiguous case", []string{"A", "a", "b"}, []string{"a", "B", "x"}, HeadAuto, nil, false, `no class "x"`},
		{"one other class", []string{"a", "b", "d"}, []string{"a", "b", "c"}, HeadAuto, nil, false,
			`no class "c"; its classes are "a" "b" "d"`},
		{"one other class, kept", []string{"a", "b", "d"}, []string{"a", "b", "c"}, HeadKeep, nil, false,
			`names of the classes: file "a" "b" "d", model "a" "b" "c"`},
		{"no names in the file", nil, []string{"a", "b", "c"}, HeadAuto, []byte{0, 1, 2}, true, ""},
		{"numbers of transformers", []string{"LABEL_0", "LABEL_1", "LABEL_2"}, []string{"a", "b", "c"}, HeadKeep,
			[]byte{0, 1, 2}, true, ""},
		{"numbers in both", []string{"0", "1", "2"}, []string{"0", "1", "2"}, HeadAuto, []byte{0, 1, 2}, false, ""},
		{"one name twice", []string{"a", "a", "b"}, []string{"a", "b", "c"}, HeadAuto, []byte{0, 1, 2}, true, ""},
		{"more outputs than classes", []string{"b", "a"}, []string{"a", "b"}, HeadAuto, []byte{1, 0, 2}, false, ""},
		{"fewer classes than the file", []string{"c", "a", "b"}, []string{"b", "c"}, HeadAuto, []byte{2, 0, 1}, false,
			""},
	} {
		t.Run(c.name, func(t *testing.T) {
			fit, err := Match(file(t, numbered()...), model(),
				Options{Head: "fc", InitOf: c.initOf, FileClasses: c.file, Classes: c.model})
			if err != nil {
				if c.initOf != HeadKeep || c.why == "" || !strings.Contains(err.Error(), c.why) ||
					!errors.As(err, new(*checkpoint.MismatchError)) {
					t.Fatal(err)
				}
				return
			}
			fresh, why := fit.Replaced()
			if (len(fresh) > 0) != (c.want == nil) || !strings.Contains(why, c.why) || fit.ByNumber() != c.byNumber {
				t.Fatalf("new tensors %v, reason %q, by number %v; want %+v", fresh, why, fit.ByNumber(), c)
			}
			for name, elements := range map[string]int{"fc.weight": 2, "fc.bias": 1} {
				m := model()[slices.IndexFunc(model(), func(i checkpoint.Info) bool { return i.Name == name })]
				dst, want := make([]byte, m.Bytes()), []byte{}
				for _, row := range c.want {
					want = append(want, bytes.Repeat([]byte{0, 0, 0, 0x40 + row}, elements)...)
				}
				if found, err := fit.ReadInto(m, dst); err != nil || found != (c.want != nil) ||
					found && !bytes.Equal(dst, want) {
					t.Errorf("%s: got %v %x, error %v; want %x", name, found, dst, err, want)
				}
			}
		})
	}
}

func TestNamesOfConfigJSON(t *testing.T) {
	for text, want := range map[string][]string{
		`{"0": "pos", "1": "neg"}`: {"pos", "neg"},
		`["neg", "pos"]`:           {"neg", "pos"},
		`{"1": "pos", "2": "neg"}`: nil,
		`{"0": 1}`:                 nil,
		`null`:                     nil,
		`"text"`:                   nil,
	} {
		path := filepath.Join(t.TempDir(), SettingsFile)
		config := `{"model_type": "bert", "architectures": ["BertForSequenceClassification"], "id2label": ` + text +
			`, "label2id": [1]}`
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := ReadSettings(path)
		if err != nil || !slices.Equal(s.(*BERTSettings).Classes(), want) {
			t.Errorf("%s: got %+v, error %v; want %q", text, s, err, want)
		}
	}
	s := NewBERTSettings()
	s.SetClasses([]string{"pos", "neg"})
	var got struct {
		ID2Label map[string]string `json:"id2label"`
		Label2ID map[string]int    `json:"label2id"`
	}
	if err := json.Unmarshal(EncodeSettings(s), &got); err != nil || got.ID2Label["0"] != "pos" ||
		got.Label2ID["neg"] != 1 {
		t.Errorf("got %+v, error %v", got, err)
	}
}

func TestHeadsOfOtherProblemsAreRefused(t *testing.T) {
	for fields, want := range map[string]string{
		`"problem_type": "regression"`:                  "problem_type: file regression, model single_label_classification",
		`"problem_type": "multi_label_classification"`:  "problem_type: file multi_label_classification",
		`"id2label": {"0": "LABEL_0"}`:                  "problem_type: file regression",
		`"problem_type": "single_label_classification"`: "",
		`"problem_type": null`:                          "",
	} {
		path := filepath.Join(t.TempDir(), SettingsFile)
		text := `{"model_type": "bert", "architectures": ["BertForSequenceClassification"], ` + fields + `}`
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadSettings(path)
		if want == "" && err != nil || want != "" && (!errors.As(err, new(*checkpoint.MismatchError)) ||
			!errors.Is(err, ErrProblem) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", fields, err, want)
		}
	}
}
