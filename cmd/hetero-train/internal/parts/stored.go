package parts

import (
	"log/slog"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data/stored"
)

// LogRequests sets the logger for servers of objects that do not answer.
func LogRequests(log *slog.Logger) { stored.LogTo(log) }

// keepObjects sets the cache of the objects that the data set reads. A local list may name objects, too. It refuses
// objects for data sets that read other files only.
func keepObjects(cfg *config.Config, log *slog.Logger) error {
	stored.LogTo(log)
	d := &cfg.Data
	named := strings.Contains(d.Path+d.ValPath, "s3://")
	switch d.Dataset {
	case "cifar10", "cifar100", "synthetic_image", "synthetic_text", "text":
		if named {
			return exit.Usagef("data.path: data set %s reads no objects of S3: want a path on this machine", d.Dataset)
		}
		return nil
	}
	dir, err := CacheDir(d.CacheDir)
	if err != nil && (named || strings.HasSuffix(d.Path, ".txt") || strings.HasSuffix(d.ValPath, ".txt")) {
		return err
	}
	// Without a folder for a cache, a process still reads one version of each object.
	stored.Configure(stored.Options{CacheDir: dir, CacheBytes: int64(d.ObjectCacheMB) << 20, Logger: log})
	return nil
}
