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

// RenameError reports a rule for names that cannot be applied.
type RenameError struct {
	Rule   string // text of the rule; "" if the combination of rules is at fault
	Reason string
	Drop   bool // the rule leaves out tensors
}

func (e *RenameError) Error() string {
	verb := "rename"
	if e.Drop {
		verb = "drop"
	}
	if e.Rule == "" {
		return verb + ": " + e.Reason
	}
	return fmt.Sprintf("%s %q: %s", verb, e.Rule, e.Reason)
}

// ParseDrops compiles regular expressions that select tensors to leave out.
func ParseDrops(texts []string) (drops []*regexp.Regexp, err error) {
	for _, text := range texts {
		re, err := regexp.Compile(text)
		if err != nil {
			return nil, &RenameError{Rule: text, Reason: err.Error(), Drop: true}
		}
		drops = append(drops, re)
	}
	return drops, nil
}

// counter is the name of a number that torch.optim.swa_utils.AveragedModel stores with the weights. Only the averaging
// uses it.
const counter = "n_averaged"

// drop leaves out the tensors whose names in the file match one of the rules. The result changes describes these
// tensors.
func drop(tensors []checkpoint.Info, rules []*regexp.Regexp) (kept []checkpoint.Info, changes []string, err error) {
	gone := make([][]string, len(rules))
	for _, t := range tensors {
		at := slices.IndexFunc(rules, func(r *regexp.Regexp) bool { return r.MatchString(t.Name) })
		switch {
		case at >= 0:
			gone[at] = append(gone[at], t.Name)
		case t.Name == counter && len(t.Shape) == 0:
			changes = append(changes, "counter "+counter+" of an averaged model left out")
		default:
			kept = append(kept, t)
		}
	}
	for i, r := range rules {
		if len(gone[i]) == 0 {
			return nil, nil,
				&RenameError{
					Rule:   r.String(),
					Reason: "the pattern matches no name in the file, or only names that an earlier pattern matches",
					Drop:   true}
		}
		slices.Sort(gone[i])
		changes = append(changes, fmt.Sprintf("%d tensors left out by %q: %s", len(gone[i]), r, some(gone[i])))
	}
	return kept, changes, nil
}

// some returns a text with the first names of a list.
func some(names []string) string {
	const most = 6
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// namesIn returns the name in the file for each name in the model, after the rules of o. The result changes describes
// the effects of the rules.
func (o Options) namesIn(f *checkpoint.File, wanted map[string]bool) (names map[string]string, changes []string,
	err error) {
	kept, dropped, err := drop(f.Tensors(), o.Drops)
	if err != nil {
		return nil, nil, err
	}
	names, changes, err = rename(kept, wanted, o.Renames)
	return names, append(dropped, changes...), err
}

// wrappers contains prefixes that other programs add to all names if the model is part of another object.
var wrappers = []string{"module.", "_orig_mod.", "model.", "state_dict."}

// rename returns the name in the file for each name in the model. It applies the rules and then removes wrappers. The
// result changes describes the renamings.
func rename(tensors []checkpoint.Info, wanted map[string]bool, rules []Rename) (names map[string]string,
	changes []string, err error) {
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
			return nil, nil, &RenameError{
				Reason: fmt.Sprintf("tensors %q and %q of the file would both get the name %q", other, t.Name, name)}
		}
		names[name] = t.Name
	}
	for i, r := range rules {
		rule := fmt.Sprintf("%s=%s", r.Pattern, r.With)
		if changed[i] == 0 {
			return nil, nil, &RenameError{Rule: rule, Reason: "the pattern matches no name in the file"}
		}
		changes = append(changes, fmt.Sprintf("%d tensors renamed by %q", changed[i], rule))
	}
	for prefix := wrapper(names, wanted); prefix != ""; prefix = wrapper(names, wanted) {
		bare := make(map[string]string, len(names))
		for name, from := range names {
			bare[strings.TrimPrefix(name, prefix)] = from
		}
		names = bare
		changes = append(changes, fmt.Sprintf("prefix %q removed from all names", prefix))
	}
	return names, changes, nil
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
