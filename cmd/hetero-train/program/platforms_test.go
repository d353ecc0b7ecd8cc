package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

// Without cgo, each package and its tests must pass the type checker for each system of docs/install.md. `make test`
// checks Windows, which differs most. With HETERO_LARGE=1, the test checks all systems; .ci/platforms selects one
// architecture of each.
// The compiler would find no other faults here. It would take ten times as long, because it would compile the standard
// library for each system.
func TestAllPackagesSuitEachSystem(t *testing.T) {
	needtest.NotShort(t, "checks all packages for several systems")
	t.Parallel()
	read := sources{token.NewFileSet(), map[string]*ast.File{}}
	platforms := []string{"windows/amd64"}
	if needtest.Large.On() {
		platforms = append(platforms, "linux/arm64", "darwin/arm64", "linux/amd64", "darwin/amd64")
	}
	for _, platform := range platforms {
		t.Run(platform, func(t *testing.T) {
			system, arch, _ := strings.Cut(platform, "/")
			own, err := read.checkTypes(system, arch, func(err error) { t.Error(err) })
			if err != nil {
				t.Fatal(err)
			}
			if own < 100 { // a smaller number means that packages were not found
				t.Errorf("got %d packages, want those of the whole module", own)
			}
		})
	}
}

// listed is a package in the output of go list. If a package was compiled for a test, its ImportPath ends with "
// [PACKAGE.test]".
type listed struct {
	ImportPath, Dir, ForTest string
	GoFiles                  []string
	ImportMap                map[string]string
	Module                   *struct{ Main bool }
	Error                    *struct{ Err string }
}

// If p is the variant of a package with its tests, variantOf returns this package. Otherwise it returns "".
func (p *listed) variantOf() string {
	if path, _, _ := strings.Cut(p.ImportPath, " "); path != p.ImportPath && path == p.ForTest {
		return path
	}
	return ""
}

// checkTypes checks all packages of this module, and reports each fault. It returns the number of these packages.
func (read sources) checkTypes(system, arch string, fault func(error)) (own int, err error) {
	list := exec.Command("go", "list", "-e", "-deps", "-test",
		"-json=ImportPath,Dir,ForTest,GoFiles,ImportMap,Module,Error", "./...")
	list.Dir, list.Stderr = "../../..", os.Stderr
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch)
	out, err := list.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := list.Start(); err != nil {
		return 0, err
	}
	var all []listed // go list prints a package after all packages that it imports
	tested := map[string]bool{}
	for d := json.NewDecoder(out); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return own, err
		}
		all = append(all, p)
		tested[p.variantOf()] = true
	}
	known := packages{"unsafe": types.Unsafe}
	for _, p := range all {
		mine := p.Module != nil && p.Module.Main
		switch {
		case p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test"):
			// A package whose path ends with ".test" is a generated main package.
			continue
		case mine:
			own++
		}
		if p.Error != nil && len(p.GoFiles) > 0 {
			fault(errors.New(p.Error.Err))
		}
		// If a folder contains tests, its package is listed without and with them. The variant with tests contains all
		// functions, so only its bodies are checked.
		bodies := mine && !tested[p.ImportPath]
		if err := known.add(&p, read, mine, bodies, types.SizesFor("gc", arch), fault); err != nil {
			return own, err
		}
	}
	return own, list.Wait()
}

// sources contains the files that were read, by path. Most files belong to several systems, and to a package and its
// variant with tests.
type sources struct {
	set   *token.FileSet
	files map[string]*ast.File
}

// file reads a file. It keeps bodies of functions only in packages of this module, where they are checked.
func (read sources) file(path string, mine bool) (*ast.File, error) {
	if f := read.files[path]; f != nil {
		return f, nil
	}
	f, err := parser.ParseFile(read.set, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if !mine {
		for _, d := range f.Decls {
			if function, ok := d.(*ast.FuncDecl); ok {
				function.Body = nil // frees the memory of the body
			} else {
				ast.Inspect(d, withoutElements)
			}
		}
	}
	read.files[path] = f
	return f, nil
}

// withoutElements removes the elements of composite literals, such as large tables. It keeps them if their number is
// part of the type.
func withoutElements(n ast.Node) bool {
	if literal, ok := n.(*ast.CompositeLit); ok {
		if array, ok := literal.Type.(*ast.ArrayType); !ok || array.Len == nil {
			literal.Elts = nil
		}
	}
	return true
}

// packages contains the checked packages, by ImportPath.
type packages map[string]*types.Package

// add checks a package. If bodies is set, it also checks the bodies of functions.
func (known packages) add(p *listed, read sources, mine, bodies bool, sizes types.Sizes, fault func(error)) error {
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := read.file(filepath.Join(p.Dir, name), mine)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	config := types.Config{Importer: importer{known, p.ImportMap}, Sizes: sizes, IgnoreFuncBodies: !bodies,
		Error: func(err error) {
			if mine {
				fault(err)
			}
		}}
	path, _, _ := strings.Cut(p.ImportPath, " ")
	checked, _ := config.Check(path, read.set, files, nil) // config.Error receives all faults
	known[p.ImportPath] = checked
	return nil
}

// importer finds the imports of one package.
type importer struct {
	known packages
	names map[string]string // from the path in the source to ImportPath, if the two differ
}

func (i importer) Import(path string) (*types.Package, error) {
	if name := i.names[path]; name != "" {
		path = name
	}
	if p := i.known[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("no package %s", path)
}
