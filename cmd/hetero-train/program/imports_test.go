package program

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// layer is a rule for a package, or with "/..." for all packages below a folder. It lists imports.
type layer struct {
	pkg     string
	imports []string
}

func imports(patterns ...string) []string { return patterns }

// source is one import in one file. The names of packages of this module omit the module's path.
type source struct{ pkg, file, imported string }

func TestImportsPointDownwards(t *testing.T) {
	sources, packages := readImports(t, "../../..")
	if len(packages) < 5 {
		t.Fatalf("found only the packages %v, want those of the whole module", packages)
	}
	for _, fault := range faults(sources, packages, layers, never) {
		t.Error(fault)
	}
}

func TestEveryPackageHasAComment(t *testing.T) {
	names, comments := map[string]string{}, map[string]string{} // by folder: name and comment of the package
	for _, path := range textFiles(t, "*.go") {
		if strings.HasSuffix(path, "_test.go") { // godoc does not show the comments of test files
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.Dir(path)
		names[folder] = file.Name.Name
		comments[folder] += file.Doc.Text()
	}
	for folder, name := range names {
		if want := "Package " + name + " "; name == "main" && comments[folder] == "" ||
			name != "main" && !strings.HasPrefix(comments[folder], want) {
			t.Errorf("%s: package %s: got the comment %.40q, want one that begins with %q, or, for main, with the purpose of the command",
				folder, name, comments[folder], want)
		}
	}
}

func TestTablePointsDownwards(t *testing.T) {
	for i, row := range layers {
		for _, pattern := range row.imports {
			for _, higher := range layers[i+1:] {
				if pattern != "..." && !strings.HasSuffix(row.pkg, "/...") && matches(pattern, higher.pkg) {
					t.Errorf("%s may import %s, which stands below it in the table", row.pkg, higher.pkg)
				}
			}
		}
	}
}

func TestForbiddenImportsAreFound(t *testing.T) {
	table := []layer{{"low", nil}, {"low/...", imports("low")}, {"high", imports("low", "engine/...")},
		{"top", imports("...")}}
	bans := []layer{{"low", imports("time", "net/...")}, {"high", imports("engine/...")}}
	tests := []struct {
		name   string
		source source
		want   string // part of the only fault; "": no fault
	}{
		{"an allowed arrow", source{"high", "f.go", module + "low"}, ""},
		{"an arrow upwards", source{"low", "f.go", module + "high"}, "low (f.go) imports high"},
		{"an arrow that only the parent's row allows", source{"high", "f.go", module + "low/inner"},
			"high (f.go) imports low/inner"},
		{"a subpackage under its folder's row", source{"low/inner", "f.go", module + "low"}, ""},
		{"everything", source{"top", "f.go", module + "low/inner"}, ""},
		{"a standard package", source{"high", "f.go", "time"}, ""},
		{"a banned standard package", source{"low", "f.go", "time"}, "low (f.go) imports time"},
		{"a banned tree", source{"low", "f.go", "net/http"}, "low (f.go) imports net/http"},
		{"a package of words in a banned tree", source{"high", "f.go", module + "engine/spelling"}, ""},
		{"another package of the banned tree", source{"high", "f.go", module + "engine/speech"},
			"high (f.go) imports engine/speech"},
		{"a package missing from the table", source{"other", "f.go", "fmt"}, "other has no row"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := faults([]source{test.source}, []string{test.source.pkg}, table, bans)
			if test.want == "" && len(got) > 0 {
				t.Errorf("got %q, want none", got)
			}
			if test.want != "" && (len(got) != 1 || !strings.Contains(got[0], test.want)) {
				t.Errorf("got %q, want one with %q", got, test.want)
			}
		})
	}
}

// faults returns one sentence for each import that violates a rule.
func faults(sources []source, packages []string, layers, never []layer) []string {
	var found []string
	for _, pkg := range packages {
		if rowOf(layers, pkg) == nil {
			found = append(found, fmt.Sprintf("%s has no row in the table of deps_test.go: say what it may import",
				pkg))
		}
	}
	for _, s := range sources {
		row, imported := rowOf(layers, s.pkg), strings.TrimPrefix(s.imported, module)
		if row != nil && imported != s.imported && !matchesAny(row.imports, imported) {
			found = append(found, fmt.Sprintf("%s (%s) imports %s, but may import only %v", s.pkg, s.file, imported,
				row.imports))
		}
		if ban := rowOf(never, s.pkg); ban != nil && matchesAny(ban.imports, imported) &&
			!slices.Contains(vocabulary, imported) {
			found = append(found, fmt.Sprintf("%s (%s) imports %s, which it never may", s.pkg, s.file, imported))
		}
	}
	return found
}

// rowOf returns the row of the package. If there is none, it returns the row of the nearest folder above the package,
// or nil.
func rowOf(rows []layer, pkg string) *layer {
	for name := pkg; name != "."; {
		if i := slices.IndexFunc(rows, func(row layer) bool { return row.pkg == name }); i >= 0 {
			return &rows[i]
		}
		name = filepath.ToSlash(filepath.Dir(strings.TrimSuffix(name, "/...")))
		if name != "." {
			name += "/..."
		}
	}
	return nil
}

func matchesAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, pkg) })
}

// matches reports whether a pattern matches a package. Pattern "a" matches package a, "a/..." matches all packages
// below a, and "..." matches all packages.
func matches(pattern, pkg string) bool {
	if folder, ok := strings.CutSuffix(pattern, "..."); ok {
		return strings.HasPrefix(pkg, folder)
	}
	return pkg == pattern
}

// readImports parses the imports of each Go file of the module except tests, for all build tags.
func readImports(t *testing.T, root string) (sources []source, packages []string) {
	t.Helper()
	skipped := []string{"build", "experiments", "third_party", "testdata", "vendor"}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && (slices.Contains(skipped, name) || strings.HasPrefix(name, ".") ||
				strings.HasPrefix(name, "_")) {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != root {
				return fs.SkipDir // the folder contains another module
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(folder)
		if !slices.Contains(packages, pkg) {
			packages = append(packages, pkg)
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			sources = append(sources, source{pkg, name, imported})
		}
		return nil
	})
	if err != nil {
		t.Fatalf("read imports: %v", err)
	}
	return sources, packages
}
