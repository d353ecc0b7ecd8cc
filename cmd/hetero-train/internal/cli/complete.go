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

// CompleteCheckpoint completes runs of the configured folder, or of the default folder, and their checkpoints. If no
// run matches, the shell completes folders.
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
			continue // the folder's name is not a valid pattern: nothing to complete
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

// MustComplete registers a completion, and panics if the flag does not exist.
func MustComplete(err error) {
	if err != nil {
		panic(fmt.Errorf("completion: %w", err))
	}
}
