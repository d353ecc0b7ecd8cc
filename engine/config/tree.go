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

// entry is one element of a TOML text: a key with its value, or a table (value is a map).
type entry struct {
	path  []string
	value any // as decoded by go-toml: string, int64, float64, bool, []any, map[string]any, a date
	line  int // from 1
}

func (e entry) key() string { return dotted(e.path) }

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// dotted returns a path in TOML notation, with quotes around parts that need them.
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

// parseTOML returns the entries of the text, in order. Faults are a syntax error (without entries) and keys of one
// table that differ only in case.
func parseTOML(text []byte) ([]entry, []Fault) {
	if tooManyKeys(text) {
		return nil, []Fault{{Message: "too many keys and tables", Got: "more than " + strconv.Itoa(maxKeys), Want: "a configuration has about a hundred keys"}}
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
	if err := parser.Error(); err != nil { // cannot happen: Unmarshal uses the same grammar
		return nil, []Fault{{Message: "not valid TOML: " + err.Error()}}
	}
	return w.entries, w.faults
}

// maxKeys limits the time of decoding, which is quadratic in the number of keys, to a few milliseconds.
const maxKeys = 2000

// tooManyKeys counts keys and tables up to the first syntax error, in linear time.
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

// walk collects entries from the syntax tree, which has the lines, and the decoded values.
type walk struct {
	values     map[string]any
	entries    []entry
	faults     []Fault
	seen       map[string]bool  // paths in entries
	spelled    map[string]entry // first spelling, by path with the last part in lower case
	lineStarts []int            // offset of each line
}

// deepest limits the cost of a path with thousands of parts; a configuration has two.
const deepest = 4

// keyValue adds `key = value`, and the contents of an inline table.
func (w *walk) keyValue(table []string, node *unstable.Node) {
	path := w.keyOf(table, node)
	if text := underflow(node.Value()); text != "" {
		w.faults = append(w.faults, Fault{Line: w.line(node), Key: dotted(path), Message: errUnderflow.Error(), Got: shorten(text)})
		return
	}
	w.add(path, w.line(node))
	if value := node.Value(); value.Kind == unstable.InlineTable && len(path) < deepest {
		for it := value.Children(); it.Next(); {
			w.keyValue(path, it.Node())
		}
	}
}

// errUnderflow reports a number that strconv would silently change to 0.
var errUnderflow = errors.New("not 0, but too close to 0 to represent: the smallest positive number is about 4.9e-324")

// underflow returns the first number of a value or list that is not 0 but becomes 0 as a float64, "" if there is none.
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

// keyOf returns the path of a table header or of a key inside a table, cut after deepest parts.
func (w *walk) keyOf(table []string, node *unstable.Node) []string {
	path := slices.Clone(table)
	for it := node.Key(); it.Next() && len(path) < deepest; {
		path = append(path, string(it.Node().Data))
	}
	return path
}

// line returns the line of the node's key.
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

// add records the path, or the list of tables that contains it.
func (w *walk) add(path []string, line int) {
	var value any = w.values
	for depth, part := range path {
		inner, isTable := value.(map[string]any)
		if !isTable { // a list of tables has a single entry
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

// differsInCase reports whether the last part of path occurred before with different case. It records a fault the first
// time.
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

// pathID distinguishes ["a.b"] from ["a", "b"]: TOML keys cannot contain NUL.
func pathID(path []string) string { return strings.Join(path, "\x00") }
