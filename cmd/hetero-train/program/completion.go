package program

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/devices"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/config"
)

// shells lists the supported shells, with the commands that install their completion scripts.
var shells = []struct {
	name, example string
	script        func(*cobra.Command, io.Writer) error
}{
	{"bash", "  source <(hetero-train completion bash)                     in this shell\n" +
		"  hetero-train completion bash > ~/.local/share/bash-completion/completions/hetero-train", bashCompletion},
	{"zsh", "  source <(hetero-train completion zsh)                      in this shell, after compinit\n" +
		"  hetero-train completion zsh > \"${fpath[1]}/_hetero-train\"", func(root *cobra.Command, w io.Writer) error {
		return root.GenZshCompletion(w)
	}},
	{"fish", "  hetero-train completion fish | source                      in this shell\n" +
		"  hetero-train completion fish > ~/.config/fish/completions/hetero-train.fish",
		func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) }},
	{"powershell", "  hetero-train completion powershell | Out-String | Invoke-Expression",
		func(root *cobra.Command, w io.Writer) error { return root.GenPowerShellCompletionWithDesc(w) }},
}

const completionLong = `Print a completion script for a shell.

The shell then completes commands and flags, and these values: configuration files, models, data sets, policies, devices, keys and
values of --set, runs and checkpoints.`

// newCompletion returns the command "completion". Unlike the command of package cobra, it refuses unknown shells and
// has examples.
func newCompletion() *cobra.Command {
	parent := &cobra.Command{Use: "completion", Short: "Print a completion script for a shell", Long: completionLong,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	for _, s := range shells {
		parent.AddCommand(&cobra.Command{Use: s.name, Short: "Print the completion script for " + s.name,
			Example: s.example, Args: cli.NoArguments, ValidArgsFunction: cobra.NoFileCompletions,
			RunE: func(cmd *cobra.Command, _ []string) error { return s.script(cmd.Root(), cmd.OutOrStdout()) }})
	}
	return parent
}

// bashBehindEquals is a part of the bash script that completes KEY=VALUE. It is necessary because bash replaces only
// the text after the last = of a word.
const bashBehindEquals = `
__hetero_train_behind_equals()
{
    __start_hetero-train "$@"
    local word="${COMP_LINE:0:COMP_POINT}"
    word="${word##* }"
    if [[ $COMP_WORDBREAKS == *=* && $word == [!-]*=* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${word%=*}="}")
    fi
}
complete -o default -F __hetero_train_behind_equals hetero-train
`

func bashCompletion(root *cobra.Command, w io.Writer) error {
	if err := root.GenBashCompletionV2(w, true); err != nil {
		return err
	}
	word := strings.NewReplacer("-", "_", ":", "_").Replace(root.Name())
	_, err := io.WriteString(w, strings.NewReplacer("hetero_train", word, "hetero-train", root.Name()).Replace(
		bashBehindEquals))
	return err
}

// addCompletions registers completions for the flags of all commands.
func addCompletions(root *cobra.Command, catalog config.Catalog) {
	keys := map[string]config.Values{}
	for _, v := range catalog.Values() {
		keys[v.Key] = v
	}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, set := range []*pflag.FlagSet{cmd.PersistentFlags(), cmd.LocalNonPersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) {
				if complete := completionOf(f, catalog, keys); complete != nil {
					cli.MustComplete(cmd.RegisterFlagCompletionFunc(f.Name, complete))
				}
			})
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
}

// completionOf returns the completion of a flag. It returns nil if the possible values are unknown; the shell then
// completes files.
func completionOf(f *pflag.Flag, catalog config.Catalog, keys map[string]config.Values) cobra.CompletionFunc {
	if k, ok := f.Value.(*cli.KeyFlag); ok {
		if k.Key == "train.resume" {
			return completeResume(catalog)
		}
		v := keys[k.Key]
		if k.Flag == "backend" {
			v.Allowed = []string{"auto", "nccl", "gloo"}
		}
		if len(v.Allowed) > 0 {
			return cobra.FixedCompletions(v.Allowed, cobra.ShellCompDirectiveNoFileComp)
		}
		if v.Path {
			return nil
		}
		return cobra.NoFileCompletions // the value is a number or a name
	}
	switch f.Name {
	case "config":
		return cobra.FixedCompletions([]string{"toml"}, cobra.ShellCompDirectiveFilterFileExt)
	case "set":
		return completeSet(catalog)
	case "allow":
		var learnt []string
		for _, v := range catalog.Values() {
			if v.Learnt {
				learnt = append(learnt, v.Key+"\t"+v.Doc)
			}
		}
		return cobra.FixedCompletions(learnt, cobra.ShellCompDirectiveNoFileComp)
	case "log-level":
		return cobra.FixedCompletions([]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp)
	case "device":
		kinds := []string{"auto"}
		for _, d := range devices.Drivers {
			kinds = append(kinds, d.Kind())
		}
		return cobra.FixedCompletions(kinds, cobra.ShellCompDirectiveNoFileComp)
	case "precision":
		return cobra.FixedCompletions(keys["train.precision"].Allowed, cobra.ShellCompDirectiveNoFileComp)
	case "model":
		return cobra.FixedCompletions(parts.KindNames(catalog.Models), cobra.ShellCompDirectiveNoFileComp)
	case "policy":
		return cobra.FixedCompletions(parts.KindNames(catalog.Policies), cobra.ShellCompDirectiveNoFileComp)
	}
	switch f.Value.Type() {
	case "string", "stringSlice":
		return nil
	}
	return cobra.NoFileCompletions
}

// completeSet completes the name of a key and, after the =, its value.
func completeSet(catalog config.Catalog) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return setCompletions(catalog, typed)
	}
}

func setCompletions(catalog config.Catalog, typed string) ([]string, cobra.ShellCompDirective) {
	key, value, chosen := strings.Cut(typed, "=")
	var found []string
	for _, v := range catalog.Values() {
		switch {
		case !chosen && strings.HasPrefix(v.Key, typed):
			found = append(found, cobra.CompletionWithDesc(v.Key+"=", v.Doc))
		case chosen && v.Key == key && v.Path:
			return nil, cobra.ShellCompDirectiveDefault
		case chosen && v.Key == key:
			for _, allowed := range v.Allowed {
				if strings.HasPrefix(allowed, value) {
					found = append(found, key+"="+allowed)
				}
			}
		}
	}
	directive := cobra.ShellCompDirectiveNoFileComp
	if !chosen {
		directive |= cobra.ShellCompDirectiveNoSpace
	}
	return found, directive
}

// completeResume completes checkpoints, "none" and "auto".
func completeResume(catalog config.Catalog) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		found, directive := cli.CompleteCheckpoint(catalog, cmd, typed)
		for _, word := range []string{"none", "auto"} {
			if strings.HasPrefix(word, typed) {
				// With the directive FilterDirs, the shell would ignore the words. With Default, it completes paths if
				// no word matches.
				found, directive = slices.Insert(found, 0, word), cobra.ShellCompDirectiveDefault
			}
		}
		return found, directive
	}
}
