package stat

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// fused lists the functions of package math whose results depend on the processor, because they use math.Exp.
var fused = map[string]bool{"Exp": true, "Pow": true, "Erf": true, "Erfc": true, "Sinh": true, "Cosh": true,
	"Tanh": true, "Gamma": true}

// whole lists files that call math.Pow with integer exponents only. For these, math.Pow multiplies and does not depend
// on the processor.
var whole = map[string]bool{"jagged_guess.go": true}

// Each rank computes the shares itself, so all ranks must compute equal bits. math.Exp uses fused multiply-add only if
// the processor has it, so its bits depend on the processor. Packages and files whose results change no share may use
// it.
func TestDecisionsDoNotDependOnTheProcessor(t *testing.T) {
	const root = "../.."
	free := map[string]bool{"scheduler": true, "simulate": true, "detector.go": true}
	files := token.NewFileSet()
	calls := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && free[entry.Name()] && filepath.Dir(path) == filepath.Clean(root):
			return filepath.SkipDir
		case entry.IsDir() || free[entry.Name()] || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if from, ok := call.X.(*ast.Ident); ok && from.Name == "math" {
				if calls++; fused[call.Sel.Name] && !(call.Sel.Name == "Pow" && whole[entry.Name()]) {
					t.Errorf("%s: math.%s differs between processors; use stat.Exp", files.Position(call.Pos()),
						call.Sel.Name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || calls < 100 {
		t.Errorf("got %d uses of package math, error %v; want all of the packages that decide", calls, err)
	}
}
