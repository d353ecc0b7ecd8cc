package parts

import "testing"

// A test in package config checks the tables of all other keys.
func TestEveryKeyOfModelsAndDataSetsIsClassified(t *testing.T) {
	for _, v := range BuiltinCatalog.Values() {
		if !v.Classified {
			t.Errorf("%s is neither Learnt nor Operational: see config.Key.Learnt", v.Key)
		}
	}
}
