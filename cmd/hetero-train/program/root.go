package program

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/signals"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/config"
)

const rootLong = `hetero-train trains deep-learning models on clusters whose workers are not equal.
It gives every worker the batch that it can finish in the same time.

Exit codes: 0 done; 1 unexpected; 2 bad flags or configuration; 3 data or checkpoint; 4 diverged;
5 communication; 6 device; 7 final save failed; 75 stopped by SIGTERM, saved; 130 interrupted, saved;
143 stopped by SIGTERM, not saved.`

const rootExample = `  hetero-train -c configs/resnet50.toml                        train as the file describes
  hetero-train -c configs/resnet50.toml --set train.epochs=3   with one setting changed
  hetero-train -c configs/resnet50.toml --resume none          start afresh instead of resuming
  hetero-train train --model simple_cnn --dataset synthetic_image --num-samples 1000 --batch-size 32 --epochs 2
                                                               without a file
  hetero-train config show -c configs/resnet50.toml            every setting, resolved
  hetero-train config docs                                     every key explained
  hetero-train devices                                         list the devices to train on`

// app is what the commands of one command line share.
type app struct {
	env  environment
	hide logs.Secrets
	args []string // as typed

	trains  bool // the command trains: standard output shows progress, not results
	started bool // flags and arguments were sound: what fails from here on is not a usage error by itself

	file      string            // -c
	logLevel  string            // --log-level
	logFormat string            // --log-format
	contest   *contestFlags     // of balance compare
	allow     []string          // --allow
	overrides []config.Override // --set and the flags that stand for keys, in the order typed
	counted   *numbering        // ranks of all nodes; nil: not counted
	stops     chan os.Signal    // that end the command while it counts them
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           cmp.Or(a.env.name, programName),
		Short:         "Train deep-learning models on unequal devices",
		Long:          rootLong,
		Example:       rootExample,
		Version:       version.Text(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArguments,
		// Runs once flags and arguments are sound, right before any command.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if a.file == "" && cmd.Flags().Changed("config") {
				return exit.Usagef("-c: got an empty name, want a file")
			}
			if _, err := logs.ParseLevel(a.logLevel); err != nil {
				return err
			}
			if a.logFormat != logs.FormatText && a.logFormat != logs.FormatJSON {
				return exit.Usagef("--log-format: unknown format (got %q, want text or json)", a.logFormat)
			}
			if why := cmd.Annotations[unconfigured]; why != "" && (a.file != "" || len(a.overrides) > 0) {
				return exit.Usagef("%s: -c and --set describe runs; %s", cmd.CommandPath(), why)
			}
			a.started = true
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.file == "" && len(a.overrides) == 0 {
				return cmd.Help()
			}
			return a.train(cmd.Context(), nil)
		},
	}
	root.SetOut(a.env.stdout)
	root.SetErr(a.env.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exit.Usagef("%w; %s --help lists the flags", err, cmd.CommandPath())
	})
	root.SetVersionTemplate("{{.Version}}\n")
	flags := root.PersistentFlags()
	flags.StringVarP(&a.file, "config", "c", "", "`FILE` (TOML) that describes the run")
	flags.Var(&setFlag{a}, "set", "override one key of the file, as train.epochs=3; repeatable")
	flags.StringVar(&a.logLevel, "log-level", "info", "least important messages to show: `debug|info|warn|error`")
	flags.StringVar(&a.logFormat, "log-format", logs.FormatText, "messages as `text|json`; json: standard error is one JSON object a line, progress included")
	addResume(root, a)
	root.AddCommand(
		newTrain(a),
		newProfile(a),
		newBalance(a),
		newConfig(a),
		signals.Tidied(newBench(a)),
		signals.Tidied(newNCCL(a)),
		signals.Tidied(newData(a)),
		withoutConfig(newAnalyze(a), "analyze reads finished ones"),
		newCheckpoint(a),
		newNeighbour(),
		newSelftestRank(),
		signals.Tidied(newPlan(a)),
		signals.Tidied(newEval(a)),
		signals.Tidied(newPredict(a)),
		withoutConfig(newDevices(a), "this command shows what the machine has"),
		withoutConfig(signals.Tidied(newSelftest(a)), "the checks do not depend on them"),
		withoutConfig(newVersion(), "the version does not depend on them"),
		newCompletion(),
	)
	root.CompletionOptions.DisableDefaultCmd = true
	addCompletions(root, a.env.catalog)
	addExamples(root)
	rename(root, root.Name())
	return root
}

// unconfigured annotates a command that reads no configuration with the reason, so that -c and --set are an error there.
const unconfigured = "hetero-train/unconfigured"

// withoutConfig refuses -c and --set for a command. why completes the error, as in "this command reads finished runs".
func withoutConfig(cmd *cobra.Command, why string) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[unconfigured] = why
	return cmd
}

// addExamples gives commands that have none of their own those of the commands below them.
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

// command is this program's name where a command line begins with it.
var command = regexp.MustCompile(`(?m)\bhetero-train( |$)`)

// rename puts the program's name into the texts of cmd and of the commands below it.
func rename(cmd *cobra.Command, name string) {
	cmd.Long, cmd.Example = command.ReplaceAllString(cmd.Long, name+"$1"), command.ReplaceAllString(cmd.Example, name+"$1")
	for _, sub := range cmd.Commands() {
		rename(sub, name)
	}
}

// addResume adds --resume and --allow, which the root and train have alike.
func addResume(cmd *cobra.Command, a *app) {
	cmd.Flags().StringArrayVar(&a.allow, "allow", nil, "`KEY` that affects what is learnt and may differ from the run that is resumed, as optimizer.lr; repeatable")
	cmd.Flags().Var(&keyFlag{app: a, flag: "resume", key: "train.resume", kind: "string"}, "resume", "`auto|none|PATH`: resume from the newest checkpoint, start afresh, or resume from the checkpoint PATH")
}

// noArguments refuses what is left on a command line after flags and subcommands.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	if !cmd.HasSubCommands() {
		text = fmt.Sprintf("%q takes no arguments, got %q", cmd.CommandPath(), args[0])
	}
	cmd.SuggestionsMinimumDistance = 2 // edits
	if strings.HasSuffix(args[0], ".toml") {
		text += "; a configuration is given with -c FILE"
	} else if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; nearest: " + strings.Join(near, ", ")
	}
	return exit.Usagef("%s", text)
}

// setFlag is --set: each use adds an override.
type setFlag struct{ app *app }

func (f *setFlag) String() string { return "" }
func (f *setFlag) Type() string   { return "table.key=value" }
func (f *setFlag) Set(text string) error {
	o, err := config.ParseSet(text)
	if err == nil {
		f.app.overrides = append(f.app.overrides, o)
	}
	return err
}

// keyFlag is a flag that stands for one key; its value is checked with the configuration.
type keyFlag struct {
	app  *app
	flag string // without the dashes
	key  string // full dotted key
	kind string // what --help shows
}

func (f *keyFlag) String() string { return "" }
func (f *keyFlag) Type() string   { return f.kind }
func (f *keyFlag) Set(text string) error {
	f.app.overrides = append(f.app.overrides, config.Override{Origin: "--" + f.flag, Key: f.key, Value: text})
	return nil
}
