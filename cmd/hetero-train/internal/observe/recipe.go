package observe

import (
	"fmt"
	"strings"

	"github.com/hetero-train/hetero-train/engine/config"
)

// logRecipe prints the optimizer, the learning rate and its schedule, and which of them are defaults of the model.
func (c *Console) logRecipe() {
	cfg, schedule := c.run.Process.Cfg, c.run.Schedule()
	c.Log(recipeText(cfg, schedule.Warmup), "recipe", "optimizer", cfg.Optimizer.Name, "lr", cfg.Optimizer.LR,
		"weight_decay", cfg.Optimizer.WeightDecay,
		"warmup_steps", schedule.Warmup, "clip_norm", cfg.Train.ClipNorm, "schedule", cfg.Schedule.Name)
}

// recipeText returns a text such as: "optimizer adamw, lr 0.0006, weight decay 0.1, warm-up 100 steps, clip 1, schedule
// cosine (defaults of gpt2: optimizer, lr)". The parameter warmup is the length of the warm-up in steps.
func recipeText(cfg *config.Config, warmup int) string {
	o := cfg.Optimizer
	items := []struct{ key, name, value string }{
		{"optimizer.name", "optimizer", o.Name},
		{"optimizer.lr", "lr", fmt.Sprint(o.LR)},
		{"optimizer.weight_decay", "weight decay", fmt.Sprint(o.WeightDecay)},
		{"schedule.warmup_steps", "warm-up", fmt.Sprintf("%d steps", warmup)},
		{"train.clip_norm", "clip", fmt.Sprint(cfg.Train.ClipNorm)},
		{"schedule.name", "schedule", cfg.Schedule.Name},
	}
	var all, usual []string
	for _, i := range items {
		if i.value == "0" || i.value == "0 steps" {
			all = append(all, "no "+i.name)
		} else {
			all = append(all, i.name+" "+i.value)
		}
		if cfg.DefaultOf(i.key) == cfg.Model.Name {
			usual = append(usual, i.name)
		}
	}
	text := strings.Join(all, ", ")
	switch {
	case len(usual) == len(items):
		text += fmt.Sprintf(" (defaults of %s)", cfg.Model.Name)
	case usual != nil:
		text += fmt.Sprintf(" (defaults of %s: %s)", cfg.Model.Name, strings.Join(usual, ", "))
	}
	return text
}
