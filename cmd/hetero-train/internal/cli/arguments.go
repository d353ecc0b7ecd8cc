package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
)

// OnePath changes cmd to a command with exactly one argument, a path or the name of a run. Such a command refuses -c,
// --set and similar flags.
func (a *App) OnePath(cmd *cobra.Command, argument string, run func(path string) error) *cobra.Command {
	cmd.Args = Exactly(argument)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path, err := a.RunPath(args[0])
		if err != nil {
			return err
		}
		return exit.Classify(cmd.Context(), run(path))
	}
	return WithoutConfig(cmd, "this command reads the file or folder of its argument")
}

// Exactly returns a function that checks that there is exactly one argument. The parameter argument describes it.
func Exactly(argument string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return exit.Usagef("%s: got %d arguments %q, want %s", cmd.CommandPath(), len(args), args, argument)
		}
		return nil
	}
}

// AtMostOne returns an error if there is more than one argument.
func AtMostOne(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return exit.Usagef("%q takes one argument, got %q", cmd.CommandPath(), args)
	}
	return nil
}

// First returns the first element of args, or "" if args is empty.
func First(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// Keys of command annotations.
const (
	configured   = "hetero-train/configured"   // the command reads a configuration
	unconfigured = "hetero-train/unconfigured" // reason why the command and its subcommands read no configuration
)

// WithConfig marks a command that reads a configuration. All other commands refuse the flags -c and --set.
func WithConfig(cmd *cobra.Command) *cobra.Command { return annotated(cmd, configured, "yes") }

// WithoutConfig states why a command and its subcommands read no configuration. The text why completes the error for -c
// and --set, for example "this command reads finished runs".
func WithoutConfig(cmd *cobra.Command, why string) *cobra.Command {
	return annotated(cmd, unconfigured, why)
}

func annotated(cmd *cobra.Command, name, value string) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[name] = value
	return cmd
}

// Unconfigured returns the reason why a command reads no configuration. It returns "" if the command reads a
// configuration.
func Unconfigured(cmd *cobra.Command) string {
	if cmd.Annotations[configured] != "" {
		return ""
	}
	for c := cmd; c != nil; c = c.Parent() {
		if why := c.Annotations[unconfigured]; why != "" {
			return why
		}
	}
	if cmd.HasAvailableSubCommands() {
		return "this command only shows its help"
	}
	return "this command reads no configuration"
}

// RefuseConfig returns an error if the command line has -c, --set or another flag that sets a key. The text why states
// the reason.
func (a *App) RefuseConfig(cmd *cobra.Command, why string) error {
	var given []string
	if a.File != "" {
		given = append(given, "-c "+a.File)
	}
	for _, o := range a.Overrides {
		given = append(given, o.Origin)
	}
	if len(given) == 0 {
		return nil
	}
	return exit.Usagef("%s: %s cannot be used with this command: %s", cmd.CommandPath(), strings.Join(given, ", "), why)
}

// CheckPaths checks the values of flags for files and folders. It returns an error for a URL, and for a value that
// begins with ~, because a shell does not replace ~ in --flag=~/folder.
func CheckPaths(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		kind, _ := pflag.UnquoteUsage(f)
		if !slices.Contains([]string{"folder", "dir", "file", "path"}, strings.ToLower(kind)) {
			return
		}
		paths := []string{f.Value.String()}
		if list, several := f.Value.(pflag.SliceValue); several {
			paths = list.GetSlice()
		}
		check := config.CheckPath
		if f.Name == "path" || f.Name == "resume" { // data.path and train.resume may be URLs
			check = config.CheckPathOrObjects
		}
		for _, path := range paths {
			if fault := check(path); err == nil && fault != nil {
				err = exit.Usagef("--%s: %w", f.Name, fault)
			}
		}
	})
	return err
}

// HideRefused hides the flags -c and --set from the help of a command that reads no configuration.
func HideRefused(cmd *cobra.Command) {
	if Unconfigured(cmd) == "" {
		return
	}
	for _, name := range []string{"config", "set"} {
		if f := cmd.InheritedFlags().Lookup(name); f != nil {
			f.Hidden = true // hides the flag in all commands, but a process prints only one help text
		}
	}
}

// NoArguments returns an error if arguments remain after flags and subcommands.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	if !cmd.HasSubCommands() {
		text = fmt.Sprintf("%q takes no arguments, got %q", cmd.CommandPath(), args[0])
	}
	cmd.SuggestionsMinimumDistance = 2 // maximum edit distance of a suggestion
	if strings.HasSuffix(args[0], ".toml") {
		text += "; a configuration is given with -c FILE"
	} else if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; nearest: " + strings.Join(near, ", ")
	} else if cmd.HasAvailableSubCommands() {
		text += fmt.Sprintf("; %s --help lists the commands", cmd.CommandPath())
	}
	return exit.Usagef("%s", text)
}

// nearestFlag returns "; nearest: --FLAG" for the error of an unknown flag, or the subcommand that has this flag. It
// returns "" if no flag is similar.
func nearestFlag(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	if owner := ownerOf(cmd, unknown.GetSpecifiedName()); owner != nil {
		file := ""
		if Unconfigured(owner) == "" {
			file = " -c FILE"
		}
		return fmt.Sprintf("; it is a flag of a subcommand: %s%s --%s", owner.CommandPath(), file,
			unknown.GetSpecifiedName())
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := config.Closest(unknown.GetSpecifiedName(), names); near != "" {
		return "; nearest: --" + near
	}
	return ""
}

// ownerOf returns the subcommand of cmd that has a flag, or nil. If several subcommands have the flag, it returns the
// first one. For the root command, which also trains, it prefers train.
func ownerOf(cmd *cobra.Command, flag string) (owner *cobra.Command) {
	for _, sub := range cmd.Commands() {
		f := sub.LocalFlags().Lookup(flag)
		if f == nil || f.Hidden || sub.Hidden {
			continue
		}
		if owner == nil || !cmd.HasParent() && sub.Name() == "train" {
			owner = sub
		}
	}
	return owner
}

// FlagError returns the error for a faulty flag of a command. If an argument before the flag should be a command but is
// none, the error names this argument instead.
func FlagError(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
		return NoArguments(cmd, args)
	}
	return exit.Usagef("%w%s; %s --help lists the flags", wanted(err), nearestFlag(cmd, err), cmd.CommandPath())
}

// wanted replaces an error of package strconv by an error that states which value the flag requires. It returns other
// errors unchanged.
func wanted(err error) error {
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &invalid) || !errors.As(err, &number) {
		return err
	}
	want := map[string]string{"bool": "true or false", "int": "an integer", "int64": "an integer",
		"uint64":       "an integer of at least 0",
		"float64":      "a number",
		"float64Slice": "numbers, separated by commas without spaces"}[invalid.GetFlag().Value.Type()]
	if want == "" {
		return err
	}
	if errors.Is(err, strconv.ErrRange) {
		want += " that fits into 64 bits"
	}
	return fmt.Errorf("--%s: got %q, want %s", invalid.GetFlag().Name, invalid.GetValue(), want)
}
