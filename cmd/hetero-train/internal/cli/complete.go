package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/config"
)

// CompleteCheckpoint offers the runs of the configured folder, or of the usual one, and their checkpoints; other folders where none of them is meant.
func CompleteCheckpoint(catalog config.Catalog, cmd *cobra.Command, typed string) ([]string, cobra.ShellCompDirective) {
	cfg := parts.Defaults()
	if file := cmd.Flags().Lookup("config"); file != nil && file.Value.String() != "" {
		if own, err := config.Load(file.Value.String(), catalog); err == nil {
			cfg = own
		}
	}
	var found []string
	for _, pattern := range []string{"*/checkpoints", "*/checkpoints/step-*"} {
		matches, err := filepath.Glob(filepath.Join(cfg.Experiment.OutputDir, pattern))
		if err != nil {
			continue // a folder's name that is no pattern: nothing is offered
		}
		for _, path := range matches {
			if pattern == "*/checkpoints" {
				path = filepath.Dir(path)
			}
			if info, err := os.Stat(path); err == nil && info.IsDir() && strings.HasPrefix(path, typed) {
				found = append(found, path)
			}
		}
	}
	if len(found) == 0 {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// MustComplete panics where a completion is registered for a flag that does not exist.
func MustComplete(err error) {
	if err != nil {
		panic(fmt.Errorf("completion: %w", err))
	}
}
