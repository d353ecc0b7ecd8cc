package program

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/testbed"
	"github.com/hetero-train/hetero-train/engine/lab"
)

func newNeighbour() *cobra.Command {
	return &cobra.Command{
		Use:    testbed.NeighbourCommand,
		Hidden: true,
		Short:  "Keep one CPU busy until standard input ends",
		Args:   cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := lab.Burn(cmd.InOrStdin()); err != nil {
				return errors.Join(errors.New(testbed.NeighbourCommand+": standard input"), err)
			}
			return nil
		},
	}
}
