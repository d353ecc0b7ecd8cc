package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unused returns the warnings for the settings of a file with overrides.
func unused(t *testing.T, file string, actual map[string]string, overrides ...string) []string {
	t.Helper()
	var texts []string
	for _, u := range mustParse(t, file, set(t, overrides...)...).Unused(actual) {
		texts = append(texts, u.String())
	}
	return texts
}

func TestAKeyWithoutEffectIsReportedWhereItWasSet(t *testing.T) {
	for _, c := range []struct {
		name, text string
		set        []string
		actual     map[string]string
		want       []string
	}{
		{name: "momentum of adamw, in a file", text: "[optimizer]\nname = \"adamw\"\nmomentum = 0.5\n",
			want: []string{
				`optimizer.momentum = 0.5 (run.toml:3) has no effect: it needs optimizer.name = "sgd" (got "adamw")`}},
		{name: "a file's value that is the default", text: "[optimizer]\nname = \"adamw\"\nmomentum = 0.9\n"},
		{name: "a typed value that is the default", set: []string{"optimizer.name=adamw", "optimizer.momentum=0.9"},
			want: []string{`optimizer.momentum = 0.9 (--set optimizer.momentum) has no effect: it needs optimizer.name = "sgd" (got "adamw")`}},
		{name: "momentum of sgd", set: []string{"optimizer.momentum=0.5"}},
		{name: "nothing set", set: []string{"optimizer.name=adamw", "schedule.name=cosine"}},
		{name: "one of several values", set: []string{"schedule.name=step", "schedule.gamma=0.5"}},
		{name: "none of several values", set: []string{"schedule.gamma=0.5"},
			want: []string{`schedule.gamma = 0.5 (--set schedule.gamma) has no effect: it needs schedule.name = "step" or "multistep" (got "constant")`}},
		{name: "either need", set: []string{"augment.cutmix=1", "augment.mix_mode=elem"}},
		{name: "neither need", set: []string{"augment.mix_mode=elem"},
			want: []string{`augment.mix_mode = "elem" (--set augment.mix_mode) has no effect: it needs augment.mixup other than 0.0 or augment.cutmix other than 0.0 (got augment.mixup = 0.0, augment.cutmix = 0.0)`}},
		{name: "all needs", set: []string{"augment.cutmix=1", "augment.mix_switch_prob=0.2"},
			want: []string{`augment.mix_switch_prob = 0.2 (--set augment.mix_switch_prob) has no effect: it needs augment.mixup other than 0.0 (got 0.0)`}},
		{name: "both typed", set: []string{"train.epochs=3", "train.steps=5"},
			want: []string{`train.epochs = 3 (--set train.epochs) has no effect: train.steps = 5 overrides it`}},
		{name: "both in the file", text: "[train]\nepochs = 3\nsteps = 5\n",
			want: []string{`train.epochs = 3 (run.toml:2) has no effect: train.steps = 5 overrides it`}},
		{name: "the command line overrides the file", text: "[train]\nepochs = 3\n", set: []string{"train.steps=5"}},
		{name: "what auto stands for", set: []string{"device.index=0"}, actual: map[string]string{"device.kind": "cpu"},
			want: []string{`device.index = 0 (--set device.index) has no effect: it needs device.kind = "auto" or "cuda" (got "cpu")`}},
		{name: "auto itself", set: []string{"device.index=0"}},
		{name: "two keys, in the order of the file", set: []string{"schedule.gamma=0.5", "optimizer.eps=1e-6"},
			want: []string{"optimizer.eps = ", "schedule.gamma = "}},
		{name: "NCCL's", set: []string{"parallel.backend=gloo", "nccl.debug=INFO"},
			want: []string{`nccl.debug = "INFO" (--set nccl.debug) has no effect: it needs parallel.backend = "auto" or "nccl" (got "gloo")`}},
	} {
		got := unused(t, c.text, c.actual, c.set...)
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

// A need refers to a key by its name. The key must exist, and the value must be valid for it.
func TestNeedsNameKeysThatExist(t *testing.T) {
	keys := Default().keys()
	for _, t := range Default().tables() {
		for _, k := range t.keys {
			keys[t.name+"."+k.name] = k.Only(t.needs...)
		}
	}
	for name, k := range keys {
		for _, n := range k.needs {
			for _, one := range append(slices.Clone(n.any), n) {
				if one.any != nil {
					continue
				}
				other, exists := keys[one.key]
				if !exists {
					t.Errorf("%s needs %s, which does not exist", name, one.key)
					continue
				}
				for _, value := range one.want {
					if got, want := formatValue(value), formatValue(other.def); kindOf(got) != kindOf(want) {
						t.Errorf("%s needs %s: got a value like %s, want one like %s", name, n, got, want)
					}
					if text, isText := value.(string); isText && len(other.enum) > 0 &&
						!slices.Contains(other.enum, text) {
						t.Errorf("%s needs %s: got %q, want one of %q", name, n, text, other.enum)
					}
				}
			}
		}
		if by := k.overriddenBy; by != "" && keys[by].field == nil {
			t.Errorf("%s is overridden by %s, which does not exist", name, by)
		}
	}
}

// kindOf returns the type of a TOML value: text, integer, number with a point, truth value or list.
func kindOf(toml string) string {
	switch {
	case strings.HasPrefix(toml, `"`):
		return "text"
	case strings.HasPrefix(toml, "["):
		return "list"
	case toml == "true" || toml == "false":
		return "bool"
	case strings.ContainsAny(toml, ".e"):
		return "float"
	}
	return "int"
}

func TestAFileWithEveryKeyAtItsDefaultSetsNothingInVain(t *testing.T) {
	if got := unused(t, string(mustParse(t, "").TOML()), nil); got != nil {
		t.Errorf("got %q, want nothing", got)
	}
	text, err := os.ReadFile(filepath.Join("testdata", "default.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if got := unused(t, string(text), nil); got != nil {
		t.Errorf("default.toml: got %q, want nothing", got)
	}
}
