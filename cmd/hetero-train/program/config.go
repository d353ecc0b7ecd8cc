package program

import (
	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
)

func newConfig(a *app) *cobra.Command {
	parent := &cobra.Command{
		Use:   "config",
		Short: "Show a configuration, its schema or its documentation",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	// A file that is given is checked by each of the three; only show prints what is in it.
	add := func(use, short, example string, text func(cfg *config.Config) []byte) {
		parent.AddCommand(&cobra.Command{
			Use:     use,
			Short:   short,
			Example: example,
			Args:    noArguments,
			RunE: func(cmd *cobra.Command, _ []string) error {
				cfg, err := a.load()
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(text(cfg))
				return err
			},
		})
	}
	add("show", "Print every key with its resolved value, as TOML", "  hetero-train config show -c configs/resnet50.toml --set data.batch_size=64", (*config.Config).TOML)
	add("schema", "Print the JSON Schema of configuration files", "  hetero-train config schema > hetero-train.schema.json", func(*config.Config) []byte { return config.Schema(a.env.catalog) })
	add("docs", "Print the documentation of every key, as Markdown", "  hetero-train config docs | less", func(*config.Config) []byte { return config.Markdown(a.env.catalog) })
	return parent
}

// load reads the file given with -c, if any, with the overrides; every failure is a usage error.
func (a *app) load() (*config.Config, error) {
	cfg, err := config.Load(a.file, a.env.catalog, a.overrides...)
	return cfg, exit.With(exit.Usage, err)
}
