package config

import (
	"strings"
	"testing"
)

func TestRules(t *testing.T) {
	cases := []struct {
		name string
		toml string
		key  string // key that the fault names; "" if the text is valid
	}{
		{"name with path", "experiment.name = \"a/b\"", "experiment.name"},
		{"name of dots", "experiment.name = \"..\"", "experiment.name"},
		{"name like a flag", "experiment.name = \"-c\"", "experiment.name"},
		{"empty name", "experiment.name = \"\"", "experiment.name"},
		{"name of 65 letters", "experiment.name = \"" + strings.Repeat("a", 65) + "\"", "experiment.name"},
		{"name of 64 letters", "experiment.name = \"" + strings.Repeat("a", 64) + "\"", ""},
		{"name with dot and dash", "experiment.name = \"run-1.2_x\"", ""},
		{"empty output folder", "experiment.output_dir = \"\"", "experiment.output_dir"},
		{"empty address", "parallel.master_addr = \"\"", "parallel.master_addr"},
		{"a range of ports", "parallel.ports = \"29600-29663\"", ""},
		{"one port", "parallel.ports = \"29600\"", ""},
		{"ports in the wrong order", "parallel.ports = \"29663-29600\"", "parallel.ports"},
		{"port 0", "parallel.ports = \"0\"", "parallel.ports"},
		{"a port above the last", "parallel.ports = \"65000-65536\"", "parallel.ports"},
		{"ports that are no numbers", "parallel.ports = \"a-b\"", "parallel.ports"},
		{"encrypted gradients", "parallel.encrypt = true", ""},
		{"encryption by NCCL", "parallel = {encrypt = true, backend = \"nccl\"}", "parallel.encrypt"},
		{"a certificate of the dashboard without a key", "dashboard.cert_file = \"a\"", "dashboard.cert_file"},
		{"a key of the metrics without a certificate", "metrics = {address = \"127.0.0.1:1\", key_file = \"a\"}",
			"metrics.cert_file"},
		{"a base path", "dashboard.base_path = \"/user/me%40example.com/proxy/8501/\"", ""},
		{"a base path without a slash", "dashboard.base_path = \"board\"", "dashboard.base_path"},
		{"a base path that goes up", "dashboard.base_path = \"/a/../b\"", "dashboard.base_path"},
		{"a base path with an empty part", "dashboard.base_path = \"/a//b\"", "dashboard.base_path"},
		{"a base path with a wrong escape", "dashboard.base_path = \"/a%zz\"", "dashboard.base_path"},
		{"a base path with a query", "dashboard.base_path = \"/a?b\"", "dashboard.base_path"},
		{"a certificate without a key", "parallel = {ca_file = \"a\", cert_file = \"b\"}", "parallel.cert_file"},
		{"all files of a certificate", "parallel = {ca_file = \"a\", cert_file = \"b\", key_file = \"c\"}", ""},
		{"records without a limit", "metrics.max_bytes = 0", ""},
		{"records of 1 MiB", "metrics.max_bytes = 1048576", ""},
		{"too little for records", "metrics.max_bytes = 1048575", "metrics.max_bytes"},
		{"a negative limit of records", "metrics.max_bytes = -1", "metrics.max_bytes"},
		{"empty resume", "train.resume = \"\"", "train.resume"},
		{"resume from a path", "train.resume = \"experiments/a/checkpoints/step-00000010\"", ""},

		{"images without a path", "data.dataset = \"images\"", "data.path"},
		{"images with a path", "data = {dataset = \"images\", path = \"/data/flowers\"}", ""},
		{"synthetic data with a path", "data.path = \"/data\"", "data.path"},
		{"shards held out of another data set", "data.val_path = \"val.tar\"", "data.val_path"},
		{"fallback of synthetic data", "data.fallback = \"synthetic_text\"", "data.fallback"},
		{"fallback that is the data set itself", "data.fallback = \"synthetic_image\"", ""},
		{"fallback of another sort", "data = {dataset = \"cifar10\", fallback = \"synthetic_text\"}", "data.fallback"},
		{"fallback of cifar10", "data = {dataset = \"cifar10\", fallback = \"synthetic_image\"}", ""},
		{"classes of real data", "data = {dataset = \"cifar10\", num_classes = 10}", "data.num_classes"},
		{"classes of synthetic data", "data.num_classes = 100", ""},
		{"a single class", "data.num_classes = 1", "data.num_classes"},
		{"fewer outputs than classes", "data.num_classes = 100\nmodel.num_classes = 10", "model.num_classes"},
		{"more outputs than classes", "data.num_classes = 100\nmodel.num_classes = 1000", ""},
		{"two crops", "data = {crop_padding = 4, random_resized_crop = true}", "data.random_resized_crop"},
		{"mixup of an odd micro-batch", "augment.mixup = 0.2\ndata.batch_size = 12\ntrain.grad_accumulation = 4",
			"augment.mixup"},
		{"cutmix of an odd batch", "augment.cutmix = 1.0\ndata.batch_size = 7", "augment.cutmix"},
		{"mixup of pairs", "augment.mixup = 0.2\ndata.batch_size = 12\ntrain.grad_accumulation = 3", ""},
		{"odd batch without mixing", "data.batch_size = 7", ""},
		{"mean without std", "data.mean = [0.5, 0.5, 0.5]", "data.std"},
		{"std without mean", "data.std = [0.5, 0.5, 0.5]", "data.std"},
		{"mean and std", "data.mean = [0.5, 0.5, 0.5]\ndata.std = [0.2, 0.2, 0.2]", ""},

		{"endless run", "train.epochs = 0", "train.epochs"},
		{"run ended by steps", "train = {epochs = 0, steps = 10}", ""},
		{"run ended by time", "train = {epochs = 0, max_seconds = 10}", ""},
		{"fp16 on a CPU", "device.kind = \"cpu\"\ntrain.precision = \"fp16\"", "train.precision"},
		{"fp16 on the reference device", "device.kind = \"reference\"\ntrain.precision = \"fp16\"", "train.precision"},
		{"bf16 on a CPU", "device.kind = \"cpu\"\ntrain.precision = \"bf16\"", ""},
		{"accumulation that leaves a rest", "data.batch_size = 100\ntrain.grad_accumulation = 3",
			"train.grad_accumulation"},
		{"accumulation that divides", "data.batch_size = 100\ntrain.grad_accumulation = 4", ""},

		{"ghost without a group", "model.batch_norm = \"ghost\"", "model.ghost_group"},
		{"group without ghost", "model.ghost_group = 32", "model.ghost_group"},
		{"group over the micro-batch",
			"model = {batch_norm = \"ghost\", ghost_group = 65}\ntrain.grad_accumulation = 2", "model.ghost_group"},
		{"group as large as the micro-batch",
			"model = {batch_norm = \"ghost\", ghost_group = 64}\ntrain.grad_accumulation = 2", ""},
		{"group that does not divide the batch", "model = {batch_norm = \"ghost\", ghost_group = 48}", ""},

		{"early stop without evaluations", "train = {early_stop_patience = 3, eval_interval = 0}",
			"train.early_stop_patience"},
		{"early stop", "train = {early_stop_patience = 3, early_stop_metric = \"loss\"}", ""},

		{"an event that does not exist", "notify.events = [\"finished\", \"ended\"]", "notify.events"},
		{"all events", "notify.events = [\"finished\", \"failed\", \"straggler\", \"diverged\", \"stalled\"]", ""},
		{"nesterov without momentum", "optimizer = {momentum = 0.0, nesterov = true}", "optimizer.nesterov"},
		{"nesterov with momentum", "optimizer.nesterov = true", ""},
		{"empty betas", "optimizer.betas = []", "optimizer.betas"},
		{"warm-up given twice", "schedule = {warmup_steps = 5, warmup_epochs = 0.5}", "schedule.warmup_epochs"},
		{"warm-up in part of an epoch", "schedule.warmup_epochs = 0.5", ""},
		{"multistep without milestones", "schedule.name = \"multistep\"", "schedule.milestones"},
		{"milestones out of order", "schedule = {name = \"multistep\", milestones = [30, 20]}", "schedule.milestones"},
		{"milestone given twice", "schedule = {name = \"multistep\", milestones = [30, 30]}", "schedule.milestones"},
		{"milestones", "schedule = {name = \"multistep\", milestones = [30, 60, 80]}", ""},
		{"schedule that rises", "schedule = {name = \"cosine\", min_lr = 1.0}", "schedule.min_lr"},
		{"schedule that stays", "schedule.min_lr = 0.1\noptimizer.lr = 0.1", ""},

		{"shares of another sum", "balance.fixed_shares = [100]", "balance.fixed_shares"},
		{"shares of the batch", "balance.fixed_shares = [128]", ""},
		{"shares for ranks of several machines", "parallel.ranks = 1\nbalance.fixed_shares = [100, 28]", ""},
		{"a share of none", "balance.fixed_shares = [128, 0]", ""},
		{"policy of four", "balance.policy = \"proportional\"", ""},

		{"channels the wrong way round", "nccl = {min_nchannels = 8, max_nchannels = 4}", "nccl.max_nchannels"},
		{"thread blocks the wrong way round", "nccl = {min_ctas = 8, max_ctas = 4}", "nccl.max_ctas"},
		{"least channels alone", "nccl.min_nchannels = 8", ""},
		{"block of 100 threads", "nccl.nthreads = 100", "nccl.nthreads"},

		{"CUDA device", "device.kind = \"cuda\"", ""},
		{"number of a GPU", "device.index = -2", "device.index"},
		{"fp16 where no GPU can be used", "train.precision = \"fp16\"\ndevice.kind = \"cpu\"", "train.precision"},
		{"fp16", "train.precision = \"fp16\"", ""},
		{"gloo on one rank", "parallel.backend = \"gloo\"", ""},
		{"two ranks", "parallel.ranks = 2", ""},
		{"a CPU rank in addition to GPUs", "parallel.cpu_ranks = 1", ""},
		{"a CPU rank of two", "parallel = {ranks = 2, cpu_ranks = 1}", ""},
		{"CPU ranks alone", "parallel = {ranks = 2, cpu_ranks = 2}", "parallel.cpu_ranks"},
		{"CPU ranks in addition to the CPU", "device.kind = \"cpu\"\nparallel.cpu_ranks = 1", "parallel.cpu_ranks"},
		{"balancing by energy without watts", "balance.objective = \"energy\"", "balance.power_watts"},
		{"balancing by energy", "balance.objective = \"energy\"\nbalance.power_watts = [200, 75]", ""},
		{"balancing by cost without prices", "balance.objective = \"cost\"", "balance.prices"},
		{"balancing by cost", "balance.objective = \"cost\"\nbalance.prices = [2.5]", ""},
		{"benching", "balance.bench_worthless = true", ""},
		{"hardware profile", "profile.gpu_profiles = \"gpu_profiles.json\"", ""},
	}
	covered := make(map[string]bool)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			covered[c.key] = true
			_, err := Parse("run.toml", []byte(c.toml), town)
			if c.key == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if faults := faultsOf(t, err); len(faults) != 1 || faults[0].Key != c.key {
				t.Errorf("got %v, want one fault at %s", faults, c.key)
			}
		})
	}
	for _, r := range rules {
		if !covered[r.key] {
			t.Errorf("no case violates a rule of %s", r.key)
		}
	}
}

func TestRulesNameKeysThatExist(t *testing.T) {
	values, _ := Default().flat()
	check := func(key string) {
		if _, exists := values[key]; !exists {
			t.Errorf("%s does not exist", key)
		}
	}
	for _, r := range rules {
		check(r.key)
		for _, key := range r.with {
			check(key)
		}
	}
}

// If a key has an invalid value, the rules on this key must not be checked. Their faults would be misleading.
func TestRuleIsNotCheckedOverFaultyKeys(t *testing.T) {
	_, err := Parse("run.toml", []byte("data.batch_size = 0\ntrain.grad_accumulation = 7\nbalance.fixed_shares = [1]"),
		town)
	if faults := faultsOf(t, err); len(faults) != 1 || faults[0].Key != "data.batch_size" {
		t.Errorf("got %v, want the fault of data.batch_size alone", faults)
	}
}

func TestSharesAreCheckedAgainstTheRanksOfTheRun(t *testing.T) {
	c := Default()
	if err := c.CheckRanks(3); err != nil {
		t.Errorf("no shares: %v", err)
	}
	c.Balance.FixedShares = []int{64, 64}
	if err := c.CheckRanks(2); err != nil {
		t.Errorf("two shares, two ranks: %v", err)
	}
	if faults := faultsOf(t, c.CheckRanks(3)); len(faults) != 1 || faults[0].Key != "balance.fixed_shares" {
		t.Errorf("two shares, three ranks: got %v", faults)
	}
}

func TestRecordsOfAllRanksNeedRoom(t *testing.T) {
	c := Default()
	c.Metrics.MaxBytes = 1 << 20
	for ranks, fits := range map[int]bool{1: true, 11: true, 12: false, 13: false} {
		err := c.CheckRanks(ranks)
		if fits {
			if err != nil {
				t.Errorf("%d ranks: %v", ranks, err)
			}
			continue
		}
		if faults := faultsOf(t, err); len(faults) != 1 || faults[0].Key != "metrics.max_bytes" {
			t.Errorf("%d ranks: got %v, want the fault of metrics.max_bytes", ranks, faults)
		}
	}
	c.Profile.Enabled = false // without profiling, ranks write no files
	if err := c.CheckRanks(13); err != nil {
		t.Error(err)
	}
}
