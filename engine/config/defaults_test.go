package config

import (
	"strings"
	"testing"
)

// recipes is a catalog. Its model "tall" has its own defaults for keys that all models have.
var recipes = Catalog{
	Models: []Kind{{Name: "simple_cnn"}, {Name: "tall", Options: func() Options { return new(tallOptions) },
		Defaults: []DefaultValue{
			{Key: "optimizer.name", Value: "adamw"},
			{Key: "optimizer.lr", Value: 1e-5,
				Needs: []Need{Is("optimizer.name", "adamw"), IsNot("model.init_from", "")}},
			{Key: "optimizer.lr", Value: 3e-3,
				Needs: []Need{Is("optimizer.name", "adamw"), Between("model.height", 1, 4)}},
			{Key: "optimizer.lr", Value: 1e-4, Needs: []Need{Is("optimizer.name", "adamw")}},
			{Key: "schedule.warmup_steps", Value: 100, Needs: []Need{Is("schedule.warmup_epochs", 0.0)}},
			{Key: "optimizer.betas", Value: []float64{0.9, 0.95}},
		}}},
	DataSets: []Kind{{Name: "synthetic_image", Data: DataTraits{Computed: true}}},
	Policies: []Kind{{Name: "hybrid", Learns: true}},
}

func TestAModelHasItsOwnDefaultsOfCommonKeys(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "sgd 0.05 0.0005 0 [0.9, 0.999]",
		"optimizer.name = \"adamw\"":            "adamw 0.001 0.01 0 [0.9, 0.999]",
		"model.name = \"tall\"":                 "adamw 0.003 0.01 100 [0.9, 0.95]",
		"model = {name = \"tall\", height = 5}": "adamw 0.0001 0.01 100 [0.9, 0.95]",
		"model = {name = \"tall\", init_from = \"x\"}":          "adamw 1e-05 0.01 100 [0.9, 0.95]",
		"model.name = \"tall\"\noptimizer.name = \"sgd\"":       "sgd 0.05 0.0005 100 [0.9, 0.95]",
		"model.name = \"tall\"\noptimizer.lr = 0.5":             "adamw 0.5 0.01 100 [0.9, 0.95]",
		"model.name = \"tall\"\nschedule.warmup_epochs = 0.1":   "adamw 0.003 0.01 0 [0.9, 0.95]",
		"model.name = \"tall\"\nschedule.warmup_steps = 0":      "adamw 0.003 0.01 0 [0.9, 0.95]",
		"model.name = \"tall\"\noptimizer.betas = [0.9, 0.999]": "adamw 0.003 0.01 100 [0.9, 0.999]",
	} {
		c, err := Parse("run.toml", []byte(text), recipes)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		values, _ := c.flat()
		got := strings.Trim(values["optimizer.name"], `"`)
		for _, key := range []string{"optimizer.lr", "optimizer.weight_decay", "schedule.warmup_steps",
			"optimizer.betas"} {
			got += " " + values[key]
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestTheSourceOfADefaultIsKnown(t *testing.T) {
	c, err := Parse("", nil, recipes, Override{Key: "model.name", Value: "tall"},
		Override{Key: "schedule.warmup_steps", Value: "7"})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"optimizer.lr": "tall", "optimizer.name": "tall",
		"optimizer.weight_decay": `optimizer.name = "adamw"`,
		"schedule.warmup_steps":  "", "train.epochs": "", "model.name": ""} {
		if got := c.DefaultOf(key); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
	page := string(Markdown(recipes))
	for _, want := range []string{
		"| `optimizer.lr` | `0.003` | `tall` | if `optimizer.name` is `\"adamw\"` and `model.height` is `1…4` |",
		"| `warmup_steps` | integer ≥ 0 | steps | `0`, unless the model has its own default |"} {
		if !strings.Contains(page, want) {
			t.Errorf("the documentation lacks %q in\n%s", want, page)
		}
	}
}

func TestWrongDefaultsOfAModelAreFaultsOfTheCatalog(t *testing.T) {
	for want, d := range map[string]DefaultValue{
		"there is no such key": {Key: "optimizer.rate", Value: 1.0},
		"too small":            {Key: "optimizer.lr", Value: -1.0},
		"wrong type":           {Key: "schedule.warmup_steps", Value: 1.5},
		"unknown value":        {Key: "optimizer.name", Value: "adam"},
	} {
		err := Catalog{Models: []Kind{{Name: "tall", Defaults: []DefaultValue{d}}}}.Check()
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), `model "tall": its default of `+d.Key) {
			t.Errorf("%v: got %v, want %s", d, err, want)
		}
	}
}
