package parts

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/config"
)

// This test covers the keys of models and data sets. A test in package config covers all other keys.
func TestEveryKeyOfModelsAndDataSetsIsClassified(t *testing.T) {
	for _, v := range BuiltinCatalog.Values() {
		if !v.Classified {
			t.Errorf("%s is neither Learnt nor Operational: see config.Key.Learnt", v.Key)
		}
	}
}

// Sentences of package config name data sets. They must name those whose rows and options state the fact.
func TestDocumentationNamesTheDataSetsOfEachFact(t *testing.T) {
	text := string(config.Markdown(BuiltinCatalog))
	for _, c := range []struct {
		sentence string // with one group, which contains the names
		states   func(k config.Kind) bool
	}{
		{"Evaluation samples of (.*?), written", func(k config.Kind) bool { return k.Data.ValPath }},
		{"Without an evaluation part, `val_fraction` splits the samples. (.*?): also objects of S3",
			func(k config.Kind) bool { return !config.Ignores(k.Options(), "object_cache_mb") }},
	} {
		found := regexp.MustCompile(c.sentence).FindStringSubmatch(text)
		if found == nil {
			t.Errorf("%q: no such sentence in the documentation of the keys", c.sentence)
			continue
		}
		var want []string
		for _, k := range BuiltinCatalog.DataSets {
			if c.states(k) {
				want = append(want, k.Name)
			}
		}
		got := regexp.MustCompile("[a-z0-9_]+").FindAllString(strings.ReplaceAll(found[1], " and ", " "), -1)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q: the documentation names %q, want %q", c.sentence, got, want)
		}
	}
}
