package parts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/config"
)

func TestKindsIgnoreWhatOnlyOthersRead(t *testing.T) {
	for _, c := range []struct {
		set  []string
		want string // part of the expected message; "" if no message is expected
	}{
		{[]string{"balance.policy=dynamic", "balance.objective=energy", "balance.power_watts=[1.0]"}, `balance.objective = "energy" (--set balance.objective) has no effect: balance.policy = "dynamic" does not read it`},
		{[]string{"balance.policy=hybrid", "balance.objective=energy", "balance.power_watts=[1.0]"}, ""},
		{[]string{"data.dataset=cifar10", "data.max_pixels=100"},
			`data.max_pixels = 100 (--set data.max_pixels) has no effect: data.dataset = "cifar10" does not read it`},
		{[]string{"data.dataset=images", "data.path=x", "data.max_pixels=100"}, ""},
		{[]string{"data.dataset=images", "data.path=x", "data.object_cache_mb=100"}, ""},
		{[]string{"model.name=gpt2", "data.dataset=text", "data.path=x", "data.object_cache_mb=100"},
			`data.object_cache_mb = 100 (--set data.object_cache_mb) has no effect: data.dataset = "text" does not read it`},
		{[]string{"balance.policy=dynamic", "balance.curve_cache=off"}, `balance.curve_cache = "off" (--set balance.curve_cache) has no effect: it needs balance.policy = "hybrid" (got "dynamic")`},
		{[]string{"data.dataset=images", "data.path=x", "data.shard_cache_mb=100"}, "data.shard_cache_mb = 100 "},
		{[]string{"data.cache_dir=x"}, `data.cache_dir = "x" (--set data.cache_dir) has no effect: data.dataset = "synthetic_image" does not read it`},
	} {
		var set []config.Override
		for _, text := range c.set {
			o, err := config.ParseSet(text)
			if err != nil {
				t.Fatal(err)
			}
			set = append(set, o)
		}
		cfg, err := config.Load("", BuiltinCatalog, set...)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		if all := cfg.Unused(nil); len(all) > 0 {
			got = all[0].String()
		}
		if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%v: got %q, want %q", c.set, got, c.want)
		}
	}
}

func TestIgnoredKeysExist(t *testing.T) {
	keys := map[string]bool{}
	for _, v := range BuiltinCatalog.Values() {
		keys[v.Key] = true
	}
	for table, kinds := range map[string][]config.Kind{"model": BuiltinCatalog.Models, "data": BuiltinCatalog.DataSets,
		"balance": BuiltinCatalog.Policies} {
		for _, kind := range kinds {
			i, ok := kind.Options().(config.Ignorer)
			if !ok {
				continue
			}
			for _, name := range i.Ignores() {
				if !keys[table+"."+name] {
					t.Errorf("%s %s ignores %s.%s, which does not exist", table, kind.Name, table, name)
				}
			}
		}
	}
}

// No example configuration may contain a setting without effect, on any device. This must also hold if some keys are
// changed on the command line.
func TestCommittedConfigsSetNothingInVain(t *testing.T) {
	files, err := filepath.Glob("../../../../configs/*.toml")
	if err != nil || len(files) < 2 {
		t.Fatalf("got %d files in configs, %v", len(files), err)
	}
	for _, file := range append(files, "../../../../deploy/kubernetes/base/config.toml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range [][]config.Override{nil, {{Origin: "--set train.steps", Key: "train.steps", Value: "20"}},
			{{Origin: "--set data.path", Key: "data.path", Value: "x"}},
			{{Origin: "--set data.dataset", Key: "data.dataset", Value: "synthetic_image"}}} {
			cfg, err := config.Parse(file, text, BuiltinCatalog, set...)
			if err != nil && strings.Contains(string(text), `dataset = "synthetic_`) &&
				strings.HasPrefix(set[0].Key, "data.") {
				continue // synthetic data have no path, and a language model refuses images
			}
			if err != nil && (strings.Contains(string(text), `dataset = "text"`) ||
				strings.Contains(string(text), `dataset = "labelled_text"`)) && set[0].Key == "data.dataset" {
				continue // a language model refuses images
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, kind := range []string{"cpu", "cuda"} {
				if got := cfg.Unused(map[string]string{"device.kind": kind, "parallel.backend": "gloo"}); len(got) > 0 {
					t.Errorf("%s with %v on %s: got %v, want nothing", file, set, kind, got)
				}
			}
		}
	}
}
