package config

// Config is a complete, resolved configuration: every key has a value, either set or default.
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
	Lab        Lab
	NCCL       NCCL

	places map[string]place // by full dotted key; keys at their defaults are absent
}

// Origin returns the source of a key's value: "FILE:LINE", or Override.Origin. It returns "" for a key at its default.
func (c *Config) Origin(key string) string { return c.places[key].String() }

// table is one [table] of the file, bound to its struct.
type table struct {
	name  string
	doc   string
	needs []Need // apply to all of its keys
	keys  []Key
	// own contains the keys of the chosen model, data set or policy. They are part of keys.
	own []Key
}

// tables binds every key to its field in c, in the order of the file.
func (c *Config) tables() []table {
	ts := []table{
		{name: "experiment", doc: "Name of the run and location of its files: `<output_dir>/<name>/{logs,configs,checkpoints,results}`.", keys: c.Experiment.Keys()},
		{name: "device", doc: "Device that computes.", keys: c.Device.Keys()},
		{name: "model", doc: "The network. `model.name` determines further keys.", keys: c.Model.Keys()},
		{name: "data", doc: "Training data, and how samples are read and cropped.", keys: c.Data.Keys()},
		{name: "augment", doc: "Augmentation of training images after crop and flip (`[data]`). `docs/augmentation.md` has the details, and the differences from torchvision and timm.", keys: c.Augment.Keys()},
		{name: "train", doc: "Length and precision of the training run.", keys: c.Train.Keys()},
		{name: "optimizer", doc: "Optimizer and its hyperparameters.", keys: c.Optimizer.Keys()},
		{name: "schedule", doc: "Learning rate over the run: a warm-up, then the curve that the key `name` selects.", keys: c.Schedule.Keys()},
		{name: "ema", doc: "Exponential moving averages of the weights and of BatchNorm's running statistics, in addition to the trained weights. Averaged weights are often more accurate.", keys: c.EMA.Keys()},
		{name: "parallel", doc: "Runs of several ranks: rank discovery and transport of gradients.", keys: c.Parallel.Keys()},
		{name: "balance", doc: "Division of the global batch among unequal ranks. No effect with one rank. A policy can have further keys.", keys: c.Balance.Keys()},
		{name: "profile", doc: "Per-step records of times and metrics.", keys: c.Profile.Keys()},
		{name: "checkpoint", doc: "Intervals and number of checkpoints. A run always saves at its end.", keys: c.Checkpoint.Keys()},
		{name: "lab", doc: "Testbed of unequal ranks on one machine.", keys: c.Lab.Keys()},
		{name: "nccl", doc: "Settings of NCCL. The program sets `NCCL_<KEY>` for each key that is not at its default. Settings that are not in this table are refused, because some of them load code or write files (`NCCL_*_PLUGIN`, `NCCL_*_FILE`).", needs: []Need{Is("parallel.backend", "auto", "nccl")}, keys: c.NCCL.Keys()},
	}
	for i := range ts {
		if own := c.ownOptions(ts[i].name); own != nil && *own != nil {
			ts[i].own = (*own).Keys()
			if ts[i].name == "balance" { // policies never affect training results
				ts[i].own = each(Key.Operational, ts[i].own)
			}
		}
		ts[i].keys = append(ts[i].keys, ts[i].own...)
	}
	return ts
}

// ownOptions returns the field for the options of a table's chosen kind; nil for a table without kinds.
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

// Default returns a configuration with every common key at its default. It does not contain keys of a model, data set
// or policy; [Parse] of an empty text includes them.
func Default() *Config {
	c := new(Config)
	for _, t := range c.tables() {
		for _, k := range t.keys {
			k.setDefault()
		}
	}
	c.fillDependentDefaults(func(string) bool { return false })
	return c
}

// fillDependentDefaults sets keys whose default depends on another key, unless they were set.
func (c *Config) fillDependentDefaults(given func(key string) bool) {
	if c.Optimizer.Name == "adamw" {
		if !given("optimizer.lr") {
			c.Optimizer.LR = 0.001
		}
		if !given("optimizer.weight_decay") {
			c.Optimizer.WeightDecay = 0.01
		}
	}
	usual := c.Data.traits
	if !given("data.image_size") && usual.ImageSize > 0 {
		c.Data.ImageSize = usual.ImageSize
	}
	if !given("data.crop_padding") {
		c.Data.CropPadding = usual.CropPadding
	}
	if !given("data.random_resized_crop") && c.Data.CropPadding == 0 {
		c.Data.RandomResizedCrop = usual.RandomResizedCrop
	}
	if !given("data.flip") {
		c.Data.Flip = usual.Flip
	}
}
