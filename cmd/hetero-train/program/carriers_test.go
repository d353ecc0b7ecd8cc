package program

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// carriers are the types through which parts of the program reach the process, the rank and the run.
var carriers = []string{"session.Session", "compute.Rank", "assembly.Run", "training"}

// A struct must contain a carrier as a named field. If a struct embedded the carrier, readers could not see whether a
// method uses the process, the rank or the run.
func TestCarriersAreNotEmbedded(t *testing.T) {
	seen := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					name := typeName(f.Type)
					for _, carrier := range carriers {
						switch {
						case name != carrier:
						case len(f.Names) == 0:
							t.Errorf("%s: a struct embeds %s; give the field a name", path, carrier)
						default:
							seen++
						}
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 5 {
		t.Errorf("found %d fields of the types %v, want those of the program", seen, carriers)
	}
}

// typeName returns the name of a type as it is in the source, without a star.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return typeName(e.X) + "." + e.Sel.Name
	}
	return ""
}
