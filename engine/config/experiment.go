package config

// Experiment contains the keys of table [experiment].
type Experiment struct {
	Name      string
	OutputDir string
	LogDir    string // "": <OutputDir>/<Name>/logs
	Seed      uint64
}

// Keys implements [Options].
func (e *Experiment) Keys() []Key {
	return []Key{
		String(&e.Name, "name", "distributed_training").Operational().
			Doc("Name of the run and of its folder: letters, digits, `.`, `_` and `-`, at most 64 characters. If a run of this name exists with different settings, the folder of the old run is renamed `distributed_training-1`, `-2`, … if the name is the default; with any other name, the new run is refused. A run with the default name that starts while another one trains gets the next free name (docs/training.md)."),
		String(&e.OutputDir, "output_dir", "experiments").Path().Operational().
			Doc("Folder that contains all runs."),
		String(&e.LogDir, "log_dir", "").Path().Operational().
			Doc("Folder of logs and metrics. Empty: `<output_dir>/<name>/logs`."),
		Seed(&e.Seed, "seed", 42).Learnt().
			Doc("Seed of all random choices: weights, order of samples, augmentation, dropout. With one rank, the same seed, machine and binary give bit-equal losses. With several ranks, losses are bit-equal if shares do not depend on measured times (`balance.policy = \"none\"` or `balance.fixed_shares`)."),
	}
}
