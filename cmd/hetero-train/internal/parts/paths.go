package parts

import (
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
)

// CacheDir returns the folder for downloads and converted data.
func CacheDir(configured string) (string, error) {
	if configured != "" {
		return configured, nil
	}
	dir, err := UserCache("")
	if err != nil {
		return "", exit.Usagef("data.cache_dir: find the cache folder of the user: %v: set data.cache_dir", err)
	}
	return dir, nil
}

// UserCache returns a subfolder of the program's folder in the user's cache folder. With an empty name, it returns the
// program's folder.
func UserCache(name string) (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "hetero-train", name), nil
}

// ProgressLog returns a function that logs the progress of a transfer, after each tenth of the bytes.
func ProgressLog(log *slog.Logger, what string) func(done, total int64) {
	last := int64(-1)
	return func(done, total int64) {
		if total <= 0 {
			return
		}
		if tenth := done * 10 / total; tenth != last {
			last = tenth
			log.Info(what, "percent", tenth*10, "megabytes", done>>20, "of", total>>20)
		}
	}
}

// Exists reports whether path is an existing file or folder.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func IsFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
