package parts

import (
	"testing"

	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
)

// Packages config and experiment both define the rule for names, because config imports no package of this module. The
// two rules must agree.
func TestConfigurationAndFolderAgreeOnNames(t *testing.T) {
	for _, name := range []string{"a", "run-1", "_x", "A.b_c-9", "", ".", "..", "..x", "-x", ".x", "a b", "a/b", "ü",
		"n123456789012345678901234567890123456789012345678901234567890123",
		"n1234567890123456789012345678901234567890123456789012345678901234"} {
		_, err := config.Load("", BuiltinCatalog, config.Override{Key: "experiment.name", Value: name, Origin: "test"})
		if got, want := err == nil, experiment.ValidName(name); got != want {
			t.Errorf("%q: the configuration says %v, the folder %v", name, got, want)
		}
	}
}
