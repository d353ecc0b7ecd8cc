package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// withPassword matches addresses of the form scheme://user:password@host.
var withPassword = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s]*:[^/?#\s]*@`)

// MaxFileBytes is the maximum size of a configuration file. A limit is necessary because the parsing time is quadratic
// in the number of keys.
const MaxFileBytes = 64 << 10

// Override is a setting from the command line. It takes precedence over the file.
type Override struct {
	Origin string // source of the setting in error messages: "--set train.steps", "--epochs"
	Key    string // full dotted key
	Value  string // TOML value; for a string key, a word without quotes is also valid
	// Default marks a default of the command line. Any other override of the key replaces it without a warning.
	Default bool
}

// ParseSet parses the argument of flag --set, which has the form table.key=value.
func ParseSet(text string) (Override, error) {
	key, value, found := strings.Cut(text, "=")
	key = strings.TrimSpace(key)
	if !found || key == "" {
		return Override{}, fmt.Errorf("got %q, want table.key=value", shorten(text))
	}
	return Override{Origin: "--set " + dotted(strings.Split(key, ".")), Key: key, Value: strings.TrimSpace(value)}, nil
}

// Load reads a configuration file and then applies the overrides in order. If file is "", there are no settings from a
// file. Load returns an [*Error] for invalid settings, and another error if it cannot read the file.
func Load(file string, catalog Catalog, overrides ...Override) (*Config, error) {
	if file == "" {
		return Parse("", nil, catalog, overrides...)
	}
	// Without O_NONBLOCK, a pipe could block, and signals would not end the program.
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.IsDir() || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0 {
		return nil, fmt.Errorf("read the configuration: %s is a folder, a pipe or a socket, want a file", file)
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return Parse(file, text, catalog, overrides...)
}

// Parse is [Load] for settings that the program stored, such as those of a checkpoint. Error messages use name as the
// file name.
func Parse(name string, text []byte, catalog Catalog, overrides ...Override) (*Config, error) {
	l := loader{
		file: name, catalog: catalog, config: new(Config),
		keys: make(map[string]Key), tableLine: make(map[string]int),
		origins: make(map[string]origin), bad: make(map[string]bool), last: make(map[string]*Superseded),
	}
	if len(text) > MaxFileBytes {
		size := fmt.Sprintf("at least %d bytes", len(text))
		return nil,
			&Error{Faults: []Fault{{Origin: name, Message: "the file is too large", Got: size, Want: "at most 64 KiB"}}}
	}
	// some editors on Windows write a byte order mark
	entries, faults := parseTOML(bytes.TrimPrefix(text, []byte("\ufeff")))
	for _, f := range faults {
		f.Origin = name
		l.faults = append(l.faults, f)
		l.bad[f.Key] = true
	}
	l.bind(entries, overrides)
	for _, e := range entries {
		l.entry(e)
	}
	for _, o := range overrides {
		l.override(o)
	}
	l.config.fillDefaults(func(key string) bool { return l.origins[key] != origin{} }, l.kinds...)
	l.checkRules()
	l.checkSamples()
	if len(l.faults) > 0 {
		return nil, l.error()
	}
	if len(l.origins) > 0 {
		l.config.origins = l.origins
	}
	l.config.superseded = l.superseded()
	return l.config, nil
}

// origin is the source of a value. The zero origin means that the key has its default.
type origin struct {
	name     string
	line     int  // line in the file, from 1; 0 for an override
	position int  // position among the overrides, from 1; 0 for the file
	usual    bool // Override.Default
}

// String returns the origin in the form that [Config.Origin] documents.
func (p origin) String() string {
	if p.line > 0 {
		return fmt.Sprintf("%s:%d", p.name, p.line)
	}
	return p.name
}

// typed reports whether the value is from the command line.
func (p origin) typed() bool { return p.position > 0 }

// loader converts entries and overrides to a Config and collects the faults.
type loader struct {
	file      string
	catalog   Catalog
	config    *Config
	chosen    map[string]string // configured names of the model, data set and policy, by key; may be unknown names
	keys      map[string]Key    // keys by full dotted name
	order     []string          // names of the keys, in the order of the tables
	tables    []string
	tableLine map[string]int
	origins   map[string]origin // origins of the keys that were set
	bad       map[string]bool   // keys with an invalid value, which the rules do not check
	overrides int
	kinds     []Kind                 // selected model, data set and policy
	last      map[string]*Superseded // by key: its last override so far
	faults    []Fault
}

// bind selects the options of the configured model, data set and policy. It then connects each key to its field and
// sets all defaults.
func (l *loader) bind(entries []entry, overrides []Override) {
	l.chosen = map[string]string{"data.fallback": ""}
	for _, key := range choosers {
		l.chosen[key] = ""
	}
	chosen := l.chosen
	for _, t := range l.config.tables() {
		for _, k := range t.keys {
			if _, chooses := chosen[t.name+"."+k.name]; chooses {
				chosen[t.name+"."+k.name] = k.def.(string)
			}
		}
	}
	for _, e := range entries {
		if _, chooses := chosen[e.key()]; chooses && len(e.path) == 2 {
			chosen[e.key()], _ = e.value.(string) // a value that is not a string selects no kind
		}
	}
	for _, o := range overrides {
		if _, chooses := chosen[o.Key]; chooses {
			if value, err := parseValue(o.Value, true); err == nil {
				chosen[o.Key], _ = value.(string)
			}
		}
	}
	for _, table := range []string{"model", "data", "balance"} {
		if kind, found := find(l.catalog.kinds(table), chosen[choosers[table]]); found {
			l.kinds = append(l.kinds, kind)
			*l.config.ownOptions(table) = kind.options()
			switch table {
			case "data":
				l.config.Data.traits, l.config.Data.Samples = kind.Data, kind.Samples
			case "model":
				l.config.Model.Samples = kind.Samples
			}
		}
	}
	if l.config.Data.Samples == AnySamples {
		l.config.Data.Samples = l.config.Model.Samples
	}
	l.config.Data.FallbackOptions = l.catalog.DataSetOptions(chosen["data.fallback"])
	for _, t := range l.catalog.tables(l.config) {
		l.tables = append(l.tables, t.name)
		for _, k := range t.keys {
			if _, twice := l.keys[t.name+"."+k.name]; twice {
				panic(fmt.Sprintf("config: key %s.%s is defined twice, for %q", t.name, k.name,
					chosen[choosers[t.name]]))
			}
			k.setDefault()
			l.keys[t.name+"."+k.name] = k
			l.order = append(l.order, t.name+"."+k.name)
		}
	}
}

// entry assigns a value from the file.
func (l *loader) entry(e entry) {
	at := origin{name: l.file, line: e.line}
	_, isTable := e.value.(map[string]any)
	knownTable := slices.Contains(l.tables, e.path[0])
	if len(e.path) == 1 {
		switch {
		case knownTable && isTable:
			l.tableLine[e.path[0]] = e.line
		case knownTable:
			l.fault(at, e.key(), Fault{Message: "wrong type", Got: describe(e.value), Want: "a table"})
		case !isTable:
			l.unknown(at, e.path)
		case len(e.value.(map[string]any)) == 0:
			l.fault(at, e.key(), Fault{Message: "unknown table", Want: "one of " + strings.Join(l.tables, ", ")})
		}
		return // for an unknown table, its keys are reported
	}
	key, known := l.keys[e.key()]
	switch {
	case known && len(e.path) == 2:
		l.assign(at, e.key(), key, e.value)
	case !isTable || len(e.value.(map[string]any)) == 0 || len(e.path) == deepest:
		l.unknown(at, e.path)
	} // a nested table that is not empty needs no report, because each of its keys has its own entry
}

// override assigns a value from the command line.
func (l *loader) override(o Override) {
	l.overrides++
	at := origin{name: o.Origin, position: l.overrides, usual: o.Default}
	key, known := l.keys[o.Key]
	if !known {
		l.unknown(at, strings.Split(o.Key, "."))
		return
	}
	_, isText := key.field.(*string)
	value, err := parseValue(o.Value, isText)
	if errors.Is(err, errUnderflow) {
		l.fault(at, o.Key, Fault{Message: err.Error(), Got: shorten(o.Value), Want: key.want()})
		return
	}
	if err != nil {
		l.fault(at, o.Key, Fault{Message: "not a TOML value", Got: quote(shorten(o.Value)), Want: key.want()})
		return
	}
	l.assign(at, o.Key, key, value)
	l.supersede(o, key)
}

// parseValue parses a TOML value. If wantText is true, text without quotes is a string.
func parseValue(text string, wantText bool) (any, error) {
	if quoted := strings.HasPrefix(text, `"`) || strings.HasPrefix(text, `'`); wantText && !quoted {
		return text, nil
	}
	if strings.ContainsAny(text, "\n\r") || len(text) > MaxFileBytes {
		return nil, errors.New("more than one line, or over 64 KiB")
	}
	var decoded struct{ Value any }
	line := []byte("Value = " + text)
	if err := toml.Unmarshal(line, &decoded); err != nil {
		return nil, err
	}
	var parser unstable.Parser
	parser.Reset(line)
	if parser.NextExpression() && underflow(parser.Expression().Value()) != "" {
		return nil, errUnderflow
	}
	return decoded.Value, nil
}

func (l *loader) assign(at origin, name string, key Key, value any) {
	l.origins[name] = at
	delete(l.bad, name)
	if text, isText := value.(string); isText && withPassword.MatchString(text) {
		l.fault(at, name, Fault{Message: "contains a password, which would appear in logs and checkpoints",
			Want: "an address without user:password@"})
		return
	}
	f, ok := key.assign(value)
	if ok {
		return
	}
	l.fault(at, name, f)
}

// fault adds a fault with its place.
func (l *loader) fault(at origin, key string, f Fault) {
	f.Origin, f.Line, f.Key, f.rank = at.name, at.line, key, at.position
	l.bad[key] = true
	l.faults = append(l.faults, f)
}

// unknown adds the fault of an unknown key.
func (l *loader) unknown(at origin, path []string) {
	f := Fault{Message: "unknown key"}
	key := dotted(path)
	if len(path) == 2 {
		owners := l.catalog.owners(path[0], path[1])
		chosen := l.chosen[choosers[path[0]]]
		_, exists := find(l.catalog.kinds(path[0]), chosen)
		switch {
		case len(owners) > 0 && !exists:
			return // the key may be valid for the kind that the user probably meant
		case len(owners) > 0:
			f.Message, f.Foreign = fmt.Sprintf("%s has no such key; the key belongs to %s", chosen,
				strings.Join(owners, ", ")), true
		case path[0] == "nccl" && loadsCode(path[1]):
			f.Message = "not allowed, because this setting loads code or writes files"
		}
	}
	l.fault(at, key, f)
}

func loadsCode(ncclKey string) bool {
	name := strings.ToLower(ncclKey)
	return strings.Contains(name, "plugin") || strings.HasSuffix(name, "_file") || strings.HasSuffix(name, "_path") ||
		strings.HasSuffix(name, "_dir")
}

// error returns the faults in the order of the input. It adds the nearest key to the fault of each unknown key.
func (l *loader) error() *Error {
	slices.SortStableFunc(l.faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.Line, b.Line))
	})
	all := &Error{Faults: l.faults}
	if len(all.Faults) > maxFaults {
		all.More = len(all.Faults) - maxFaults
		all.Faults = all.Faults[:maxFaults]
	}
	for i, f := range all.Faults {
		if f.Message == "unknown key" {
			if near := Closest(f.Key, l.order); near != "" {
				all.Faults[i].Message = "unknown key, nearest valid key: " + near
			} else {
				all.Faults[i].Message = "unknown key; hetero-train config docs lists the keys"
			}
		}
	}
	return all
}
