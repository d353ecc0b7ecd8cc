package weights

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// Rename is a renaming rule. It replaces matches of a regular expression in the names of a file; $1 is the first
// group.
type Rename struct {
	Pattern *regexp.Regexp
	With    string
}

// ParseRename parses PATTERN=REPLACEMENT. The first "=" separates the two parts.
func ParseRename(text string) (Rename, error) {
	pattern, with, ok := strings.Cut(text, "=")
	if !ok || pattern == "" {
		return Rename{}, &RenameError{Rule: text, Reason: "want PATTERN=REPLACEMENT"}
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return Rename{}, &RenameError{Rule: text, Reason: err.Error()}
	}
	return Rename{Pattern: re, With: with}, nil
}

// RenameError reports a renaming rule that cannot be applied.
type RenameError struct {
	Rule   string // text of the rule; "" if the combination of rules is at fault
	Reason string
}

func (e *RenameError) Error() string {
	if e.Rule == "" {
		return "rename: " + e.Reason
	}
	return fmt.Sprintf("rename %q: %s", e.Rule, e.Reason)
}

// wrappers contains prefixes that other programs add to all names if the model is part of another object.
var wrappers = []string{"module.", "_orig_mod.", "model.", "state_dict."}

// rename returns the name in the file for each name in the model. It applies the rules and then removes wrappers.
// done describes the changes.
func rename(tensors []checkpoint.Info, wanted map[string]bool, rules []Rename) (names map[string]string, done []string, err error) {
	names = make(map[string]string, len(tensors)) // names in the file, by name in the model
	changed := make([]int, len(rules))
	for _, t := range tensors {
		name := t.Name
		for i, r := range rules {
			if to := r.Pattern.ReplaceAllString(name, r.With); to != name {
				name = to
				changed[i]++
			}
		}
		if other, twice := names[name]; twice {
			return nil, nil, &RenameError{Reason: fmt.Sprintf("tensors %q and %q of the file would both get the name %q", other, t.Name, name)}
		}
		names[name] = t.Name
	}
	for i, r := range rules {
		rule := fmt.Sprintf("%s=%s", r.Pattern, r.With)
		if changed[i] == 0 {
			return nil, nil, &RenameError{Rule: rule, Reason: "the pattern matches no name in the file"}
		}
		done = append(done, fmt.Sprintf("%d tensors renamed by %q", changed[i], rule))
	}
	for prefix := wrapper(names, wanted); prefix != ""; prefix = wrapper(names, wanted) {
		bare := make(map[string]string, len(names))
		for name, from := range names {
			bare[strings.TrimPrefix(name, prefix)] = from
		}
		names = bare
		done = append(done, fmt.Sprintf("prefix %q removed from all names", prefix))
	}
	return names, done, nil
}

// wrapper returns the prefix that all names of the file have, but no name of the model; "" if there is none.
func wrapper(names map[string]string, wanted map[string]bool) string {
	at := slices.IndexFunc(wrappers, func(prefix string) bool {
		for name := range names {
			if len(name) == len(prefix) || !strings.HasPrefix(name, prefix) {
				return false
			}
		}
		for name := range wanted {
			if strings.HasPrefix(name, prefix) {
				return false
			}
		}
		return len(names) > 0
	})
	if at < 0 {
		return ""
	}
	return wrappers[at]
}
