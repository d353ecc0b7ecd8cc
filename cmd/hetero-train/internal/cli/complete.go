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

// CompleteCheckpoint completes the names of runs and of their checkpoints, in the configured folder or in the default
// folder. If no run matches, the shell completes folders.
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
			continue // the name of the folder is not a valid pattern
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

// MustComplete panics if the registration of a completion has failed. This is a programming error: the flag does not
// exist.
func MustComplete(err error) {
	if err != nil {
		panic(fmt.Errorf("completion: %w", err))
	}
}
