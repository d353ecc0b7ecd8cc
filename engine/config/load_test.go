package config

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

func mustParse(t *testing.T, text string, overrides ...Override) *Config {
	t.Helper()
	c, err := Parse("run.toml", []byte(text), town, overrides...)
	if err != nil {
		t.Fatalf("%v\nof:\n%s", err, text)
	}
	return c
}

func set(t *testing.T, texts ...string) []Override {
	t.Helper()
	overrides := make([]Override, len(texts))
	for i, text := range texts {
		o, err := ParseSet(text)
		if err != nil {
			t.Fatal(err)
		}
		overrides[i] = o
	}
	return overrides
}

func TestDefaultThenFileThenOverrides(t *testing.T) {
	if c := mustParse(t, ""); c.Train.Epochs != 10 || string(c.TOML()) != string(Default().TOML()) {
		t.Errorf("default: got %d epochs, want 10 and the rest as Default", c.Train.Epochs)
	}
	file := "[train]\nepochs = 20\n"
	if c := mustParse(t, file); c.Train.Epochs != 20 {
		t.Errorf("file: got %d epochs, want 20", c.Train.Epochs)
	}
	if c := mustParse(t, file, set(t, "train.epochs=30")...); c.Train.Epochs != 30 {
		t.Errorf("--set: got %d epochs, want 30", c.Train.Epochs)
	}
	if c := mustParse(t, file, set(t, "train.epochs=30", "train.epochs=40")...); c.Train.Epochs != 40 {
		t.Errorf("two --set: got %d epochs, want the last, 40", c.Train.Epochs)
	}
}

func TestLoadReadsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.toml")
	text := "\ufeff[train]\r\nepochs = 20\r\n" // a byte order mark and Windows line ends
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(file, town, set(t, "data.batch_size=64")...)
	if err != nil || c.Train.Epochs != 20 || c.Data.BatchSize != 64 {
		t.Errorf("got %+v, %v", c, err)
	}
	if c, err := Load("", town); err != nil || c.Train.Epochs != 10 {
		t.Errorf("no file: got %+v, %v", c, err)
	}
}

func TestSetTakesTOMLValuesAndBareWords(t *testing.T) {
	for _, c := range []struct {
		set  string
		got  func(c *Config) any
		want any
	}{
		{"experiment.name=run7", func(c *Config) any { return c.Experiment.Name }, "run7"},
		{"experiment.name=2024", func(c *Config) any { return c.Experiment.Name }, "2024"},
		{"experiment.name=true", func(c *Config) any { return c.Experiment.Name }, "true"},
		{`experiment.name="run7"`, func(c *Config) any { return c.Experiment.Name }, "run7"},
		{`experiment.name='run7'`, func(c *Config) any { return c.Experiment.Name }, "run7"},
		{"experiment.log_dir=", func(c *Config) any { return c.Experiment.LogDir }, ""},
		{"experiment.log_dir=a=b c", func(c *Config) any { return c.Experiment.LogDir }, "a=b c"},
		{" train.epochs = 3 ", func(c *Config) any { return c.Train.Epochs }, 3},
		{"train.epochs=0x10", func(c *Config) any { return c.Train.Epochs }, 16},
		{"optimizer.lr=1", func(c *Config) any { return c.Optimizer.LR }, 1.0},
		{"optimizer.lr=1e-3", func(c *Config) any { return c.Optimizer.LR }, 1e-3},
		{"data.flip=true", func(c *Config) any { return c.Data.Flip }, true},
		{"optimizer.betas=[0.8, 0.9]", func(c *Config) any { return c.Optimizer.Betas }, []float64{0.8, 0.9}},
		{`model.freeze=["conv1", "layer1.*"]`, func(c *Config) any { return c.Model.Freeze },
			[]string{"conv1", "layer1.*"}},
		{"balance.fixed_shares=[128]", func(c *Config) any { return c.Balance.FixedShares }, []int{128}},
		{"experiment.seed=9223372036854775807", func(c *Config) any { return c.Experiment.Seed },
			uint64(math.MaxInt64)},
		{"model.name=wide", func(c *Config) any { return c.Model.Options.(*wideOptions).Width }, 2},
	} {
		if got := c.got(mustParse(t, "", set(t, c.set)...)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("--set %s: got %v, want %v", c.set, got, c.want)
		}
	}
}

func TestSetRefusesWhatIsNoValue(t *testing.T) {
	for _, text := range []string{
		"train.epochs=", "train.epochs=three", "train.epochs=1\n[data]", "train.epochs=1\nbatch_size=3",
		"train.epochs=[1",
		"data.flip=yes", "model.freeze=conv1", "model.freeze=[1]", `model.freeze=[""]`, `model.freeze=["a\u0001"]`,
		`experiment.name="run`, `experiment.name="a" "b"`, "experiment.log_dir=a\nb", "train={epochs=3}",
		"train.epochs.x=3", "=3x.y=1",
	} {
		o, err := ParseSet(text)
		if err != nil {
			continue
		}
		if _, err := Parse("", nil, town, o); err == nil {
			t.Errorf("--set %q was accepted", text)
		}
	}
	for _, text := range []string{"", "train.epochs", "=3", " =3"} {
		if _, err := ParseSet(text); err == nil {
			t.Errorf("ParseSet(%q) was accepted", text)
		}
	}
}

func TestKeysOfAModelFollowItsName(t *testing.T) {
	c := mustParse(t, "[model]\nname = \"tall\"\nheight = 7\n[data]\ndataset = \"streets\"\nwidth = 9\n",
		set(t, "model.lean=0.25")...)
	if got, want := *c.Model.Options.(*tallOptions), (tallOptions{Height: 7, Lean: 0.25}); got != want {
		t.Errorf("model: got %+v, want %+v", got, want)
	}
	if got := c.Data.Options.(*wideOptions).Width; got != 9 {
		t.Errorf("data set: got width %d, want 9", got)
	}
	if c := mustParse(t, "model.name = \"plain\""); c.Model.Options != nil {
		t.Errorf("model without keys: got %+v, want nil", c.Model.Options)
	}
	one, two := mustParse(t, "model.name = \"tall\""), mustParse(t, "model.name = \"tall\"")
	if one.Model.Options == two.Model.Options {
		t.Error("two configurations share one options struct")
	}
}

func TestKeyOfAModelMustNotHideACommonOne(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("accepted")
		}
	}()
	clash := Catalog{Models: []Kind{{Name: "simple_cnn", Options: func() Options { return new(clashing) }}}}
	_, _ = Parse("", nil, clash)
}

type clashing struct{ Group int }

func (o *clashing) Keys() []Key { return []Key{Int(&o.Group, "ghost_group", 0)} }

func TestDefaultsThatDependOnOtherKeys(t *testing.T) {
	type facts struct {
		LR, Decay    float64
		Size, Crop   int
		Flip, Random bool
	}
	for text, want := range map[string]facts{
		"":                           {0.05, 0.0005, 32, 0, false, false},
		"optimizer.name = \"adamw\"": {0.001, 0.01, 32, 0, false, false},
		"optimizer = {name = \"adamw\", lr = 0.05, weight_decay = 0.0005}": {
			0.05, 0.0005, 32, 0, false, false},
		"data.dataset = \"cifar10\"": {
			0.05, 0.0005, 32, 4, true, false},
		"data = {dataset = \"cifar10\", crop_padding = 0, flip = false}": {
			0.05, 0.0005, 32, 0, false, false},
		"data = {dataset = \"images\", path = \"x\"}": {
			0.05, 0.0005, 224, 0, true, true},
		"data = {dataset = \"images\", path = \"x\", crop_padding = 4, image_size = 32}": {
			0.05, 0.0005, 32, 4, true, false},
		"data = {dataset = \"images\", path = \"x\", flip = false, image_size = 32}": {
			0.05, 0.0005, 32, 0, false, true},
		"data = {dataset = \"images\", path = \"x\", random_resized_crop = false}": {
			0.05, 0.0005, 224, 0, true, false},
		"data = {dataset = \"images\", path = \"x\", crop_padding = 4, flip = false}": {
			0.05, 0.0005, 224, 4, false, false},
		"data.dataset = \"cifar10\"\noptimizer.name = \"adamw\"\noptimizer.lr = 0.000003": {
			0.000003, 0.01, 32, 4, true, false},
	} {
		c := mustParse(t, text)
		got := facts{c.Optimizer.LR, c.Optimizer.WeightDecay, c.Data.ImageSize, c.Data.CropPadding, c.Data.Flip,
			c.Data.RandomResizedCrop}
		if got != want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", text, got, want)
		}
	}
}

func TestResolvedConfigurationLoadsBackEqual(t *testing.T) {
	for _, text := range []string{
		"",
		"[model]\nname = \"tall\"\nheight = 9\nlean = 0.1\n[data]\ndataset = \"streets\"\n",
		"[experiment]\noutput_dir = \"a \\\"quoted\\\" \\\\ path with é and \u2028\"\n[optimizer]\nname = \"adamw\"\nlr = 1e-300\neps = 5e-324\n[parallel]\nbucket_cap_mb = 0\n",
		"[data]\ndataset = \"images\"\npath = \"x\"\nmean = [0.1, 0.2, 0.30000000000000004]\nstd = [1, 1e22, 3]\n[schedule]\nname = \"multistep\"\nmilestones = [1, 2, 2147483647]\n",
		"[optimizer]\nlr = 179769313486231570000000000000000000000.0\n[balance]\nfixed_shares = [64, 64]\n[experiment]\nseed = 9223372036854775807\n",
	} {
		c := mustParse(t, text)
		again := mustParse(t, string(c.TOML()))
		again.origins, again.usual = c.origins, c.usual // the resolved text sets every key, so these fields differ
		if !reflect.DeepEqual(c, again) {
			t.Errorf("differs: %+v\nof:\n%s", Diff(c, again), text)
		}
	}
}

// The test sets every key to random allowed values.
func TestEveryKeyReadsBackTheValueItWrites(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	c := mustParse(t, "[model]\nname = \"tall\"\n")
	for _, table := range c.tables() {
		for _, k := range table.keys {
			for range 50 {
				randomize(k, random)
				written := k.text()
				_, isText := k.field.(*string)
				value, err := parseValue(written, isText)
				if err != nil {
					t.Fatalf("%s.%s = %s: %v", table.name, k.name, written, err)
				}
				k.setDefault()
				if f, ok := k.assign(value); !ok || k.text() != written {
					t.Fatalf("%s.%s = %s: got back %s, %v", table.name, k.name, written, k.text(), f)
				}
			}
		}
	}
}

// randomize sets the field of a key to a random value that the key allows.
func randomize(k Key, random *rand.Rand) {
	number := func() float64 {
		high := min(k.max, math.Ldexp(1, random.IntN(60)))
		x := k.min + random.Float64()*max(0, high-k.min)
		if k.above && x == k.min {
			x = math.Nextafter(x, math.Inf(1))
		}
		return x
	}
	switch field := k.field.(type) {
	case *string:
		letters := []rune(`aZ0 ._-/\"'#=[]{}é漢😀`)
		var b strings.Builder
		for range random.IntN(12) {
			b.WriteRune(letters[random.IntN(len(letters))])
		}
		*field = b.String()
		if len(k.enum) > 0 {
			*field = k.enum[random.IntN(len(k.enum))]
		}
		if k.place != nil && k.place(*field) != nil {
			*field = "localhost.example"
		}
		if k.place != nil && k.place(*field) != nil {
			*field = "s3://bucket/folder"
		}
	case *bool:
		*field = random.IntN(2) == 0
	case *int:
		*field = int(number())
	case *uint64:
		*field = uint64(number())
	case *float64:
		*field = number()
	case *[]int:
		*field = []int{int(number()), int(number())}
	case *[]float64:
		*field = nil
		for range max(k.length, 2) {
			*field = append(*field, number())
		}
	}
}

func TestKeysAreWellFormed(t *testing.T) {
	name := regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	for _, table := range Default().tables() {
		seen := make(map[string]bool)
		if table.doc == "" || !name.MatchString(table.name) {
			t.Errorf("[%s]: name or documentation missing", table.name)
		}
		for _, k := range table.keys {
			key := table.name + "." + k.name
			if !name.MatchString(k.name) || seen[k.name] || k.doc == "" {
				t.Errorf("%s: name not in lower case, given twice, or not documented", key)
			}
			seen[k.name] = true
			value, err := parseValue(formatValue(k.def), k.kind() == "string")
			if err != nil {
				t.Errorf("%s: default %v: %v", key, k.def, err)
				continue
			}
			if f, ok := k.assign(value); !ok {
				t.Errorf("%s: the default breaks the key's own bounds: %v", key, f)
			}
		}
	}
}

func TestDiffNamesKeysAndBothValues(t *testing.T) {
	before := mustParse(t, "[model]\nname = \"tall\"\nheight = 9\n[train]\nepochs = 3\n")
	after := mustParse(t, "[model]\nname = \"wide\"\n[train]\nepochs = 4\n")
	want := []Difference{
		{"model.name", `"tall"`, `"wide"`, true, true},
		{"model.width", "", "2", false, true},
		{"train.epochs", "3", "4", false, false},
		{"model.height", "9", "", false, true},
		{"model.lean", "0.5", "", false, true},
	}
	if got := Diff(before, after); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if got := Diff(before, before); got != nil {
		t.Errorf("equal configurations: got %v", got)
	}
}

// Every key must be classified. Only keys of models and data sets in other modules may be unclassified; the program
// then treats them as learnt.
func TestEveryKeySaysWhatAChangeMeans(t *testing.T) {
	for key, k := range Default().keys() {
		if k.effect == unclassified {
			t.Errorf("%s: neither Learnt nor Operational", key)
		}
	}
	want := map[string]bool{ // true if a change of the key changes training results
		"optimizer.lr": true, "experiment.seed": true, "data.batch_size": true, "augment.mixup": true,
		"ema.decay": true, "parallel.wire_dtype": true,
		"train.epochs": false, "train.steps": false, "parallel.ranks": false, "device.kind": false,
		"balance.policy": false, "profile.enabled": false,
		"train.log_interval": false, "data.path": false, "experiment.output_dir": false, "nccl.algo": false,
		"lab.weather": false,
	}
	c := mustParse(t, "[model]\nname = \"tall\"\n")
	for key, learnt := range want {
		if got, known := c.Learnt(key); got != learnt || !known {
			t.Errorf("%s: got learnt %v, known %v, want %v", key, got, known, learnt)
		}
	}
	if affects, known := c.Learnt("model.lean"); !affects || !known {
		t.Error("a key of a model that is not classified: want it learnt")
	}
	if _, known := c.Learnt("optimizer.rate"); known {
		t.Error("a key that does not exist is known")
	}
}

// An accepted text must contain only existing keys. The resolved text of its configuration must also be accepted, and
// must result in an equal configuration.
func FuzzLoad(f *testing.F) {
	before := debug.SetGCPercent(1000) // otherwise, every tenth execution would collect the small heap
	f.Cleanup(func() { debug.SetGCPercent(before) })
	files, err := filepath.Glob("testdata/faults/*.toml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), "train.epochs=3")
	}
	// A text with all keys would make the fuzzer ten times slower.
	f.Add("[data]\nbatch_size = 64\n[optimizer]\nname = \"adamw\"\nlr = 1e-3\n", `experiment.name="x"`)
	f.Fuzz(func(t *testing.T, text, setting string) {
		var overrides []Override
		if o, err := ParseSet(setting); err == nil {
			overrides = append(overrides, o)
		}
		c, err := Parse("run.toml", []byte(text), town, overrides...)
		if err != nil {
			if strings.ContainsAny(strings.ReplaceAll(err.Error(), "\n", ""), "\x00\x1b\r") {
				t.Errorf("control characters in the message %q", err)
			}
			return
		}
		values, _ := c.flat()
		var decoded map[string]map[string]any
		if err := toml.Unmarshal([]byte(strings.TrimPrefix(text, "\ufeff")), &decoded); err != nil {
			t.Fatalf("accepted, but not TOML of tables: %v", err)
		}
		for table, keys := range decoded {
			for key := range keys {
				if _, exists := values[table+"."+key]; !exists {
					t.Errorf("unknown key %q.%q was accepted", table, key)
				}
			}
		}
		again, err := Parse("resolved.toml", c.TOML(), town)
		if err == nil {
			again.origins, again.usual = c.origins, c.usual // the resolved text sets every key, so these fields differ
		}
		if err != nil || !reflect.DeepEqual(c, again) {
			t.Errorf("the resolved configuration loads differently: %v", err)
		}
	})
}

func TestOriginOfAKey(t *testing.T) {
	c, err := Parse("run.toml", []byte("[train]\nepochs = 20\nsteps = 5\n"), town,
		Override{Origin: "--steps", Key: "train.steps", Value: "7"})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"train.epochs": "run.toml:2", "train.steps": "--steps",
		"train.resume": ""} {
		if got := c.Origin(key); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
}

// A pipe must be refused. Reading it would block, and signals would not end the program.
func TestAPipeIsNoConfiguration(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := needtest.MakePipe(pipe); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(pipe, town); err == nil || !strings.Contains(err.Error(), "want a file") {
		t.Errorf("got %v, want an error", err)
	}
}
