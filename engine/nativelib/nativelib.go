package nativelib

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// DirVariable is the environment variable with the only folder to search.
const DirVariable = "HETERO_LIB_DIR"

// Find returns the path of a library such as "libhetero_cpu.so". If the library is missing, the error is
// fs.ErrNotExist, with the searched folders and a remedy. If this program cannot load any library, it is the error of
// Loadable.
func Find(name string) (string, error) {
	if err := Loadable(); err != nil {
		return "", err
	}
	dirs := Dirs()
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return path, nil
		}
	}
	return "", fmt.Errorf("no %s in %s; run make, or set %s to the folder that holds it: %w", name, strings.Join(dirs, ", "), DirVariable, fs.ErrNotExist)
}

// Dirs returns the folders to search, in order. If DirVariable is set, its folder is the only one.
func Dirs() []string {
	if dir := os.Getenv(DirVariable); dir != "" {
		return []string{dir}
	}
	exe, err := os.Executable()
	if err != nil {
		return nil
	}
	if real, err := filepath.EvalSymlinks(exe); err == nil {
		exe = real
	}
	beside := filepath.Dir(exe)
	return []string{
		filepath.Join(beside, "build", "lib"),
		filepath.Join(beside, "lib"),
		filepath.Join(beside, "..", "lib", "hetero-train"),
	}
}
