package config

import (
	"strings"
	"testing"
)

func TestDescribe(t *testing.T) {
	text, err := Describe(Catalog{}, "train.steps")
	if err != nil || !strings.HasPrefix(text, "train.steps\n  meaning   ") ||
		!strings.Contains(text, "\n  type      integer ") || !strings.Contains(text, "\n  default   ") ||
		strings.Count(text, "\n\n") != 0 {
		t.Errorf("a key: got %q, %v", text, err)
	}
	text, err = Describe(Catalog{}, "train")
	if err != nil || !strings.Contains(text, "\n\ntrain.steps\n") || strings.Contains(text, "\n\ndata.") {
		t.Errorf("a table: got %q, %v", text, err)
	}
	for name, near := range map[string]string{"train.step": "train.steps", "batch_size": "data.batch_size",
		"trian.steps": "train.steps", "nothing": ""} {
		_, err := Describe(Catalog{}, name)
		if err == nil || !strings.Contains(err.Error(), "unknown key or table") || near != "" &&
			!strings.Contains(err.Error(), "nearest: "+near) {
			t.Errorf("%s: got %v, want nearest %q", name, err, near)
		}
	}
}

// Describe must have a text for every key.
func TestDescribeKnowsAllKeys(t *testing.T) {
	for _, table := range (Catalog{}).tables(Default()) {
		for _, k := range table.keys {
			if text, err := Describe(Catalog{}, table.name+"."+k.name); err != nil ||
				!strings.Contains(text, "  default   ") {
				t.Errorf("%s.%s: got %q, %v", table.name, k.name, text, err)
			}
		}
	}
}
