package program

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

// asksForMake matches advice that only users with a checkout of the sources can follow.
var asksForMake = regexp.MustCompile(
	`\b(run:? make|make (CUDA|BUILD|HETERO|cuda-|deps|native|clean)|then make|apt-get install)`)

// A release contains neither a Makefile nor the scripts of a checkout. Code whose messages name make must call
// nativelib.Remedy, which checks how the program was installed. The messages of package needtest are for people who run
// tests, so they may name make.
func TestMessagesForUsersOfAReleaseDoNotAskForMake(t *testing.T) {
	var faults []string
	for _, path := range textFiles(t, "*.go", "*.cc", "*.cu", "*.h", ":!*_test.go", ":!engine/needtest",
		":!engine/nativelib", ":!cuda/shim", ":!nccl/shim") {
		if strings.HasSuffix(path, ".go") {
			faults = append(faults, askingGo(t, path)...)
		} else {
			faults = append(faults, askingNative(t, path)...)
		}
	}
	for _, fault := range faults {
		t.Errorf(
			"%s: a user of a release cannot follow this; use nativelib.Remedy, or name a page of the documentation",
			fault)
	}
}

// askingGo returns the string literals of a Go file that tell users to call make, except arguments of nativelib.Remedy.
func askingGo(t *testing.T, path string) (faults []string) {
	t.Helper()
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if function, ok := call.Fun.(*ast.SelectorExpr); ok && function.Sel.Name == "Remedy" {
				return false
			}
		}
		if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING && asksForMake.MatchString(text.Value) {
			faults = append(faults, path+": "+text.Value)
		}
		return true
	})
	return faults
}

// askingNative returns the lines of a C++ or CUDA file in which a string tells users to call make.
func askingNative(t *testing.T, path string) (faults []string) {
	t.Helper()
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(source)) {
		if _, text, quoted := strings.Cut(line, `"`); quoted && asksForMake.MatchString(text) {
			faults = append(faults, path+": "+strings.TrimSpace(line))
		}
	}
	return faults
}
