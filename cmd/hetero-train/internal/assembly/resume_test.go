package assembly

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/data"
)

// classes is a data set with these names of classes.
type classes []string

func (classes) Len() int                        { return 0 }
func (c classes) Classes() []string             { return c }
func (classes) Label(int) int                   { return 0 }
func (classes) NewReader() (data.Reader, error) { return nil, errors.ErrUnsupported }

func TestResumedClassifiersKeepTheMeaningOfTheirOutputs(t *testing.T) {
	for _, c := range []struct {
		name    string
		trained string   // description of the data in the checkpoint
		now     []string // classes of the data set
		want    string   // part of the error
		warns   string
	}{
		{"equal", `{"name": "images", "classes": ["a", "b"]}`, []string{"a", "b"}, "", ""},
		{"another order", `{"name": "images", "classes": ["a", "b"]}`, []string{"b", "a"},
			`start a run with model.init_from = "step-1"`, ""},
		{"imported, another order", `{"name": "", "classes": ["a", "b"]}`, []string{"b", "a"},
			"differ from those of the checkpoint", ""},
		{"imported, other classes", `{"name": "", "classes": ["a", "b"]}`, []string{"a", "c"},
			"differ from those of the checkpoint", ""},
		{"imported without names", ``, []string{"a", "b"}, "", "by number only"},
		{"renamed by the user", `{"name": "images", "classes": ["a", "b"]}`, []string{"a", "c"}, "", `no class \"c\"`},
		{"the first classes", `{"name": "images", "classes": ["a", "b", "c"]}`, []string{"a", "b"}, "", ""},
		{"no classes", `{"name": "text"}`, nil, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			r := New(nil, session.Options{Log: slog.New(slog.NewTextHandler(&out, nil))})
			r.Data = &parts.Opened{Name: "images", Splits: data.Splits{Train: classes(c.now)}}
			state := checkpoint.State{Extra: map[string]json.RawMessage{}}
			if c.trained != "" {
				state.Extra[parts.DataKey] = json.RawMessage(c.trained)
			}
			err := r.checkData("step-1", &state, false)
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want %q", err, c.want)
			}
			if strings.Contains(out.String(), "level=WARN") != (c.warns != "") ||
				!strings.Contains(out.String(), c.warns) {
				t.Errorf("got log %q, want %q", out.String(), c.warns)
			}
		})
	}
}

// After a change of data, the resumed run must forget earlier evaluations: they are not comparable with evaluations on
// the new data.
func TestAChangeOfDataForgetsEvaluations(t *testing.T) {
	r := New(nil, session.Options{})
	r.Data = &parts.Opened{Name: "cifar10", Splits: data.Splits{Train: classes{}}}
	for _, changed := range []bool{false, true} {
		state := checkpoint.State{Best: &checkpoint.Best{Value: 0.9}, Extra: map[string]json.RawMessage{
			parts.DataKey: json.RawMessage(`{"name": "cifar10"}`),
			"train":       json.RawMessage(`{"loss": 1, "early_stop": {"since": 7}}`)}}
		err := r.checkData("step-1", &state, changed)
		if err != nil || (state.Best == nil) != changed ||
			strings.Contains(string(state.Extra["train"]), `"since":0`) != changed {
			t.Errorf("changed %v: got %v, best %v, %s", changed, err, state.Best, state.Extra["train"])
		}
	}
}
