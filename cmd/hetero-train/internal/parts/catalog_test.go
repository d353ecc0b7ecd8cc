package parts

import "testing"

// This test covers the keys of models and data sets. A test in package config covers all other keys.
func TestEveryKeyOfModelsAndDataSetsIsClassified(t *testing.T) {
	for _, v := range BuiltinCatalog.Values() {
		if !v.Classified {
			t.Errorf("%s is neither Learnt nor Operational: see config.Key.Learnt", v.Key)
		}
	}
}
