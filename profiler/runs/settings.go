package runs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/hetero-train/hetero-train/engine/regular"
)

// Settings returns the settings of a run: values by dotted keys, such as "train.steps".
func (f *Folder) Settings(name string) (map[string]string, error) {
	f.mu.RLock()
	root, err := f.openRoot(name)
	f.mu.RUnlock()
	if err != nil {
		return nil, err
	}
	defer root.Close() // read only
	text, err := regular.ReadIn(root, resolvedFile, mostSettings)
	if err == nil {
		var flat map[string]string
		if flat, err = Flat(text); err == nil {
			return flat, nil
		}
	}
	return nil, fmt.Errorf("run %s: read %s: %w", name, resolvedFile, err)
}

// Flat parses settings in TOML. It returns the values by dotted keys.
func Flat(text []byte) (map[string]string, error) {
	var tree map[string]any
	if err := toml.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	flat := map[string]string{}
	return flat, flatten(flat, "", tree, mostTables)
}

// mostTables limits how deeply tables may be nested. Settings need fewer levels. Without a limit, the memory for the
// keys of nested tables would grow with the square of the depth.
const mostTables = 16

// flatten adds the values of a tree. depth is the number of further levels of tables that are allowed.
func flatten(flat map[string]string, prefix string, tree map[string]any, depth int) error {
	for key, value := range tree {
		table, ok := value.(map[string]any)
		if !ok {
			flat[prefix+key] = fmt.Sprint(value)
			continue
		}
		if depth == 0 {
			return fmt.Errorf("got more than %d tables within each other, want the settings of a run", mostTables)
		}
		if err := flatten(flat, prefix+key+".", table, depth-1); err != nil {
			return err
		}
	}
	return nil
}

// Canonical returns the same text for equal values of settings, such as 0.10 and 1e-1, or the same list with and
// without commas.
func Canonical(value string) string {
	if v, err := strconv.ParseFloat(value, 64); err == nil {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	if strings.HasPrefix(value, "[") {
		return strings.Join(strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(`, []"'`, r) }),
			" ")
	}
	return value
}
