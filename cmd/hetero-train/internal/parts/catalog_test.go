package parts

import "testing"

// TestEveryKeyOfModelsAndDataSetsIsClassified: the tables of all have a test in package config.
func TestEveryKeyOfModelsAndDataSetsIsClassified(t *testing.T) {
	for _, v := range BuiltinCatalog.Values() {
		if !v.Classified {
			t.Errorf("%s is neither Learnt nor Operational: see config.Key.Learnt", v.Key)
		}
	}
}
