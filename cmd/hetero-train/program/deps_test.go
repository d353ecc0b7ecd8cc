package program

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/hetero-train/hetero-train/"

// layers lists, from low to high, the packages of this module that each package may import. A package may import only
// packages in earlier rows. A package without a row of its own has the rules of row "folder/..." of its folder. To add
// a package, add its row. Before you allow another import, read ARCHITECTURE.md. Only cmd/hetero-train may import all
// packages, because only the program knows the concrete devices, models and data sets.
var layers = []layer{
	// Numbers and settings.
	{"engine/tensor", nil},
	{"engine/spelling", nil},
	{"engine/config", imports("engine/spelling")},
	{"profiler/telemetry", nil},
	{"profiler/account", nil},
	{"balancer/internal/stat", nil},
	{"balancer/divide", nil},
	{"balancer", imports("balancer/divide", "profiler/account")},
	{"balancer/internal/window", imports("balancer", "balancer/divide", "balancer/internal/stat", "profiler/account")},
	{"balancer/estimate", imports("balancer/divide", "balancer/internal/stat")},
	{"balancer/straggler", imports("balancer", "balancer/divide", "profiler/telemetry")},
	{"balancer/hybrid", imports("balancer", "balancer/divide", "balancer/estimate", "balancer/internal/stat",
		"balancer/internal/window", "profiler/account")},
	{"balancer/policies", imports("balancer", "balancer/divide", "balancer/hybrid", "balancer/internal/stat",
		"balancer/internal/window", "balancer/straggler")},
	{"balancer/simulate", imports("balancer", "balancer/divide", "balancer/policies")},
	{"balancer/scheduler/internal/limits", nil},
	{"balancer/scheduler", imports("balancer/scheduler/internal/limits")},
	{"balancer/scheduler/hyper", imports("balancer/scheduler")},
	{"balancer/scheduler/features", imports("balancer/scheduler")},
	{"balancer/scheduler/workload", imports("balancer/divide", "balancer/scheduler")},
	{"balancer/scheduler/simulate", imports("balancer/scheduler")},
	{"balancer/scheduler/ingest", imports("balancer/divide", "engine/spelling", "balancer/scheduler",
		"balancer/scheduler/workload")},
	{"balancer/scheduler/compare", imports("balancer/scheduler")},
	{"balancer/scheduler/uncertain", imports("balancer/scheduler")},
	{"engine/weather", nil},
	{"engine/nativelib", nil},
	{"engine/needtest", nil}, // only tests import it
	{"engine/golden", nil},   // only tests import it

	{"engine/platform", nil},
	{"engine/regular", nil},
	{"engine/cgroup", nil},
	{"engine/memory", imports("engine/cgroup")},
	{"engine/crowd", nil},
	{"engine/handshake", nil},
	{"engine/ports", nil},
	{"engine/diskwatch", nil},
	{"engine/conformance", nil},
	{"engine/objects/s3test", nil}, // only tests import it
	{"engine/objects", nil},

	// Devices.
	{"engine/device", imports("engine/tensor")},
	{"engine/device/dry", imports("engine/device")},
	{"engine/device/native", imports("engine/tensor", "engine/device")},
	{"engine/nativelib/nativetest", imports("engine/needtest", "engine/nativelib", "engine/device",
		"engine/device/native")},
	{"engine/device/internal/bookkeeping", imports("engine/platform", "engine/tensor", "engine/device")},
	{"engine/device/reference", imports("engine/tensor", "engine/device", "engine/device/internal/bookkeeping")},
	{"engine/device/devicetest", imports("engine/tensor", "engine/device", "engine/device/reference",
		"engine/conformance")},
	{"engine/lab", imports("engine/platform", "engine/weather", "engine/device")},
	{"engine/device/null", imports("engine/tensor", "engine/device", "engine/device/internal/bookkeeping")},
	{"engine/device/cpu", imports("engine/tensor", "engine/nativelib", "engine/device", "engine/device/native")},
	{"cuda", imports("engine/tensor", "engine/nativelib", "engine/device", "engine/device/native")},

	// Communication.
	{"engine/collective", imports("engine/tensor", "engine/device")},
	{"engine/collective/collectivetest", imports("engine/tensor", "engine/device", "engine/device/reference",
		"engine/collective", "engine/conformance", "engine/platform")},
	{"engine/collective/collectivetest/processes", imports("engine/tensor", "engine/device", "engine/collective",
		"engine/collective/collectivetest", "engine/conformance")},
	{"engine/collective/hosts", imports("engine/tensor", "engine/device", "engine/collective",
		"engine/collective/queue")},
	{"engine/collective/...", imports("engine/crowd", "engine/handshake", "engine/ports",
		"engine/tensor", "engine/device", "engine/nativelib",
		"engine/collective", "engine/collective/queue", "engine/collective/native", "engine/collective/signature")},

	{"nccl", imports("engine/tensor", "engine/device", "engine/nativelib", "engine/collective",
		"engine/collective/queue", "engine/collective/native", "engine/collective/signature")},

	// Computation: graphs and plans.
	{"engine/graph", imports("engine/tensor", "engine/device")},
	{"engine/plan", imports("engine/tensor", "engine/device", "engine/graph")},

	{"engine/timeline", imports("engine/device")},
	{"engine/gradsync", imports("engine/tensor", "engine/device", "engine/collective", "engine/graph", "engine/plan")},

	// Parts of a training run.
	{"engine/nn/random", nil},
	{"engine/plan/plantest", imports("engine/tensor", "engine/device", "engine/device/reference", "engine/graph",
		"engine/plan", "engine/nn/random")},
	{"engine/nn", imports("engine/tensor", "engine/graph")},
	{"engine/optim", imports("engine/tensor", "engine/device", "engine/plan")},
	{"engine/data/pixels", nil},
	{"engine/data/jpeg", nil},
	{"engine/data/webp", nil},
	{"engine/data", imports("engine/regular", "engine/tensor", "engine/data/pixels", "engine/data/jpeg")},
	{"engine/data/...", imports("engine/platform", "engine/regular", "engine/objects", "engine/tensor", "engine/data",
		"engine/data/...")},
	{"engine/checkpoint", imports("engine/platform", "engine/regular", "engine/tensor")},
	{"engine/checkpoint/bucket", imports("engine/platform", "engine/objects", "engine/checkpoint",
		"engine/data/filelock")},
	{"engine/weights", imports("engine/data/pyjson", "engine/regular", "engine/tensor", "engine/checkpoint")},
	{"engine/experiment", imports("engine/platform", "engine/regular", "engine/checkpoint")},
	{"engine/cluster/porttest", nil},
	{"engine/cluster/ranktest", imports("engine/crowd", "engine/cluster/rendezvous")}, // only tests import it
	{"engine/cluster", nil},
	{"engine/cluster/...", imports("engine/cgroup", "engine/crowd", "engine/handshake", "engine/platform")},

	// Training loop, models and observers.
	{"engine/models", imports("engine/graph", "engine/nn")},
	{"engine/generate", imports("engine/checkpoint", "engine/device", "engine/graph", "engine/models", "engine/nn",
		"engine/plan", "engine/tensor")},
	{"engine/models/...", imports("engine/graph", "engine/nn", "engine/models")},
	{"engine/models/modelstest", imports("engine/device", "engine/tensor", "engine/graph", "engine/nn",
		"engine/models")},
	{"engine/task", imports("engine/graph", "engine/nn")},
	{"engine/task/...", imports("engine/tensor", "engine/graph", "engine/nn", "engine/models", "engine/task")},
	{"engine/train/shares", imports("engine/data")},
	{"engine/train/replica", imports("engine/memory", "engine/train/shares", "engine/task", "engine/tensor", "engine/device",
		"engine/collective", "engine/graph", "engine/plan", "engine/gradsync", "engine/timeline", "engine/nn",
		"engine/nn/random",
		"engine/optim", "engine/data", "engine/checkpoint")},
	{"engine/train", imports("engine/train/replica", "engine/train/shares", "profiler/telemetry", "engine/device",
		"engine/collective", "engine/gradsync",
		"engine/optim", "engine/data", "engine/checkpoint", "engine/task")},
	{"profiler/stats", nil},
	{"profiler/cache", imports("engine/regular")},
	{"profiler/curves", imports("balancer/divide", "profiler/cache")},
	{"profiler/tuning", imports("profiler/cache")},
	{"profiler/precision", imports("engine/task/images", "profiler/cache", "engine/tensor", "engine/device",
		"engine/graph", "engine/nn", "engine/optim", "engine/data", "engine/train/replica")},
	{"profiler/system", imports("engine/cgroup", "engine/platform", "profiler/telemetry")},
	{"profiler/spool", imports("engine/diskwatch")},
	{"profiler/runtime", imports("profiler/account", "engine/memory", "engine/platform", "engine/regular", "profiler/telemetry",
		"profiler/spool")},
	{"profiler/trace", imports("engine/timeline", "profiler/spool")},
	{"profiler/runs", imports("balancer/straggler", "profiler/account", "engine/experiment", "engine/memory",
		"engine/regular", "profiler/telemetry",
		"profiler/runtime")},
	{"profiler/mlflow", imports("engine/experiment", "engine/platform", "engine/regular", "profiler/spool")},
	{"profiler/mlflow/mlflowtest", imports("engine/needtest", "engine/platform")}, // only tests import it
	{"profiler/analysis", imports("balancer/policies", "profiler/account", "engine/regular", "profiler/telemetry",
		"engine/experiment", "profiler/mlflow", "profiler/runtime", "profiler/runs")},
	{"profiler/drawing", imports("engine/experiment", "engine/regular")},
	{"profiler/analysis/figures", imports("profiler/stats", "engine/experiment", "profiler/analysis",
		"profiler/drawing")},
	{"profiler/httpguard", imports("engine/crowd")},
	{"profiler/dashboard", imports("profiler/analysis", "profiler/httpguard", "profiler/runs")},
	{"profiler/prometheus", imports("engine/crowd", "profiler/account", "profiler/httpguard", "profiler/telemetry")},
	{"profiler/hardware", imports("engine/device", "profiler/telemetry", "profiler/system")},
	{"profiler/hardware/hardwaretest", nil},
	{"profiler/measure", imports("engine/crowd", "engine/handshake", "engine/ports", "engine/platform",
		"profiler/stats", "engine/tensor", "engine/device",
		"engine/collective")},
	{"profiler/profiles", imports("engine/platform", "engine/regular", "profiler/cache", "profiler/system",
		"profiler/hardware", "profiler/measure")},

	// The program. A package of commands imports no other such package.
	{"cmd/hetero-train/internal/exit", imports("engine/memory", "engine/train", "engine/train/replica", "engine/data/content",
		"engine/checkpoint", "engine/cluster/rendezvous", "engine/collective",
		"engine/collective/hosts", "engine/collective/shm", "engine/config", "engine/data", "engine/device",
		"engine/experiment", "engine/gradsync", "engine/graph", "engine/handshake", "engine/platform", "engine/ports",
		"engine/regular", "engine/weights", "nccl")},
	{"cmd/hetero-train/internal/show", nil},
	{"cmd/hetero-train/internal/bridge", imports("engine/experiment")},
	{"cmd/hetero-train/internal/clitest", imports("engine/needtest")}, // no package may import clitest; only tests do
	{"cmd/hetero-train/internal/logs", imports("profiler/spool", "cmd/hetero-train/internal/exit",
		"cmd/hetero-train/internal/show")},
	{"cmd/hetero-train/internal/parts", imports("balancer", "balancer/divide", "balancer/policies", "engine/task",
		"engine/task/language", "engine/data/tokens", "engine/data/tokenizer", "engine/models/bert",
		"engine/models/gpt2", "engine/weights", "cmd/hetero-train/internal/show", "engine/checkpoint", "engine/config",
		"engine/data",
		"engine/data/cifar", "engine/data/download", "engine/data/huggingface", "engine/data/table", "engine/regular",
		"engine/data/images", "engine/data/stored", "engine/data/webdataset", "engine/data/webp",
		"engine/experiment",
		"engine/graph", "engine/models", "engine/models/resnet", "engine/models/simplecnn", "engine/nn",
		"engine/tensor",
		"cmd/hetero-train/internal/exit")},
	{"cmd/hetero-train/internal/session", imports("engine/checkpoint", "engine/cluster/discovery",
		"engine/cluster/rendezvous", "engine/config", "engine/device", "engine/experiment", "engine/lab",
		"engine/regular",
		"engine/weather", "profiler/system", "cmd/hetero-train/internal/exit", "cmd/hetero-train/internal/logs")},
	{"cmd/hetero-train/internal/cli", imports("engine/cluster/discovery", "engine/config",
		"cmd/hetero-train/internal/exit", "cmd/hetero-train/internal/logs", "cmd/hetero-train/internal/parts",
		"cmd/hetero-train/internal/session", "cmd/hetero-train/internal/show")},
	{"cmd/hetero-train/internal/version", nil},
	{"cmd/hetero-train/internal/devices", imports("cuda", "engine/config", "engine/device", "engine/device/cpu",
		"engine/device/devicetest", "engine/device/null", "engine/device/reference", "engine/tensor",
		"profiler/hardware",
		"profiler/precision", "cmd/hetero-train/internal/exit", "cmd/hetero-train/internal/parts",
		"cmd/hetero-train/internal/version")},
	{"cmd/hetero-train/internal/process", imports("cuda", "engine/cluster/discovery", "engine/cluster/rendezvous",
		"engine/cluster/supervisor", "engine/collective", "engine/collective/hosts", "engine/config",
		"engine/device/cpu", "engine/handshake", "engine/nativelib", "engine/platform", "engine/ports",
		"engine/regular", "engine/gradsync", "profiler/system", "cmd/hetero-train/internal/cli", "cmd/hetero-train/internal/devices",
		"cmd/hetero-train/internal/exit", "cmd/hetero-train/internal/logs", "cmd/hetero-train/internal/parts",
		"cmd/hetero-train/internal/session")},
	{"cmd/hetero-train/internal/signals", imports("engine/platform", "cmd/hetero-train/internal/exit",
		"cmd/hetero-train/internal/logs")},
	{"cmd/hetero-train/internal/compute", imports("engine/memory", "engine/data/images",
		"engine/train", "engine/train/replica", "engine/checkpoint", "engine/cluster/rendezvous",
		"engine/cluster/supervisor", "engine/config", "engine/device", "engine/device/cpu", "engine/ports",
		"profiler/telemetry", "engine/tensor", "profiler/hardware", "profiler/measure", "profiler/precision", "profiler/profiles",
		"profiler/system", "cmd/hetero-train/internal/cli", "cmd/hetero-train/internal/devices",
		"cmd/hetero-train/internal/exit", "cmd/hetero-train/internal/logs", "cmd/hetero-train/internal/process",
		"cmd/hetero-train/internal/session", "cmd/hetero-train/internal/signals")},
	{"cmd/hetero-train/internal/testbed", imports("engine/lab", "engine/weather", "cmd/hetero-train/internal/compute",
		"cmd/hetero-train/internal/logs", "cmd/hetero-train/internal/session")},
	{"cmd/hetero-train/internal/assembly", imports("engine/memory", "engine/train", "engine/train/replica", "engine/train/shares",
		"balancer/divide", "profiler/measure", "profiler/spool", "engine/data/content", "engine/platform",
		"engine/task/language", "engine/task", "engine/task/images", "engine/checkpoint", "engine/cluster/rendezvous",
		"engine/config",
		"engine/data", "engine/experiment", "engine/nn", "engine/optim", "engine/tensor", "engine/gradsync",
		"engine/weights", "engine/data/jpeg", "engine/data/webp",
		"cmd/hetero-train/internal/compute", "cmd/hetero-train/internal/exit", "cmd/hetero-train/internal/logs",
		"cmd/hetero-train/internal/parts", "cmd/hetero-train/internal/process", "cmd/hetero-train/internal/session",
		"cmd/hetero-train/internal/testbed",
		"cmd/hetero-train/internal/version")},
	{"cmd/hetero-train/internal/observe",
		imports("engine/memory", "engine/train", "engine/train/replica", "balancer", "balancer/straggler", "profiler/spool",
			"profiler/account", "cmd/hetero-train/internal/session", "profiler/mlflow", "profiler/prometheus",
			"engine/task", "engine/checkpoint", "engine/cluster/rendezvous", "engine/config",
			"engine/device", "engine/experiment", "engine/regular", "profiler/telemetry", "engine/timeline",
			"profiler/analysis",
			"profiler/analysis/figures", "profiler/runtime", "profiler/trace", "cmd/hetero-train/internal/assembly",
			"cmd/hetero-train/internal/compute", "cmd/hetero-train/internal/devices", "cmd/hetero-train/internal/exit",
			"cmd/hetero-train/internal/logs", "cmd/hetero-train/internal/parts", "cmd/hetero-train/internal/show",
			"cmd/hetero-train/internal/version")},
	{"cmd/hetero-train/internal/rebalance", imports("engine/train", "balancer", "balancer/divide", "balancer/hybrid",
		"balancer/straggler", "profiler/account", "balancer/simulate", "engine/checkpoint",
		"engine/config", "engine/experiment", "profiler/telemetry", "profiler/curves", "profiler/measure",
		"profiler/profiles",
		"cmd/hetero-train/internal/assembly", "cmd/hetero-train/internal/compute", "cmd/hetero-train/internal/exit",
		"cmd/hetero-train/internal/logs", "cmd/hetero-train/internal/observe", "cmd/hetero-train/internal/parts",
		"cmd/hetero-train/internal/session", "cmd/hetero-train/internal/show", "cmd/hetero-train/internal/version")},
	{"cmd/hetero-train/internal/exchange", imports("engine/collective", "engine/collective/gloo",
		"engine/collective/hosts", "engine/collective/shm", "engine/collective/staged", "nccl",
		"cmd/hetero-train/internal/compute", "cmd/hetero-train/internal/exit", "cmd/hetero-train/internal/logs",
		"cmd/hetero-train/internal/session")},
	{"cmd/hetero-train/internal/notify", imports("balancer", "balancer/straggler", "engine/checkpoint",
		"engine/platform", "engine/train")},
	{"cmd/hetero-train/internal/run",
		imports("profiler/runtime", "engine/memory", "engine/train", "engine/train/replica", "cmd/hetero-train/internal/bridge", "profiler/measure",
			"profiler/telemetry", "balancer/divide", "engine/diskwatch", "profiler/spool", "engine/device",
			"profiler/tuning", "profiler/mlflow", "profiler/runs", "cmd/hetero-train/internal/notify",
			"profiler/prometheus", "engine/objects", "engine/checkpoint", "engine/checkpoint/bucket", "engine/data/images", "engine/data/stored",
			"engine/cluster/supervisor", "engine/config",
			"engine/data", "engine/experiment", "engine/regular", "engine/task", "engine/gradsync", "engine/tensor",
			"cmd/hetero-train/internal/assembly", "cmd/hetero-train/internal/cli", "cmd/hetero-train/internal/compute",
			"cmd/hetero-train/internal/devices", "cmd/hetero-train/internal/exchange", "cmd/hetero-train/internal/exit",
			"cmd/hetero-train/internal/logs", "cmd/hetero-train/internal/observe", "cmd/hetero-train/internal/parts",
			"cmd/hetero-train/internal/process", "cmd/hetero-train/internal/rebalance",
			"cmd/hetero-train/internal/session",
			"cmd/hetero-train/internal/show", "cmd/hetero-train/internal/signals", "cmd/hetero-train/internal/testbed",
			"cmd/hetero-train/internal/version")},
	{"cmd/hetero-train/internal/command/bridge", imports("cmd/hetero-train/internal/bridge", "engine/cluster/discovery",
		"engine/config", "engine/platform",
		"cmd/hetero-train/internal/assembly", "cmd/hetero-train/internal/cli", "cmd/hetero-train/internal/exit",
		"cmd/hetero-train/internal/logs",
		"cmd/hetero-train/internal/run", "cmd/hetero-train/internal/version")},
	{"cmd/hetero-train/internal/command/analyze", imports("engine/task", "engine/experiment", "profiler/analysis",
		"profiler/analysis/figures", "profiler/runtime", "cmd/hetero-train/internal/cli",
		"cmd/hetero-train/internal/exit",
		"cmd/hetero-train/internal/observe", "cmd/hetero-train/internal/parts", "cmd/hetero-train/internal/show")},
	{"cmd/hetero-train/internal/command/tracking",
		imports("engine/config", "profiler/mlflow", "cmd/hetero-train/internal/cli",
			"cmd/hetero-train/internal/exit", "cmd/hetero-train/internal/logs")},
	{"cmd/hetero-train/internal/command/train", imports("cuda", "engine/cluster/discovery", "engine/config",
		"engine/experiment", "engine/platform", "nccl",
		"cmd/hetero-train/internal/assembly", "cmd/hetero-train/internal/cli", "cmd/hetero-train/internal/exit",
		"cmd/hetero-train/internal/logs", "cmd/hetero-train/internal/parts", "cmd/hetero-train/internal/process",
		"cmd/hetero-train/internal/session", "cmd/hetero-train/internal/signals")},
	{"cmd/hetero-train/internal/command/balance", imports("balancer", "balancer/simulate", "engine/config",
		"engine/memory", "engine/platform",
		"engine/regular", "cmd/hetero-train/internal/cli", "cmd/hetero-train/internal/command/train",
		"cmd/hetero-train/internal/exit", "cmd/hetero-train/internal/parts", "cmd/hetero-train/internal/rebalance",
		"cmd/hetero-train/internal/session", "cmd/hetero-train/internal/show")},
	{"cmd/hetero-train/internal/jobqueue", imports("balancer/scheduler")},
	{"cmd/hetero-train/internal/jobqueue/programs", nil},
	{"cmd/hetero-train/internal/jobqueue/...",
		imports("cmd/hetero-train/internal/jobqueue", "cmd/hetero-train/internal/jobqueue/programs")},
	{"cmd/hetero-train/internal/dqn", imports("balancer/scheduler", "balancer/scheduler/features",
		"balancer/scheduler/hyper", "balancer/scheduler/simulate", "balancer/scheduler/workload",
		"engine/tensor", "engine/device", "engine/graph", "engine/plan", "engine/nn", "engine/nn/random",
		"engine/optim", "engine/checkpoint")},
	{"cmd/hetero-train/internal/command/schedule", imports("balancer/scheduler", "balancer/scheduler/compare",
		"balancer/scheduler/features", "balancer/scheduler/ingest", "engine/platform", "engine/regular",
		"profiler/hardware", "profiler/profiles", "profiler/system", "profiler/telemetry",
		"cmd/hetero-train/internal/dqn", "engine/checkpoint", "engine/data/filelock", "engine/device",
		"cmd/hetero-train/internal/devices",
		"cmd/hetero-train/internal/version",
		"balancer/scheduler/simulate", "balancer/scheduler/uncertain", "balancer/scheduler/workload",
		"engine/experiment", "profiler/drawing", "profiler/trace",
		"cmd/hetero-train/internal/cli",
		"cmd/hetero-train/internal/exit", "cmd/hetero-train/internal/jobqueue",
		"cmd/hetero-train/internal/jobqueue/...",
		"cmd/hetero-train/internal/show")},
	{"cmd/hetero-train/internal/command/dashboard", imports("engine/config", "profiler/dashboard", "profiler/runs",
		"cmd/hetero-train/internal/cli", "cmd/hetero-train/internal/exit", "cmd/hetero-train/internal/logs",
		"cmd/hetero-train/internal/parts", "cmd/hetero-train/internal/process", "cmd/hetero-train/internal/version")},
	{"cmd/hetero-train/internal/command/runs",
		imports("engine/config", "engine/task", "profiler/runs", "cmd/hetero-train/internal/cli",
			"cmd/hetero-train/internal/exit", "cmd/hetero-train/internal/show")},
	{"cmd/hetero-train/internal/command/status", imports("engine/memory", "profiler/account", "profiler/analysis",
		"profiler/runs",
		"profiler/runtime", "profiler/telemetry", "cmd/hetero-train/internal/cli",
		"cmd/hetero-train/internal/exit", "cmd/hetero-train/internal/logs", "cmd/hetero-train/internal/show")},
	{"cmd/hetero-train/internal/command/bench", imports("engine/train/replica", "engine/config", "engine/data",
		"engine/data/jpeg",
		"engine/device", "engine/experiment", "engine/lab", "engine/plan", "engine/platform", "engine/tensor",
		"engine/timeline", "profiler/drawing", "profiler/stats", "profiler/trace",
		"cmd/hetero-train/internal/assembly", "cmd/hetero-train/internal/cli", "cmd/hetero-train/internal/devices",
		"cmd/hetero-train/internal/exit", "cmd/hetero-train/internal/observe", "cmd/hetero-train/internal/parts",
		"cmd/hetero-train/internal/session", "cmd/hetero-train/internal/show", "cmd/hetero-train/internal/version")},
	{"cmd/hetero-train/internal/command/checkpoints", imports("engine/train/replica", "engine/task",
		"engine/task/images", "engine/task/language", "engine/checkpoint", "engine/config",
		"engine/device/reference", "engine/data/tokenizer", "engine/experiment", "engine/nn", "engine/tensor",
		"engine/weights",
		"cmd/hetero-train/internal/assembly", "cmd/hetero-train/internal/cli", "cmd/hetero-train/internal/devices",
		"cmd/hetero-train/internal/exit", "cmd/hetero-train/internal/parts", "cmd/hetero-train/internal/show",
		"cmd/hetero-train/internal/signals", "cmd/hetero-train/internal/version")},
	{"cmd/hetero-train/internal/command/data", imports("engine/config", "engine/data", "engine/data/archive",
		"engine/data/cifar", "engine/data/huggingface", "engine/data/images", "engine/data/text",
		"engine/data/tokenizer", "engine/data/tokens",
		"engine/data/webdataset", "engine/platform", "engine/regular",
		"cmd/hetero-train/internal/cli", "cmd/hetero-train/internal/exit", "cmd/hetero-train/internal/logs",
		"cmd/hetero-train/internal/parts", "cmd/hetero-train/internal/show")},
	{"cmd/hetero-train/internal/command/devices", imports("engine/device", "engine/platform", "profiler/hardware",
		"profiler/system",
		"cmd/hetero-train/internal/cli", "cmd/hetero-train/internal/devices", "cmd/hetero-train/internal/show",
		"cmd/hetero-train/internal/version")},
	{"cmd/hetero-train/internal/command/version", imports("cuda", "engine/collective/gloo", "engine/collective/shm",
		"engine/data/jpeg", "engine/data/webp", "engine/device/cpu", "engine/nativelib", "nccl", "profiler/hardware",
		"cmd/hetero-train/internal/cli", "cmd/hetero-train/internal/exit",
		"cmd/hetero-train/internal/show", "cmd/hetero-train/internal/version")},
	{"cmd/hetero-train/internal/command/inference", imports("engine/train/replica", "engine/device", "engine/task",
		"engine/data/tokens", "engine/data/tokenizer", "engine/generate", "engine/task/images", "engine/checkpoint",
		"engine/cluster/discovery",
		"engine/config", "engine/data", "engine/data/images", "engine/experiment", "engine/lab", "engine/regular",
		"engine/weights", "cmd/hetero-train/internal/assembly", "cmd/hetero-train/internal/cli",
		"cmd/hetero-train/internal/compute", "cmd/hetero-train/internal/exit", "cmd/hetero-train/internal/parts",
		"cmd/hetero-train/internal/show", "cmd/hetero-train/internal/version")},
	{"cmd/hetero-train/internal/command/nccl", imports("cuda", "engine/cluster/rendezvous", "engine/collective",
		"engine/collective/hosts", "engine/collective/shm", "engine/device", "engine/experiment", "nccl",
		"profiler/hardware", "profiler/measure", "cmd/hetero-train/internal/cli", "cmd/hetero-train/internal/compute",
		"cmd/hetero-train/internal/exchange", "cmd/hetero-train/internal/exit", "cmd/hetero-train/internal/process",
		"cmd/hetero-train/internal/session", "cmd/hetero-train/internal/show", "cmd/hetero-train/internal/version")},
	{"cmd/hetero-train/internal/command/certs", imports("engine/handshake", "cmd/hetero-train/internal/cli",
		"cmd/hetero-train/internal/exit")},
	{"cmd/hetero-train/internal/command/plan",
		imports("engine/memory", "engine/train/replica", "engine/config", "engine/cluster/discovery", "engine/collective", "engine/data",
			"engine/device/dry", "engine/device/reference", "engine/nativelib", "engine/gradsync",
			"cmd/hetero-train/internal/assembly",
			"cmd/hetero-train/internal/cli", "cmd/hetero-train/internal/compute", "cmd/hetero-train/internal/exit", "cmd/hetero-train/internal/parts",
			"cmd/hetero-train/internal/show", "cmd/hetero-train/internal/version")},
	{"cmd/hetero-train/internal/command/profile", imports("engine/train/replica", "balancer/estimate",
		"engine/cluster/rendezvous", "engine/config", "engine/data",
		"engine/device", "engine/tensor", "profiler/hardware", "profiler/measure", "profiler/profiles",
		"profiler/system", "cmd/hetero-train/internal/assembly", "cmd/hetero-train/internal/cli",
		"cmd/hetero-train/internal/compute", "cmd/hetero-train/internal/exchange", "cmd/hetero-train/internal/exit",
		"cmd/hetero-train/internal/logs", "cmd/hetero-train/internal/signals", "profiler/telemetry",
		"cmd/hetero-train/internal/parts", "cmd/hetero-train/internal/session", "cmd/hetero-train/internal/show",
		"cmd/hetero-train/internal/version")},
	{"cmd/hetero-train/internal/command/doctor", imports("engine/platform", "nccl", "profiler/hardware",
		"profiler/system", "cmd/hetero-train/internal/cli", "cmd/hetero-train/internal/compute",
		"cmd/hetero-train/internal/exit", "cmd/hetero-train/internal/process", "cmd/hetero-train/internal/show", "cmd/hetero-train/internal/version")},
	{"cmd/hetero-train/internal/command/selftest", imports("cuda", "engine/cluster/rendezvous", "engine/collective",
		"engine/collective/collectivetest", "engine/collective/collectivetest/processes", "engine/collective/gloo",
		"engine/collective/local", "engine/collective/shm", "engine/collective/staged", "engine/conformance",
		"engine/device", "engine/device/devicetest", "nccl", "cmd/hetero-train/internal/cli",
		"cmd/hetero-train/internal/devices", "cmd/hetero-train/internal/exchange", "cmd/hetero-train/internal/exit",
		"cmd/hetero-train/internal/logs", "cmd/hetero-train/internal/session", "cmd/hetero-train/internal/show",
		"cmd/hetero-train/internal/version")},
	{"cmd/hetero-train/program", imports("...")},
	{"cmd/hetero-train", imports("cmd/hetero-train/program")},
}

// pure packages have no clock and no I/O.
var pure = imports("time", "os", "os/...", "net", "net/...", "engine/...", "profiler/...")

// never lists imports that are forbidden even if a row of layers allows them. Packages of the standard library have
// their import path as name.
var never = []layer{
	{"balancer/divide", pure},
	{"balancer/estimate", pure},
	{"balancer/straggler", pure},
	{"balancer/hybrid", pure},
	{"balancer/policies", pure},
	{"balancer/internal/...", pure},
	{"balancer", pure},
	{"balancer/scheduler/simulate", pure},
	{"balancer/scheduler/workload", pure},
	{"balancer/scheduler/uncertain", pure},
	{"balancer/simulate", pure},
	{"balancer/scheduler", pure},
	{"balancer/scheduler/internal/...", pure},
	{"balancer/scheduler/ingest", pure},
	{"balancer/scheduler/features", pure},
	{"balancer/scheduler/hyper", pure},
	{"balancer/...", imports("engine/...")}, // the packages without a row of their own may read files
	{"profiler/telemetry", pure},
	{"engine/spelling", pure},
	// other packages register their keys with config
	{"engine/config", imports("engine/...", "profiler/...", "balancer")},
	{"engine/weather", imports("time", "os", "os/...", "net", "net/...")}, // no clock, no I/O
	{"engine/models", imports("engine/train", "engine/train/...")},
	{"engine/models/...", imports("engine/train", "engine/train/...")},
	{"engine/nn", imports("engine/device", "engine/device/...")},
	{"engine/train/...", imports("engine/train", "engine/models", "engine/models/...", "engine/task/...",
		"engine/data/...", "engine/device/...", "cuda", "nccl")},
	{"engine/train", imports("engine/models", "engine/models/...", "engine/task/...", "engine/data/...",
		"engine/device/...", "cuda", "nccl")},
}

// vocabulary lists packages of tables and pure functions. They import no other package of this module, so a row
// of never that bans a folder does not ban them.
var vocabulary = imports("profiler/telemetry", "profiler/account", "engine/spelling")

// layer is a rule: the imports of a package, or with "/..." of all packages below a folder.
type layer struct {
	pkg     string
	imports []string
}

func imports(patterns ...string) []string { return patterns }

// source is one import in one file. Packages of this module are named without the path of the module.
type source struct{ pkg, file, imported string }

func TestImportsPointDownwards(t *testing.T) {
	sources, packages := readImports(t, "../../..")
	if len(packages) < 5 {
		t.Fatalf("found only the packages %v, want those of the whole module", packages)
	}
	for _, fault := range faults(sources, packages, layers, never) {
		t.Error(fault)
	}
}

func TestTablePointsDownwards(t *testing.T) {
	for i, row := range layers {
		for _, pattern := range row.imports {
			for _, higher := range layers[i+1:] {
				if pattern != "..." && !strings.HasSuffix(row.pkg, "/...") && matches(pattern, higher.pkg) {
					t.Errorf("%s may import %s, which stands below it in the table", row.pkg, higher.pkg)
				}
			}
		}
	}
}

func TestForbiddenImportsAreFound(t *testing.T) {
	table := []layer{{"low", nil}, {"low/...", imports("low")}, {"high", imports("low", "engine/...")},
		{"top", imports("...")}}
	bans := []layer{{"low", imports("time", "net/...")}, {"high", imports("engine/...")}}
	tests := []struct {
		name   string
		source source
		want   string // part of the only fault; "" if there is no fault
	}{
		{"an allowed arrow", source{"high", "f.go", module + "low"}, ""},
		{"an arrow upwards", source{"low", "f.go", module + "high"}, "low (f.go) imports high"},
		{"an arrow that only the parent's row allows", source{"high", "f.go", module + "low/inner"},
			"high (f.go) imports low/inner"},
		{"a subpackage under its folder's row", source{"low/inner", "f.go", module + "low"}, ""},
		{"everything", source{"top", "f.go", module + "low/inner"}, ""},
		{"a standard package", source{"high", "f.go", "time"}, ""},
		{"a banned standard package", source{"low", "f.go", "time"}, "low (f.go) imports time"},
		{"a banned tree", source{"low", "f.go", "net/http"}, "low (f.go) imports net/http"},
		{"a package of words in a banned tree", source{"high", "f.go", module + "engine/spelling"}, ""},
		{"another package of the banned tree", source{"high", "f.go", module + "engine/speech"},
			"high (f.go) imports engine/speech"},
		{"a package missing from the table", source{"other", "f.go", "fmt"}, "other has no row"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := faults([]source{test.source}, []string{test.source.pkg}, table, bans)
			if test.want == "" && len(got) > 0 {
				t.Errorf("got %q, want none", got)
			}
			if test.want != "" && (len(got) != 1 || !strings.Contains(got[0], test.want)) {
				t.Errorf("got %q, want one with %q", got, test.want)
			}
		})
	}
}

// faults returns one sentence for each import that violates the rules.
func faults(sources []source, packages []string, layers, never []layer) []string {
	var found []string
	for _, pkg := range packages {
		if rowOf(layers, pkg) == nil {
			found = append(found, fmt.Sprintf("%s has no row in the table of deps_test.go: say what it may import",
				pkg))
		}
	}
	for _, s := range sources {
		row, imported := rowOf(layers, s.pkg), strings.TrimPrefix(s.imported, module)
		if row != nil && imported != s.imported && !matchesAny(row.imports, imported) {
			found = append(found, fmt.Sprintf("%s (%s) imports %s, but may import only %v", s.pkg, s.file, imported,
				row.imports))
		}
		if ban := rowOf(never, s.pkg); ban != nil && matchesAny(ban.imports, imported) &&
			!slices.Contains(vocabulary, imported) {
			found = append(found, fmt.Sprintf("%s (%s) imports %s, which it never may", s.pkg, s.file, imported))
		}
	}
	return found
}

// rowOf returns the row of the package, or else the row of the nearest folder above the package, or nil.
func rowOf(rows []layer, pkg string) *layer {
	for name := pkg; name != "."; {
		if i := slices.IndexFunc(rows, func(row layer) bool { return row.pkg == name }); i >= 0 {
			return &rows[i]
		}
		name = filepath.ToSlash(filepath.Dir(strings.TrimSuffix(name, "/...")))
		if name != "." {
			name += "/..."
		}
	}
	return nil
}

func matchesAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, pkg) })
}

// matches reports whether a pattern matches a package. Pattern "a" matches a, "a/..." all packages below a, "..." all
// packages.
func matches(pattern, pkg string) bool {
	if folder, ok := strings.CutSuffix(pattern, "..."); ok {
		return strings.HasPrefix(pkg, folder)
	}
	return pkg == pattern
}

// readImports parses the imports of every Go file of the module except tests, for all build tags.
func readImports(t *testing.T, root string) (sources []source, packages []string) {
	t.Helper()
	skipped := []string{"build", "experiments", "third_party", "testdata", "vendor"}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && (slices.Contains(skipped, name) || strings.HasPrefix(name, ".") ||
				strings.HasPrefix(name, "_")) {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != root {
				return fs.SkipDir // the folder is another module
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(folder)
		if !slices.Contains(packages, pkg) {
			packages = append(packages, pkg)
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			sources = append(sources, source{pkg, name, imported})
		}
		return nil
	})
	if err != nil {
		t.Fatalf("read imports: %v", err)
	}
	return sources, packages
}
