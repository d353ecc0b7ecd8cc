package program

import (
	"cmp"
	"fmt"
	"regexp"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/analyze"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/balance"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/bench"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/bridge"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/certs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/checkpoints"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/dashboard"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/data"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/doctor"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/inference"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/nccl"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/plan"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/profile"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/runs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/schedule"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/selftest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/status"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/tracking"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/train"
	versions "github.com/hetero-train/hetero-train/cmd/hetero-train/internal/command/version"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/signals"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/nativelib"
)

const rootLong = `hetero-train trains deep-learning models on workers of unequal speed.
It divides each batch so that all workers finish at the same time.

Exit codes:
  0    done
  1    unexpected error
  2    bad flags or configuration
  3    data or checkpoint error
  4    training diverged
  5    communication error
  6    device error
  7    output cannot be written, for example the final checkpoint
  75   stopped by SIGTERM; state saved, or no step was made yet
  130  interrupted (Ctrl-C); state saved, or no step was made yet
  143  stopped by SIGTERM, state not saved`

const rootExample = `  hetero-train -c configs/resnet50.toml                        train with the settings of the file
  hetero-train -c configs/resnet50.toml --set train.epochs=3   change one setting
  hetero-train -c configs/resnet50.toml --resume none          start a new run instead of resuming
  hetero-train train --model simple_cnn --dataset synthetic_image --num-samples 1000 --batch-size 32 --epochs 2
                                                               train without a file
  hetero-train config show -c configs/resnet50.toml            print every setting, resolved
  hetero-train config docs                                     print the documentation of every key
  hetero-train devices                                         list the devices to train on`

// limits describes the features that are not available on this machine. It returns "" if all features are available.
func limits() string {
	why := nativelib.Loadable()
	if why == nil {
		return ""
	}
	trains := "Training runs on the reference device only (--device reference), with one rank, for tests: it is about a thousand times slower."
	if runtime.GOOS == "windows" {
		trains = "Training does not run on Windows."
	}
	return "\n\nLimits of this program on this machine:\n" +
		"  " + why.Error() + "\n" +
		"  " + trains + "\n" +
		"  Commands that plan, simulate, and read runs, data and checkpoints work."
}

func newRoot(a *cli.App) *cobra.Command {
	asked := false // flag --version, which has precedence over everything except --help
	root := &cobra.Command{
		Use:           cmp.Or(a.Env.Name, programName),
		Short:         "Train deep-learning models on unequal devices",
		Long:          rootLong + limits(),
		Example:       rootExample,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if asked {
				return nil
			}
			return cli.NoArguments(cmd, args)
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if asked {
				return nil
			}
			return prepare(a, cmd)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asked {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), version.Text())
				return err
			}
			if a.File == "" && len(a.Overrides) == 0 && len(a.Allow) == 0 {
				return cmd.Help()
			}
			return train.Start(cmd.Context(), a, nil)
		},
	}
	cli.WithConfig(root)
	root.SetOut(a.Env.Stdout)
	root.SetErr(a.Env.Stderr)
	root.SetFlagErrorFunc(cli.FlagError)
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		cli.HideRefused(cmd)
		help(cmd, args)
	})
	// Cobra's own flag would need a template to print only the text. With the template package, the linker keeps every
	// method of every type, which enlarges the program by a fifth.
	root.Flags().BoolVarP(&asked, "version", "v", false, "version for "+root.Name())
	_ = root.Flags().SetAnnotation("version", cobra.FlagSetByCobraAnnotation, []string{"true"})
	flags := root.PersistentFlags()
	flags.VarP(&cli.FileFlag{App: a}, "config", "c", "`FILE` (TOML) with the settings of the run")
	flags.Var(&cli.SetFlag{App: a}, "set", "set one key and override the file, for example train.epochs=3; repeatable")
	flags.StringVar(&a.LogLevel, "log-level", "info", "minimum level of the messages to show: `debug|info|warn|error`")
	flags.StringVar(&a.LogFormat, "log-format", logs.FormatText,
		"format of messages and progress: `text|json`; json: one JSON object per line on standard error")
	train.AddResume(root, a)
	root.AddCommand(families(a)...)
	root.CompletionOptions.DisableDefaultCmd = true
	addCompletions(root, a.Env.Catalog)
	addExamples(root)
	rename(root, root.Name())
	return root
}

// prepare runs before every command, after the checks of flags and arguments. It checks the global flags.
func prepare(a *cli.App, cmd *cobra.Command) error {
	if len(a.Files) > 1 {
		return exit.Usagef("-c: got %q, want one file: the settings of several files are not merged; --set TABLE.KEY=VALUE overrides a key of the file",
			a.Files)
	}
	if a.File == "" && cmd.Flags().Changed("config") {
		return exit.Usagef("-c: got an empty name, want a file")
	}
	if _, err := logs.ParseLevel(a.LogLevel); err != nil {
		return err
	}
	if a.LogFormat != logs.FormatText && a.LogFormat != logs.FormatJSON {
		return exit.Usagef("--log-format: unknown format (got %q, want text or json)", a.LogFormat)
	}
	if why := cli.Unconfigured(cmd); why != "" {
		if err := a.RefuseConfig(cmd, why); err != nil {
			return err
		}
	}
	if err := cli.CheckPaths(cmd); err != nil {
		return err
	}
	a.Started = true
	for _, w := range a.Env.UnknownVariables() {
		a.WarnOf(w)
	}
	return nil
}

// families returns the subcommands of the root command. To add a command, add a package and a line here.
func families(a *cli.App) []*cobra.Command {
	return []*cobra.Command{
		cli.WithConfig(train.New(a)),
		cli.WithConfig(profile.New(a)),
		balance.New(a),
		signals.Tidied(schedule.New(a)),
		newConfig(a),
		cli.WithConfig(signals.Tidied(dashboard.New(a))),
		cli.WithoutConfig(signals.Tidied(status.New(a)), "status reads the folder of a run"),
		cli.WithoutConfig(signals.Tidied(runs.New(a)), "runs reads the folders of runs"),
		signals.Tidied(bench.New(a)),
		signals.Tidied(nccl.New(a)),
		signals.Tidied(data.New(a)),
		cli.WithoutConfig(analyze.New(a), "analyze reads finished runs"),
		cli.WithoutConfig(signals.Tidied(tracking.New(a)), "the settings are those of the run"),
		cli.WithoutConfig(bridge.New(a), "the program that computes sends the settings"),
		checkpoints.New(a),
		cli.WithoutConfig(certs.New(a), "certificates do not depend on settings"),
		newNeighbour(),
		selftest.NewRank(),
		cli.WithConfig(signals.Tidied(plan.New(a))),
		cli.WithConfig(signals.Tidied(inference.NewEval(a))),
		cli.WithConfig(signals.Tidied(inference.NewPredict(a))),
		cli.WithConfig(signals.Tidied(inference.NewGenerate(a))),
		cli.WithConfig(doctor.New(a)),
		cli.WithoutConfig(devices.New(a), "this command shows the hardware of the machine"),
		cli.WithoutConfig(signals.Tidied(selftest.New(a)), "the checks do not depend on settings"),
		cli.WithoutConfig(versions.New(), "the version does not depend on settings"),
		newCompletion(),
	}
}

// addExamples copies the examples of subcommands to commands without examples.
func addExamples(cmd *cobra.Command) {
	var below []string
	for _, sub := range cmd.Commands() {
		if addExamples(sub); sub.Example != "" {
			below = append(below, sub.Example)
		}
	}
	if cmd.Example == "" {
		cmd.Example = strings.Join(below, "\n")
	}
}

// command matches the name of this program at the start of a command line.
var command = regexp.MustCompile(`(?m)\bhetero-train( |$)`)

// rename replaces the name of the program in the texts of cmd and its subcommands.
func rename(cmd *cobra.Command, name string) {
	cmd.Long, cmd.Example = command.ReplaceAllString(cmd.Long, name+"$1"),
		command.ReplaceAllString(cmd.Example, name+"$1")
	for _, sub := range cmd.Commands() {
		rename(sub, name)
	}
}

// programName is the name of this program. A program with additional components uses the name of its executable file
// instead.
const programName = "hetero-train"
