package nativelib

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// DirVariable is the environment variable that names the folder of the libraries, alone.
const DirVariable = "HETERO_LIB_DIR"

// Find is the path of a library, for example "libhetero_cpu.so". The error says where it is not, and what to do; it is fs.ErrNotExist.
func Find(name string) (string, error) {
	dirs := Dirs()
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return path, nil
		}
	}
	return "", fmt.Errorf("no %s in %s; run make, or set %s to the folder that holds it: %w", name, strings.Join(dirs, ", "), DirVariable, fs.ErrNotExist)
}

// Dirs are the folders to look in, first to last. A folder that was named is the only one.
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
