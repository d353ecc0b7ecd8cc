package nativelib

import (
	"os"
	"os/exec"
	"path/filepath"
)

// Remedy returns the advice for a program that lacks a part. If the program is in the folder where make built it, the
// advice is the command that builds it again. An installed program or a release has no Makefile, so the advice names
// the page of the documentation that explains the build.
func Remedy(command, page string) string { return remedy(programFolder(), command, page) }

func remedy(folder, command, page string) string {
	if builtIn(folder) {
		return "run: " + command
	}
	return "this installation does not contain it; " + page + " explains how to build the program from source"
}

// Program returns the path of this program. Without /proc, the kernel does not report it. Program then uses the first
// argument, if it is a path or the name of a program in PATH.
func Program() (string, error) { return program(os.Executable) }

func program(executable func() (string, error)) (string, error) {
	path, err := executable()
	if err == nil {
		return path, nil
	}
	if found, lookErr := exec.LookPath(os.Args[0]); lookErr == nil {
		return filepath.Abs(found)
	}
	return "", err
}

// programFolder returns the folder of this program after resolving links, or "" if the system does not report it.
func programFolder() string {
	exe, err := Program()
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(exe); err == nil {
		exe = real
	}
	return filepath.Dir(exe)
}

// builtIn reports whether folder is one in which make puts the program: the checkout, or the FOLDER of make
// BUILD=FOLDER.
func builtIn(folder string) bool {
	for _, files := range [][]string{{"Makefile", "go.mod", "CMakeLists.txt"}, {"CMakeCache.txt", "lib"}} {
		found := 0
		for _, file := range files {
			if _, err := os.Stat(filepath.Join(folder, file)); err == nil {
				found++
			}
		}
		if found == len(files) {
			return true
		}
	}
	return false
}
