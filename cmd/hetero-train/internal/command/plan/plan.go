package plan

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/device/gpumodel"
)

const planLong = `Compute what a run costs, without running it: parameters, operations per step, and memory by purpose and micro-batch size.
The command also finds the largest micro-batch that fits into memory.

The memory of the device is exact, because the command chooses kernels and places tensors as training does. The memory of the
process is measured in this command where it does not follow from the settings: the program, its libraries and Go's runtime. The
limit is that of this machine: control groups, ulimit, and available memory, divided by the ranks.

The command opens the data set only if it needs no files, for a language model, and to count the classes of the data sets images
and webdataset if model.num_classes is 0.

With several ranks (--nproc-per-node or balance.fixed_shares), the output has one line for each distinct micro-batch size among the
ranks. The command assumes that all ranks have the device type of this machine. --memory sets another memory size: 8GiB, 80GB,
512MiB. It is the memory of a GPU; for a CPU, it is that of the process.

With --device-model, the command plans for a GPU that this machine need not have. It predicts the time of each kind of op and of
a step from the GPU's data sheet, without data loading and exchanges between ranks. Efficiencies were measured on one H100 in bf16;
predictions for other GPUs, types, models and batches are extrapolated. The plan does not contain the scratch memory of products
and convolutions.

If not even one sample fits, the command states the memory that one sample needs, and ends with exit code 6.

The last table lists the ports of a run on several machines, for firewalls (docs/security.md).

If the program cannot load native libraries, device.kind = "auto" plans for the reference device, with a warning.`

const planExample = `  hetero-train plan -c configs/resnet50.toml
  hetero-train plan -c configs/resnet50.toml --memory 8GiB --set data.image_size=224
  hetero-train plan --set model.name=resnet101 --set model.num_classes=1000 --samples 1,8,32 --json
  hetero-train plan -c configs/resnet50.toml --nproc-per-node 4
  hetero-train plan --model resnet50 --set model.num_classes=1000 --set data.image_size=224 --device-model h100`

// New returns the command that estimates the memory and the compute of a training run.
func New(a *cli.App) *cobra.Command {
	f := new(planFlags)
	cmd := &cobra.Command{Use: "plan", Short: "Compute the operations and memory that a run needs, without running it",
		Long: planLong, Example: planExample, Args: cli.NoArguments}
	cmd.Flags().StringVar(&f.memory, "memory", "",
		"memory `SIZE` of the GPU, or of the process of a CPU rank; default: that of this machine")
	cmd.Flags().StringVar(&f.gpu, "device-model", "",
		"plan for this `GPU`, and predict the time of a step: "+strings.Join(gpumodel.Names(), ", "))
	cmd.Flags().IntSliceVar(&f.samples, "samples", nil,
		"micro-batch sizes to plan for; default: powers of two around the configured size")
	cmd.Flags().BoolVar(&f.json, "json", false, "print one JSON object on one line of standard output")
	a.AddKeyFlag(cmd, "model", "model.name", "string",
		"name of the model: "+strings.Join(parts.KindNames(a.Env.Catalog.Models), ", "))
	a.AddKeyFlag(cmd, "dataset", "data.dataset", "string",
		"name of the data set: "+strings.Join(parts.KindNames(a.Env.Catalog.DataSets), ", "))
	a.AddKeyFlag(cmd, "device", "device.kind", "string", "device to plan for")
	a.AddKeyFlag(cmd, "precision", "train.precision", "string", "element type of the activations")
	a.AddKeyFlag(cmd, "nproc-per-node", "parallel.ranks", "int", "number of ranks")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f.limited, f.modelled = cmd.Flags().Changed("memory"), cmd.Flags().Changed("device-model")
		return exit.Classify(cmd.Context(), estimate(cmd.Context(), a, f))
	}
	return cmd
}
