package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// entry is a key of a TOML text with its value. A table is an entry whose value is a map.
type entry struct {
	path  []string
	value any // value that go-toml decodes: string, int64, float64, bool, []any, map[string]any, or a date
	line  int // line in the text, from 1
}

func (e entry) key() string { return dotted(e.path) }

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// dotted returns a path in TOML notation. It quotes the parts that need quotes.
func dotted(path []string) string {
	parts := make([]string, len(path))
	for i, part := range path {
		parts[i] = shorten(part)
		if !bareKey.MatchString(part) {
			parts[i] = quote(parts[i])
		}
	}
	return shorten(strings.Join(parts, "."))
}

// parseTOML returns the entries of the text, in order. For a syntax error, it returns one fault and no entries. Keys of
// one table that differ only in case are faults.
func parseTOML(text []byte) ([]entry, []Fault) {
	if tooManyKeys(text) {
		return nil, []Fault{{Message: "too many keys and tables", Got: "more than " + strconv.Itoa(maxKeys),
			Want: "a configuration has about a hundred keys"}}
	}
	var values map[string]any
	if err := toml.Unmarshal(text, &values); err != nil {
		return nil, []Fault{syntaxFault(err)}
	}
	w := walk{
		values: values, seen: make(map[string]bool), spelled: make(map[string]entry),
		lineStarts: lineStarts(text),
	}
	var parser unstable.Parser
	parser.Reset(text)
	var table []string
	for parser.NextExpression() {
		switch node := parser.Expression(); node.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = w.keyOf(nil, node)
			w.add(table, w.line(node))
		case unstable.KeyValue:
			w.keyValue(table, node)
		}
	}
	if err := parser.Error(); err != nil { // unreachable: Unmarshal uses the same grammar
		return nil, []Fault{{Message: "not valid TOML: " + err.Error()}}
	}
	return w.entries, w.faults
}

// maxKeys is the maximum number of keys and tables. The decoding time is quadratic in this number. With this limit, it
// is a few milliseconds.
const maxKeys = 2000

// tooManyKeys reports whether the text has more than maxKeys keys and tables before the first syntax error. It takes
// linear time.
func tooManyKeys(text []byte) bool {
	var parser unstable.Parser
	parser.Reset(text)
	count := 0
	var visit func(node *unstable.Node)
	visit = func(node *unstable.Node) {
		switch node.Kind {
		case unstable.Table, unstable.ArrayTable:
			count++
		case unstable.KeyValue:
			count++
			visit(node.Value())
		case unstable.InlineTable, unstable.Array:
			for it := node.Children(); it.Next() && count <= maxKeys; {
				visit(it.Node())
			}
		}
	}
	for count <= maxKeys && parser.NextExpression() {
		visit(parser.Expression())
	}
	return count > maxKeys
}

func syntaxFault(err error) Fault {
	var at *toml.DecodeError
	f := Fault{Message: "not valid TOML: " + strings.TrimPrefix(err.Error(), "toml: ")}
	if errors.As(err, &at) {
		f.Line, _ = at.Position()
		f.Key = dotted(at.Key())
	}
	return f
}

// walk collects the entries. The line numbers come from the syntax tree, and the values from the decoded text.
type walk struct {
	values     map[string]any
	entries    []entry
	faults     []Fault
	seen       map[string]bool  // paths of the entries, in the form of pathID
	spelled    map[string]entry // first spelling of each path; the last part of the map key is in lower case
	lineStarts []int            // byte offset of each line
}

// deepest is the maximum number of parts of a path. It limits the time for paths with thousands of parts. Valid keys
// have two parts.
const deepest = 4

// keyValue adds the entry of one key, or the entries of an inline table.
func (w *walk) keyValue(table []string, node *unstable.Node) {
	path := w.keyOf(table, node)
	if text := underflow(node.Value()); text != "" {
		w.faults = append(w.faults, Fault{Line: w.line(node), Key: dotted(path), Message: errUnderflow.Error(),
			Got: shorten(text)})
		return
	}
	w.add(path, w.line(node))
	if value := node.Value(); value.Kind == unstable.InlineTable && len(path) < deepest {
		for it := value.Children(); it.Next(); {
			w.keyValue(path, it.Node())
		}
	}
}

// errUnderflow reports a number that strconv.ParseFloat would change to 0 without an error.
var errUnderflow = errors.New("too close to 0 to represent: want 0, or a number of at least about 4.9e-324")

// underflow returns the first number in the text that is not 0 but becomes 0 as a float64. It returns "" if there is no
// such number.
func underflow(node *unstable.Node) string {
	switch node.Kind {
	case unstable.Array:
		for it := node.Children(); it.Next(); {
			if text := underflow(it.Node()); text != "" {
				return text
			}
		}
	case unstable.Float:
		text := string(node.Data)
		mantissa, _, _ := strings.Cut(strings.ToLower(text), "e")
		v, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
		if err == nil && v == 0 && strings.ContainsAny(mantissa, "123456789") {
			return text
		}
	}
	return ""
}

// keyOf returns the path of a table header, or of a key of a table. It truncates the path to deepest parts.
func (w *walk) keyOf(table []string, node *unstable.Node) []string {
	path := slices.Clone(table)
	for it := node.Key(); it.Next() && len(path) < deepest; {
		path = append(path, string(it.Node().Data))
	}
	return path
}

// line returns the line of a key, from 1.
func (w *walk) line(node *unstable.Node) int {
	it := node.Key()
	it.Next()
	offset := int(it.Node().Raw.Offset)
	return sort.SearchInts(w.lineStarts, offset+1)
}

func lineStarts(text []byte) []int {
	starts := []int{0}
	for i, c := range text {
		if c == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

// add adds the entry at path. If path leads into a list of tables, it adds the list as one entry.
func (w *walk) add(path []string, line int) {
	var value any = w.values
	for depth, part := range path {
		inner, isTable := value.(map[string]any)
		if !isTable { // a list of tables is one entry
			path = path[:depth]
			break
		}
		if w.differsInCase(path[:depth+1], line) {
			return
		}
		value = inner[part]
	}
	id := pathID(path)
	if w.seen[id] {
		return
	}
	w.seen[id] = true
	w.entries = append(w.entries, entry{path: path, value: value, line: line})
}

// differsInCase reports whether an earlier path differs from path only in the case of the last part. For each such
// path, it adds one fault.
func (w *walk) differsInCase(path []string, line int) bool {
	last := len(path) - 1
	id := pathID(append(slices.Clone(path[:last]), strings.ToLower(path[last])))
	first, spelled := w.spelled[id]
	if !spelled {
		w.spelled[id] = entry{path: path, line: line}
		return false
	}
	if first.path[last] == path[last] {
		return false
	}
	if exact := pathID(path); !w.seen[exact] {
		w.seen[exact] = true
		w.faults = append(w.faults, Fault{
			Line: line, Key: dotted(path),
			Message: fmt.Sprintf("differs only in case from %s on line %d", first.key(), first.line),
		})
	}
	return true
}

// pathID returns a text that identifies a path. It distinguishes ["a.b"] from ["a", "b"]. The separator NUL cannot
// occur in TOML keys.
func pathID(path []string) string { return strings.Join(path, "\x00") }
