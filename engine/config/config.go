package config

// Config is a complete, resolved configuration: every key has a value from the file, from the command line, or its
// default.
type Config struct {
	Experiment Experiment
	Device     Device
	Model      Model
	Data       Data
	Augment    Augment
	Train      Train
	Optimizer  Optimizer
	Schedule   Schedule
	EMA        EMA
	Parallel   Parallel
	Balance    Balance
	Profile    Profile
	Checkpoint Checkpoint
	Dashboard  Dashboard
	Metrics    Metrics
	Notify     Notify
	Tracking   Tracking
	Lab        Lab
	NCCL       NCCL

	origins    map[string]origin // origins of the keys that were set, by full dotted key
	superseded []Superseded
	usual      map[string]string // sources of unusual defaults, by full dotted key
}

// Origin returns the source of a value: "FILE:LINE", or Override.Origin. It returns "" if the key has its default.
func (c *Config) Origin(key string) string { return c.origins[key].String() }

// table is one table of the file with the struct that it sets.
type table struct {
	name  string
	doc   string
	needs []Need // needs of all keys of the table
	keys  []Key
	// own contains the keys of the selected model, data set or policy. The keys in own are also in keys.
	own []Key
}

// tables returns all tables, in the order of the file. Each key sets its field in c.
func (c *Config) tables() []table {
	ts := []table{
		{
			name: "experiment",
			doc:  "Name of the run and location of its files: `<output_dir>/<name>/{logs,configs,checkpoints,results}`.",
			keys: c.Experiment.Keys()},
		{name: "device", doc: "Device that computes.", keys: c.Device.Keys()},
		{name: "model", doc: "The network. `model.name` determines further keys.", keys: c.Model.Keys()},
		{name: "data", doc: "Training data, and how samples are read and cropped.", keys: c.Data.Keys()},
		{name: "augment", doc: "Augmentation of training images after crop and flip (`[data]`). `docs/augmentation.md` has the details, and the differences from torchvision and timm.",
			keys: c.Augment.Keys()},
		{name: "train", doc: "Length and precision of the training run.", keys: c.Train.Keys()},
		{name: "optimizer", doc: "Optimizer and its hyperparameters.", keys: c.Optimizer.Keys()},
		{name: "schedule", doc: "Learning rate over the run: a warm-up, then the curve that the key `name` selects.",
			keys: c.Schedule.Keys()},
		{name: "ema", doc: "Exponential moving averages of the weights and of BatchNorm's running statistics, in addition to the trained weights. Averaged weights are often more accurate.",
			keys: c.EMA.Keys()},
		{name: "parallel", doc: "Runs of several ranks: rank discovery and transport of gradients.",
			keys: c.Parallel.Keys()},
		{
			name: "balance", doc: "Division of the global batch among unequal ranks. No effect with one rank. A policy can have further keys.",
			keys: c.Balance.Keys()},
		{name: "profile", doc: "Per-step records of times and metrics.", keys: c.Profile.Keys()},
		{name: "checkpoint", doc: "Intervals and number of checkpoints. A run always saves at its end.",
			keys: c.Checkpoint.Keys()},
		{name: "dashboard", doc: "Web page about runs (`docs/dashboard.md`).", keys: c.Dashboard.Keys()},
		{
			name: "metrics",
			doc:  "Metrics of the run: their server for Prometheus (`docs/monitoring.md`), and the size of their files.",
			keys: c.Metrics.Keys()},
		{name: "notify", doc: "Reports of events of the run to a program or a webhook (`docs/monitoring.md`).",
			keys: c.Notify.Keys()},
		{name: "tracking", doc: "Experiment tracking (`docs/monitoring.md`).", keys: c.Tracking.Keys()},
		{name: "lab", doc: "Testbed of unequal ranks on one machine.", keys: c.Lab.Keys()},
		{name: "nccl", doc: "Settings of NCCL. The program sets `NCCL_<KEY>` for each key that is not at its default. Environment variables `NCCL_*` without a key here are passed on with a warning, except those that load code or write files (`NCCL_*_PLUGIN`, `NCCL_*_FILE`), which are refused.",
			needs: []Need{Is("parallel.backend", "auto", "nccl")}, keys: c.NCCL.Keys()},
	}
	for i := range ts {
		if own := c.ownOptions(ts[i].name); own != nil && *own != nil {
			ts[i].own = (*own).Keys()
			if ts[i].name == "balance" { // policies do not affect training results
				ts[i].own = each(Key.Operational, ts[i].own)
			}
		}
		ts[i].keys = append(ts[i].keys, ts[i].own...)
	}
	return ts
}

// ownOptions returns the field for the options of the selected kind. It returns nil for a table without kinds.
func (c *Config) ownOptions(table string) *Options {
	switch table {
	case "model":
		return &c.Model.Options
	case "data":
		return &c.Data.Options
	case "balance":
		return &c.Balance.Options
	}
	return nil
}

// Default returns a configuration with the default of every common key. It does not contain the keys of a model, data
// set or policy. [Parse] of an empty text returns a configuration that also contains such keys.
func Default() *Config {
	c := new(Config)
	for _, t := range c.tables() {
		for _, k := range t.keys {
			k.setDefault()
		}
	}
	c.fillDefaults(func(string) bool { return false })
	return c
}
