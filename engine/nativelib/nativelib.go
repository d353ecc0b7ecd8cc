package nativelib

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// DirVariable is the name of an environment variable. If it is set, its value is the only folder to search.
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
	return "", fmt.Errorf("%s: %w", missing(name, programFolder(), dirs, os.Getenv(DirVariable)), fs.ErrNotExist)
}

// missing states the folders in which a library was searched, and the remedy for a program in the given folder.
// variable is the value of DirVariable.
func missing(name, folder string, dirs []string, variable string) string {
	text := fmt.Sprintf("no %s in %s", name, strings.Join(dirs, ", "))
	switch {
	case variable != "":
		return fmt.Sprintf("%s, the only folder that is searched: correct or unset %s", text, DirVariable)
	case builtIn(folder):
		return fmt.Sprintf("%s; run: make, or set %s to the folder that holds it", text, DirVariable)
	}
	return fmt.Sprintf(
		"%s; install or unpack the program again with its libraries, or set %s to the folder that holds it", text,
		DirVariable)
}

// Dirs returns the folders to search, in order. If DirVariable is set, its folder is the only one.
func Dirs() []string {
	if dir := os.Getenv(DirVariable); dir != "" {
		return []string{dir}
	}
	beside := programFolder()
	if beside == "" {
		return nil
	}
	return []string{
		filepath.Join(beside, "build", "lib"),
		filepath.Join(beside, "lib"),
		filepath.Join(beside, "..", "lib", "hetero-train"),
	}
}
