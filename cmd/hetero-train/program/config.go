package program

import (
	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/engine/config"
)

func newConfig(a *cli.App) *cobra.Command {
	parent := &cobra.Command{
		Use:   "config",
		Short: "Show a configuration, its schema or its documentation",
		Args:  cli.NoArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	// Each of the three commands checks the file of -c. Only config show prints the file.
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
	add("show", "Print every key with its resolved value, as TOML", "  hetero-train config show -c configs/resnet50.toml --set data.batch_size=64", (*config.Config).TOML)
	add("schema", "Print the JSON Schema of configuration files", "  hetero-train config schema > hetero-train.schema.json", func(*config.Config) []byte { return config.Schema(a.Env.Catalog) })
	add("docs", "Print the documentation of every key, as Markdown", "  hetero-train config docs | less", func(*config.Config) []byte { return config.Markdown(a.Env.Catalog) })
	return parent
}
