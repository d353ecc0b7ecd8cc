package config

import (
	"strings"
	"testing"
)

func TestSpansLongerThanTheRunAreWarnedOf(t *testing.T) {
	run := Length{Steps: 100, StepsPerEpoch: 20, Seconds: 60}
	endless := Length{StepsPerEpoch: 20, Seconds: 60}
	for _, c := range []struct {
		text string
		run  Length
		want string // one warning; "": none
	}{
		{"schedule.warmup_steps = 100", run, "schedule.warmup_steps = 100 (run.toml:1) is not shorter than the run: the run has 100 steps, so the learning rate never stays at optimizer.lr"},
		{"schedule.warmup_steps = 99", run, ""},
		{"schedule.warmup_steps = 100", endless, ""},
		{"schedule.warmup_epochs = 5.5", run, "the run has 100 steps (5 epochs), so the learning rate never"},
		{"schedule = {name = \"multistep\", milestones = [3, 5]}", run, "not reduced at the later milestones"},
		{"schedule = {name = \"multistep\", milestones = [3, 4]}", run, ""},
		{"schedule = {name = \"step\", step_size = 7}", run, "never reduced"},
		{"schedule.step_size = 40", run, ""}, // no effect, because the schedule has no steps
		{"ema = {decay = 0.9, interval = 101}", run, "the averages are never updated"},
		{"ema.interval = 101", run, ""},
		{"train.eval_interval = 5", run, "only the last step is evaluated"},
		{"train.eval_interval = 4", run, ""},
		{"train.norms_interval = 101", run, "no line"},
		{"train.norms_interval = 100", run, ""},
		{"train.early_stop_patience = 5", run, "the run has 5 evaluations, so it cannot end early"},
		{"train = {early_stop_patience = 2, eval_interval = 2}", run, ""},
		{"train = {early_stop_patience = 3, eval_interval = 2}", run,
			"the run has 3 evaluations, so it cannot end early"},
		{"checkpoint.interval_steps = 100", run, "no checkpoint by steps"},
		{"checkpoint.interval_seconds = 90", run, "the run has at most 60.0 s, so it saves no checkpoint by time"},
		{"checkpoint.interval_seconds = 300", run, ""}, // the default value, which a stored configuration may contain
		{"schedule.name = \"step\"", run, "schedule.step_size = 30 (default) is not shorter than the run"},
		{"tracking.mlflow = \"mlruns\"\ntrain.steps = 8", Length{Steps: 8, StepsPerEpoch: 20},
			"tracking.interval = 10 (default) is not shorter than the run"},
		{"profile.trace_step = 101", run, "no timeline"},
		{"tracking = {mlflow = \"mlruns\", interval = 1000}", run,
			"MLflow gets points of its first and last step only"},
		{"augment = {mixup = 0.2, mix_off_epoch = 5}", run, "all its epochs mix"},
		{"", run, ""},
	} {
		got := mustParse(t, c.text).BeyondEnd(c.run)
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
			t.Errorf("%s: got %q, want %q", c.text, got, c.want)
		}
	}
	c, err := Parse("", nil, recipes, Override{Key: "model.name", Value: "tall"})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.BeyondEnd(run); len(got) != 1 ||
		!strings.Contains(got[0], "schedule.warmup_steps = 100 (default of tall)") {
		t.Errorf("a default of the model: got %q", got)
	}
}

// If a run is shorter than an interval, the interval has a consequence. Every key that is an interval must state it, or
// must be in this list with a reason.
func TestEveryIntervalHasAConsequenceInAShortRun(t *testing.T) {
	exempt := map[string]string{
		"balance.interval": "package rebalance warns, because the first decision depends on the policy",
		"train.epochs":     "is the length", "train.steps": "is the length", "train.max_seconds": "is the length",
		"data.fallback_epochs": "limits the length",
		"profile.trace_steps":  "the timeline ends with the run", "dashboard.refresh_seconds": "not a span of the run",
		"tracking.flush_seconds": "after the run",
		"notify.timeout_seconds": "a time limit", "parallel.timeout_seconds": "a time limit",
		"parallel.rendezvous_timeout_seconds": "a time limit",
	}
	for _, table := range Default().tables() {
		for _, k := range table.keys {
			key := table.name + "." + k.name
			span := k.unit == "steps" || k.unit == "epochs" || k.unit == "evaluations" || k.unit == "s"
			if why, is := exempt[key]; span && k.silent == "" && !is {
				t.Errorf("%s: want Silent or SilentAtEnd", key)
			} else if is && (k.silent != "" || !span) {
				t.Errorf("%s is exempt (%s), but has a consequence or no such unit", key, why)
			}
		}
	}
}
