package config

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// rule is a condition on one or several keys. The loader skips a rule if one of its keys already has a fault.
type rule struct {
	key   string   // key that the fault names
	with  []string // other keys that check reads
	check func(c *Config) *Fault
}

var experimentName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`)

// rules are the conditions that the bounds of a single key cannot express.
var rules = []rule{
	{key: "experiment.name", check: func(c *Config) *Fault {
		return unless(experimentName.MatchString(c.Experiment.Name), "not a folder name",
			quote(c.Experiment.Name), "1 to 64 letters, digits, '.', '_' or '-', not starting with '.' or '-'")
	}},
	{key: "experiment.output_dir", check: func(c *Config) *Fault { return notEmpty(c.Experiment.OutputDir) }},
	{key: "parallel.master_addr", check: func(c *Config) *Fault { return notEmpty(c.Parallel.MasterAddr) }},
	{key: "parallel.ports", check: func(c *Config) *Fault {
		_, _, err := PortRange(c.Parallel.Ports)
		return unless(err == nil, "not a range of ports", quote(c.Parallel.Ports),
			`"", a port, or a range of ports from 1 to 65535 such as "29600-29663"`)
	}},
	{key: "parallel.encrypt", with: []string{"parallel.backend"}, check: func(c *Config) *Fault {
		return unless(!c.Parallel.Encrypt || c.Parallel.Backend != "nccl", "NCCL does not encrypt its connections",
			`true with parallel.backend = "nccl"`, `parallel.backend = "gloo" or "auto"`)
	}},
	{key: "parallel.cert_file", with: []string{"parallel.ca_file", "parallel.key_file"}, check: func(c *Config) *Fault {
		set := 0
		for _, file := range []string{c.Parallel.CAFile, c.Parallel.CertFile, c.Parallel.KeyFile} {
			if file != "" {
				set++
			}
		}
		return unless(set == 0 || set == 3, "parallel.ca_file, cert_file and key_file must be set together",
			fmt.Sprintf("%d of the three", set), "all three or none")
	}},
	{key: "dashboard.cert_file", with: []string{"dashboard.key_file"}, check: func(c *Config) *Fault {
		return pair("dashboard", c.Dashboard.CertFile, c.Dashboard.KeyFile)
	}},
	{key: "dashboard.base_path", check: func(c *Config) *Fault {
		_, err := url.PathUnescape(c.Dashboard.BasePath)
		return unless(err == nil && basePath.MatchString(c.Dashboard.BasePath), "not a path of the address of a page",
			quote(c.Dashboard.BasePath), `"", or a path such as "/user/me/proxy/8501/"`)
	}},
	{key: "metrics.cert_file", with: []string{"metrics.key_file"}, check: func(c *Config) *Fault {
		return pair("metrics", c.Metrics.CertFile, c.Metrics.KeyFile)
	}},
	{key: "train.resume", check: func(c *Config) *Fault { return notEmpty(c.Train.Resume) }},
	{key: "metrics.max_bytes", check: func(c *Config) *Fault {
		return unless(c.Metrics.MaxBytes == 0 || c.Metrics.MaxBytes >= 1<<20, "too small for the files of records",
			fmt.Sprint(c.Metrics.MaxBytes), fmt.Sprintf("0 or at least %d", 1<<20))
	}},
	{key: "data.path", with: []string{"data.dataset"}, check: dataPath},
	{key: "data.val_path", with: []string{"data.dataset"}, check: func(c *Config) *Fault {
		return unless(c.Data.ValPath == "" || c.Data.traits.ValPath, "only the data sets "+
			strings.Join(c.Data.withValPath, ", ")+" have this key",
			quote(c.Data.ValPath)+" for "+quote(c.Data.Dataset), `""`)
	}},
	{key: "data.fallback", with: []string{"data.dataset"}, check: fallback},
	{key: "data.num_classes", with: []string{"data.dataset"}, check: func(c *Config) *Fault {
		return unless(c.Data.NumClasses == 0 || c.Data.traits.Computed, "only synthetic data sets have this key",
			fmt.Sprintf("%d for %s", c.Data.NumClasses, quote(c.Data.Dataset)), "0")
	}},
	{key: "data.num_classes", check: func(c *Config) *Fault {
		return unless(c.Data.NumClasses != 1, "with one class there is nothing to learn", "1", "0 or at least 2")
	}},
	{key: "model.num_classes", with: []string{"data.num_classes"}, check: func(c *Config) *Fault {
		return unless(c.Model.NumClasses == 0 || c.Model.NumClasses >= c.Data.NumClasses,
			"fewer outputs than the data set has classes",
			fmt.Sprint(c.Model.NumClasses), fmt.Sprintf("0 or at least data.num_classes = %d", c.Data.NumClasses))
	}},
	{key: "data.random_resized_crop", with: []string{"data.crop_padding"}, check: func(c *Config) *Fault {
		return unless(!c.Data.RandomResizedCrop || c.Data.CropPadding == 0, "cannot be combined with data.crop_padding",
			fmt.Sprintf("true with data.crop_padding = %d", c.Data.CropPadding), "false, or data.crop_padding = 0")
	}},
	{key: "data.std", with: []string{"data.mean"}, check: func(c *Config) *Fault {
		return unless(len(c.Data.Mean) == len(c.Data.Std), "data.mean and data.std must be set together",
			fmt.Sprintf("%d values of std, %d of mean", len(c.Data.Std), len(c.Data.Mean)), "both or neither")
	}},
	{key: "train.epochs", with: []string{"train.steps", "train.max_seconds"}, check: func(c *Config) *Fault {
		return unless(c.Train.Epochs > 0 || c.Train.Steps > 0 || c.Train.MaxSeconds > 0, "the run has no end",
			"0", "a positive value here, in train.steps or in train.max_seconds")
	}},
	{key: "train.precision", with: []string{"device.kind"}, check: func(c *Config) *Fault {
		onGPU := c.Device.Kind == "auto" || c.Device.Kind == "cuda" || c.Device.Kind == "null"
		return unless(c.Train.Precision != "fp16" || onGPU, "fp16 needs a GPU",
			fmt.Sprintf("%q on device.kind = %q", c.Train.Precision, c.Device.Kind), `"auto", "bf16" or "f32"`)
	}},
	{key: "parallel.cpu_ranks", with: []string{"device.kind"}, check: func(c *Config) *Fault {
		return unless(c.Parallel.CPURanks == 0 || c.Device.Kind == "auto" || c.Device.Kind == "cuda",
			"only device.kind = \"auto\" or \"cuda\" can combine GPU ranks and CPU ranks",
			fmt.Sprintf("%d with device.kind = %q", c.Parallel.CPURanks, c.Device.Kind),
			`0, or device.kind = "auto" or "cuda"`)
	}},
	{key: "parallel.cpu_ranks", with: []string{"parallel.ranks"}, check: func(c *Config) *Fault {
		return unless(c.Parallel.CPURanks == 0 || c.Parallel.Ranks == 0 || c.Parallel.CPURanks < c.Parallel.Ranks,
			"leaves no rank for a GPU",
			fmt.Sprintf("%d of parallel.ranks = %d", c.Parallel.CPURanks, c.Parallel.Ranks),
			`fewer than parallel.ranks, or device.kind = "cpu"`)
	}},
	{key: "train.grad_accumulation", with: []string{"data.batch_size"}, check: func(c *Config) *Fault {
		return unless(c.Data.BatchSize%c.Train.MicroBatches() == 0, "does not divide the global batch",
			fmt.Sprint(c.Train.MicroBatches()), fmt.Sprintf("a divisor of data.batch_size = %d", c.Data.BatchSize))
	}},
	mixedPairs("augment.mixup", func(a *Augment) float64 { return a.Mixup }),
	mixedPairs("augment.cutmix", func(a *Augment) float64 { return a.Cutmix }),
	{key: "model.ghost_group", with: []string{"model.batch_norm", "data.batch_size", "train.grad_accumulation"},
		check: ghostGroup},
	{key: "train.early_stop_patience", with: []string{"train.eval_interval"}, check: func(c *Config) *Fault {
		return unless(c.Train.EarlyStopPatience == 0 || c.Train.EvalInterval > 0,
			"early stopping needs evaluations during the run",
			fmt.Sprintf("%d with train.eval_interval = 0", c.Train.EarlyStopPatience),
			"0, or train.eval_interval of at least 1")
	}},
	{key: "notify.events", check: func(c *Config) *Fault {
		for _, e := range c.Notify.Events {
			if !slices.Contains(NotifyEvents, e) {
				return &Fault{Message: "unknown event", Got: quote(e),
					Want: "some of " + strings.Join(NotifyEvents, ", ")}
			}
		}
		return nil
	}},
	{key: "optimizer.nesterov", with: []string{"optimizer.momentum", "optimizer.name"}, check: func(c *Config) *Fault {
		return unless(!c.Optimizer.Nesterov || c.Optimizer.Name != "sgd" || c.Optimizer.Momentum > 0,
			"Nesterov momentum needs a momentum above 0",
			"true with optimizer.momentum = 0.0", "false, or optimizer.momentum above 0")
	}},
	{key: "schedule.warmup_epochs", with: []string{"schedule.warmup_steps"}, check: func(c *Config) *Fault {
		return unless(c.Schedule.WarmupSteps == 0 || c.Schedule.WarmupEpochs == 0, "the warm-up has two lengths",
			fmt.Sprintf("%s with schedule.warmup_steps = %d", formatFloat(c.Schedule.WarmupEpochs),
				c.Schedule.WarmupSteps), "one of the two")
	}},
	{key: "schedule.milestones", with: []string{"schedule.name"}, check: milestones},
	{key: "schedule.min_lr", with: []string{"optimizer.lr"}, check: func(c *Config) *Fault {
		return unless(c.Schedule.MinLR <= c.Optimizer.LR, "the learning rate would rise",
			formatFloat(c.Schedule.MinLR), fmt.Sprintf("at most optimizer.lr = %s", formatFloat(c.Optimizer.LR)))
	}},
	{key: "balance.fixed_shares", with: []string{"data.batch_size"}, check: func(c *Config) *Fault {
		total := 0
		for _, share := range c.Balance.FixedShares {
			total += share
		}
		return unless(len(c.Balance.FixedShares) == 0 || total == c.Data.BatchSize, "does not sum to the global batch",
			fmt.Sprintf("%s, sum %d", formatValue(c.Balance.FixedShares), total),
			fmt.Sprintf("a sum of data.batch_size = %d", c.Data.BatchSize))
	}},
	{key: "balance.power_watts", with: []string{"balance.objective"}, check: func(c *Config) *Fault {
		return unless(c.Balance.Objective != "energy" || len(c.Balance.PowerWatts) > 0,
			"required for objective \"energy\"", "[]", "the power of each rank, in W")
	}},
	{key: "balance.prices", with: []string{"balance.objective"}, check: func(c *Config) *Fault {
		return unless(c.Balance.Objective != "cost" || len(c.Balance.Prices) > 0, "required for objective \"cost\"",
			"[]", "the price of each rank per hour")
	}},
	{key: "nccl.max_nchannels", with: []string{"nccl.min_nchannels"}, check: func(c *Config) *Fault {
		return unless(c.NCCL.MaxNchannels == 0 || c.NCCL.MaxNchannels >= c.NCCL.MinNchannels,
			"less than the minimum number of channels",
			fmt.Sprint(c.NCCL.MaxNchannels), fmt.Sprintf("0 or at least nccl.min_nchannels = %d", c.NCCL.MinNchannels))
	}},
	{key: "nccl.max_ctas", with: []string{"nccl.min_ctas"}, check: func(c *Config) *Fault {
		return unless(c.NCCL.MaxCTAs == 0 || c.NCCL.MaxCTAs >= c.NCCL.MinCTAs,
			"less than the minimum number of thread blocks",
			fmt.Sprint(c.NCCL.MaxCTAs), fmt.Sprintf("0 or at least nccl.min_ctas = %d", c.NCCL.MinCTAs))
	}},
	{key: "nccl.nthreads", check: func(c *Config) *Fault {
		return unless(slices.Contains([]int{0, 64, 128, 256, 512}, c.NCCL.Nthreads), "invalid block size",
			fmt.Sprint(c.NCCL.Nthreads), "0, 64, 128, 256 or 512")
	}},
}

// CheckRanks checks the settings that must agree with the number of ranks on all machines. Load does not have this
// number. The error is an [*Error].
func (c *Config) CheckRanks(ranks int) error {
	var faults []Fault
	b := c.Balance
	for _, list := range []struct {
		key    string
		length int
	}{{"fixed_shares", len(b.FixedShares)}, {"power_watts", len(b.PowerWatts)}, {"idle_watts", len(b.IdleWatts)},
		{"prices", len(b.Prices)}} {
		if f := unless(list.length == 0 || list.length == ranks, "needs one value for each rank",
			fmt.Sprintf("%d values", list.length), fmt.Sprint(ranks)); f != nil {
			f.Key = "balance." + list.key
			faults = append(faults, *f)
		}
	}
	if c.Profile.Enabled {
		if f := c.Metrics.checkRanks(ranks); f != nil {
			faults = append(faults, *f)
		}
	}
	if faults != nil {
		return &Error{Faults: faults}
	}
	return nil
}

func unless(fine bool, message, got, want string) *Fault {
	if fine {
		return nil
	}
	return &Fault{Message: message, Got: got, Want: want}
}

func notEmpty(value string) *Fault { return unless(value != "", "must not be empty", "", "") }

func dataPath(c *Config) *Fault {
	switch traits := c.Data.traits; {
	case traits.NeedsPath && c.Data.Path == "":
		return &Fault{Message: fmt.Sprintf("dataset %s needs a path", quote(c.Data.Dataset)),
			Want: "a folder or an archive"}
	case traits.Computed && c.Data.Path != "":
		return &Fault{Message: "synthetic data sets have no path", Got: quote(c.Data.Path), Want: `""`}
	}
	return nil
}

func fallback(c *Config) *Fault {
	stand := c.Data.Fallback
	if stand == "" {
		return nil
	}
	if c.Data.traits.Computed { // the path may belong to a data set that the command line replaced
		return unless(stand == c.Data.Dataset, "synthetic data sets have no fallback", quote(stand), `""`)
	}
	return nil
}

func ghostGroup(c *Config) *Fault {
	group, micro := c.Model.GhostGroup, c.Data.BatchSize/c.Train.MicroBatches()
	if c.Model.BatchNorm != "ghost" {
		return unless(group == 0, `only model.batch_norm = "ghost" uses this key`, fmt.Sprint(group), "0")
	}
	return unless(group >= 1 && group <= micro, "invalid group size", fmt.Sprint(group),
		fmt.Sprintf("from 1 to the %d samples of a micro-batch", micro))
}

func milestones(c *Config) *Fault {
	list := c.Schedule.Milestones
	if c.Schedule.Name == "multistep" && len(list) == 0 {
		return &Fault{Message: `schedule.name = "multistep" needs milestones`,
			Want: "a list of epochs such as [30, 60, 80]"}
	}
	for i := 1; i < len(list); i++ {
		if list[i] <= list[i-1] {
			return &Fault{Message: "not ascending", Got: formatValue(list),
				Want: "epochs in ascending order, each once"}
		}
	}
	return nil
}

// checkSamples adds a fault if the model cannot read the samples of the data set.
func (l *loader) checkSamples() {
	m, d := &l.config.Model, &l.config.Data
	if l.bad["model.name"] || l.bad["data.dataset"] || m.Samples == d.Samples {
		return
	}
	named := func(kinds []Kind, s Samples) string {
		return strings.Join(names(slices.DeleteFunc(slices.Clone(kinds), func(k Kind) bool {
			return k.Samples != s && k.Samples != AnySamples
		})), ", ")
	}
	l.faultAt("data.dataset", Fault{Message: fmt.Sprintf("model %s reads %v, but data set %s has %v", quote(m.Name),
		m.Samples, quote(d.Dataset), d.Samples),
		Got: quote(d.Dataset),
		Want: fmt.Sprintf("a data set of %v (%s), or with model.name a model of %v (%s)", m.Samples,
			named(l.catalog.DataSets, m.Samples), d.Samples, named(l.catalog.Models, d.Samples))})
}

// checkRules applies every rule whose keys have no fault.
func (l *loader) checkRules() {
	for _, r := range rules {
		keys := append([]string{r.key}, r.with...)
		if slices.ContainsFunc(keys, func(key string) bool { return l.bad[key] }) {
			continue
		}
		if f := r.check(l.config); f != nil {
			l.faultAt(r.key, *f)
		}
	}
}

// faultAt adds a fault at the place where the key was set. For a key with its default, the place is the key's table in
// the file.
func (l *loader) faultAt(key string, f Fault) {
	at, given := l.origins[key]
	if !given {
		table, _, _ := strings.Cut(key, ".")
		at = origin{name: l.file, line: l.tableLine[table]}
	}
	l.fault(at, key, f)
}

// basePath matches a path whose parts are not empty and do not begin with a dot.
var basePath = regexp.MustCompile(`^(/[A-Za-z0-9_~@%+=:,-][A-Za-z0-9_~@%+=:,.-]*)*/?$`)

// pair refuses a certificate without its key, and a key without its certificate.
func pair(table, certificate, key string) *Fault {
	return unless((certificate == "") == (key == ""), table+".cert_file and key_file must be set together",
		fmt.Sprintf("%s and %s", quote(certificate), quote(key)), "both or none")
}
