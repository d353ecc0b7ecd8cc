package program

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	export "go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ordered contains the packages whose files have an order from top to bottom: a file uses only files below it.
// Then a reader can read a package from either end, and understands each file from the files below it.
var ordered = []string{"./balancer/...", "./engine/train/...", "./cmd/..."}

func TestFilesHaveAnOrder(t *testing.T) {
	t.Parallel()
	list := exec.Command("go", append([]string{"list", "-export", "-deps",
		"-json=ImportPath,Dir,Export,DepOnly,GoFiles,CgoFiles"}, ordered...)...)
	list.Dir, list.Stderr = "../../..", os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports, packages, lists := map[string]string{}, 0, 0
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Dir, Export string
			DepOnly                 bool
			GoFiles, CgoFiles       []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export // go list prints a package after all packages that it imports
		if p.DepOnly {
			continue
		}
		packages++
		var paths []string
		for _, file := range slices.Concat(p.GoFiles, p.CgoFiles) {
			paths = append(paths, filepath.Join(p.Dir, file))
		}
		uses, err := usesOfFiles(p.ImportPath, paths, exports)
		if err != nil {
			t.Fatal(err)
		}
		if cycle := uses.cycle(); cycle != nil {
			t.Errorf("%s: got files that use each other, want an order of the files: %s", p.ImportPath,
				uses.describe(cycle))
		}
		if text, err := os.ReadFile(filepath.Join(p.Dir, "doc.go")); err == nil {
			if list := listOfFiles(string(text)); list != nil {
				lists++
				for _, fault := range uses.compare(list, slices.Concat(p.GoFiles, p.CgoFiles)) {
					t.Errorf("%s/doc.go: %s", p.ImportPath, fault)
				}
			}
		}
	}
	if packages < 60 || lists < 5 {
		t.Errorf("got %d packages and %d lists of files, want at least 60 and 5", packages, lists)
	}
}

// listOfFiles returns the files that a package comment lists, each on an indented line.
func listOfFiles(comment string) (list []string) {
	for _, line := range strings.Split(comment, "\n") {
		if name, ok := strings.CutPrefix(line, "//\t"); ok {
			if name, _, _ = strings.Cut(name, " "); strings.HasSuffix(name, ".go") {
				list = append(list, name)
			}
		}
	}
	return list
}

// compare returns the faults of a list that contains each file of a package above the files that it uses.
func (v uses) compare(list, files []string) (faults []string) {
	for i, file := range list {
		if !slices.Contains(files, file) || slices.Contains(list[:i], file) {
			faults = append(faults, fmt.Sprintf("got %s in the list, want each existing file once", file))
		}
		for _, above := range list[:i] {
			if name, ok := v[file][above]; ok {
				faults = append(faults, fmt.Sprintf("got %s below %s, want it above: it uses %s", file, above, name))
			}
		}
	}
	for _, file := range files {
		if file != "doc.go" && !slices.Contains(list, file) {
			faults = append(faults, "got no "+file+" in the list, want all files")
		}
	}
	return faults
}

// uses contains, for each file of a package, what it uses of other files: names of functions, methods, types, constants
// and variables of the package, by file.
type uses map[string]map[string]string

func usesOfFiles(path string, files []string, exports map[string]string) (uses, error) {
	fset := token.NewFileSet()
	var parsed []*ast.File
	for _, file := range files {
		f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, f)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{FakeImportC: true, Importer: export.ForCompiler(fset, "gc",
		func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	pkg, err := config.Check(path, fset, parsed, info)
	if err != nil {
		return nil, err
	}
	v := uses{}
	for name, o := range info.Uses {
		_, function := o.(*types.Func) // also a method
		if o.Pkg() != pkg || !function && o.Parent() != pkg.Scope() {
			continue
		}
		from, to := filepath.Base(fset.Position(name.Pos()).Filename), filepath.Base(fset.Position(o.Pos()).Filename)
		if from == to {
			continue
		}
		if v[from] == nil {
			v[from] = map[string]string{}
		}
		if old, ok := v[from][to]; !ok || o.Name() < old {
			v[from][to] = o.Name()
		}
	}
	return v, nil
}

// cycle returns files of which each uses the next one, and the last one the first one. It returns nil if there are no
// such files.
func (v uses) cycle() []string {
	done := map[string]bool{}
	var path []string
	var visit func(file string) []string
	visit = func(file string) []string {
		if i := slices.Index(path, file); i >= 0 {
			return path[i:]
		}
		if done[file] {
			return nil
		}
		path = append(path, file)
		for _, next := range slices.Sorted(maps.Keys(v[file])) {
			if cycle := visit(next); cycle != nil {
				return cycle
			}
		}
		path, done[file] = path[:len(path)-1], true
		return nil
	}
	for _, file := range slices.Sorted(maps.Keys(v)) {
		if cycle := visit(file); cycle != nil {
			return cycle
		}
	}
	return nil
}

func (v uses) describe(cycle []string) string {
	var steps []string
	for i, file := range cycle {
		next := cycle[(i+1)%len(cycle)]
		steps = append(steps, fmt.Sprintf("%s uses %s of %s", file, v[file][next], next))
	}
	return strings.Join(steps, ", ")
}

func TestCyclesOfFilesAreFound(t *testing.T) {
	tree := uses{"a.go": {"b.go": "B", "c.go": "C"}, "b.go": {"c.go": "C"}}
	if cycle := tree.cycle(); cycle != nil {
		t.Errorf("got the cycle %v, want none", cycle)
	}
	tree["c.go"] = map[string]string{"d.go": "D"}
	tree["d.go"] = map[string]string{"b.go": "B"}
	want := "b.go uses C of c.go, c.go uses D of d.go, d.go uses B of b.go"
	if got := tree.describe(tree.cycle()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestWrongListsOfFilesAreFound(t *testing.T) {
	tree, files := uses{"a.go": {"b.go": "B"}, "b.go": {"c.go": "C"}}, []string{"a.go", "b.go", "c.go", "doc.go"}
	for comment, want := range map[string][]string{
		"//\ta.go  first\n//\tb.go  second\n//\tc.go  third": nil,
		"//\tb.go  first\n//\ta.go  second\n//\td.go  third": {
			"got a.go below b.go, want it above: it uses B",
			"got d.go in the list, want each existing file once",
			"got no c.go in the list, want all files",
		},
	} {
		if got := tree.compare(listOfFiles(comment), files); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", comment, got, want)
		}
	}
}
