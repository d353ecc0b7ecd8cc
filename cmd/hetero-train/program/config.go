package program

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
)

func newConfig(a *cli.App) *cobra.Command {
	parent := &cobra.Command{
		Use:   "config",
		Short: "Show a configuration, its schema or its documentation",
		Args:  cli.NoArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	// Each of these commands checks the file of flag -c. Only config show prints its settings.
	add := func(use, short, example string, text func(cfg *config.Config) []byte) {
		parent.AddCommand(cli.WithConfig(&cobra.Command{
			Use:     use,
			Short:   short,
			Example: example,
			Args:    cli.NoArguments,
			RunE: func(cmd *cobra.Command, _ []string) error {
				cfg, err := a.Load()
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(text(cfg))
				return err
			},
		}))
	}
	add("show", "Print every key with its resolved value, as TOML",
		"  hetero-train config show -c configs/resnet50.toml --set data.batch_size=64", (*config.Config).TOML)
	add("schema", "Print the JSON Schema of configuration files",
		"  hetero-train config schema > hetero-train.schema.json", func(*config.Config) []byte {
			return config.Schema(a.Env.Catalog)
		})
	parent.AddCommand(cli.WithConfig(newDocs(a)))
	return parent
}

func newDocs(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "docs [KEY | TABLE...]",
		Short: "Print the documentation of keys",
		Long: `Print the documentation of keys. Without an argument, the command prints a page of all keys, as Markdown. With a key such as
optimizer.lr, or a table such as optimizer, it prints the meaning, type, unit and default of these keys.`,
		Example: `  hetero-train config docs optimizer.lr
  hetero-train config docs balance
  hetero-train config docs | less`,
		RunE: func(cmd *cobra.Command, names []string) error {
			if _, err := a.Load(); err != nil {
				return err
			}
			if len(names) == 0 {
				_, err := cmd.OutOrStdout().Write(config.Markdown(a.Env.Catalog))
				return err
			}
			var texts []string
			for _, name := range names {
				text, err := config.Describe(a.Env.Catalog, name)
				if err != nil {
					return exit.Usagef("config docs: %w", err)
				}
				texts = append(texts, text)
			}
			_, err := io.WriteString(cmd.OutOrStdout(), strings.Join(texts, "\n"))
			return err
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var keys []string
			for _, v := range a.Env.Catalog.Values() {
				keys = append(keys, v.Key)
			}
			return keys, cobra.ShellCompDirectiveNoFileComp
		},
	}
}
