package config

// Schedule contains the keys of table [schedule].
type Schedule struct {
	Name         string  // "constant", "step", "multistep", "cosine" or "linear"
	WarmupSteps  int     // steps; 0 if WarmupEpochs is not 0
	WarmupEpochs float64 // epochs
	StepSize     int     // epochs
	Milestones   []int   // epochs, in ascending order
	Gamma        float64
	MinLR        float64
}

// Keys implements [Options].
func (s *Schedule) Keys() []Key {
	return each(Key.Learnt, []Key{
		Choice(&s.Name, "name", "constant", "constant", "step", "multistep", "cosine", "linear").
			Doc("Learning rate after the warm-up. `constant`: stays at `optimizer.lr`. `step`: is multiplied by `gamma` every `step_size` epochs. `multistep`: is multiplied by `gamma` at the start of each epoch in `milestones`. `cosine`, `linear`: falls along a cosine or a line to `min_lr` at the end of the run."),
		Int(&s.WarmupSteps, "warmup_steps", 0).Unit("steps").SilentAtEnd(
			"the learning rate never stays at optimizer.lr").
			Doc("Steps of the warm-up, in which the learning rate rises linearly to `optimizer.lr`. Step 1 is part of it. 0: `warmup_epochs` gives the length."),
		Float(&s.WarmupEpochs, "warmup_epochs", 0).Unit("epochs").SilentAtEnd(
			"the learning rate never stays at optimizer.lr").AtMost(1e6).
			Doc("Epochs of the warm-up; fractions are allowed. It is an error to set `warmup_steps` too. 0: `warmup_steps` gives the length; if both are 0, there is no warm-up."),
		Int(&s.StepSize, "step_size", 30).Unit("epochs").SilentAtEnd("the learning rate is never reduced").AtLeast(1).
			Only(Is("schedule.name", "step")).
			Doc("Epochs between two reductions of the learning rate."),
		Ints(&s.Milestones, "milestones").Unit("epochs").SilentAtEnd(
			"the learning rate is not reduced at the later milestones").AtLeast(1).Only(
			Is("schedule.name", "multistep")).
			Doc("Epochs at whose start the learning rate is reduced, in ascending order. Required with `multistep`."),
		Float(&s.Gamma, "gamma", 0.1).Above(0).AtMost(1).Only(Is("schedule.name", "step", "multistep")).
			Doc("Factor of each reduction."),
		Float(&s.MinLR, "min_lr", 0).Only(Is("schedule.name", "cosine", "linear")).
			Doc("Learning rate at the end of the run."),
	})
}
