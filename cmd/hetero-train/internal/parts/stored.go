package parts

import (
	"log/slog"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data/stored"
)

// LogRequests sets the logger for messages about object storage that does not answer.
func LogRequests(log *slog.Logger) { stored.LogTo(log) }

// keepObjects sets the cache for objects in S3 that the data set reads. A local .txt list may also name such objects.
// For a data set that cannot read objects, and therefore ignores data.object_cache_mb, it returns an error if a path is
// in S3.
func keepObjects(cfg *config.Config, log *slog.Logger) error {
	stored.LogTo(log)
	d := &cfg.Data
	named := strings.Contains(d.Path+d.ValPath, "s3://")
	if config.Ignores(d.Options, "object_cache_mb") {
		if named {
			return exit.Usagef("data.path: data set %s reads no objects of S3: want a path on this machine", d.Dataset)
		}
		return nil
	}
	dir, err := CacheDir(d.CacheDir)
	if err != nil && (named || strings.HasSuffix(d.Path, ".txt") || strings.HasSuffix(d.ValPath, ".txt")) {
		return err
	}
	// Configure is necessary even without a cache folder: the process must read only one version of each object.
	stored.Configure(stored.Options{CacheDir: dir, CacheBytes: int64(d.ObjectCacheMB) << 20, Logger: log})
	return nil
}
