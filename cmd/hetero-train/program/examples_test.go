package program

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
)

// exampleLines returns the command lines in the examples of a command. It joins continued lines, and removes the
// comments, which follow two spaces.
func exampleLines(cmd *cobra.Command) []string {
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(cmd.Example, "\\\n", " ")) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "  ")
		if line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// commands returns cmd and all commands below it that --help lists.
func commands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		if !sub.Hidden && sub.Name() != "help" {
			all = append(all, commands(sub)...)
		}
	}
	return all
}

// Each example must consist of flags and commands that exist.
func TestHelpOfEveryCommandShowsExamplesThatParse(t *testing.T) {
	t.Parallel()
	root := newRoot(&cli.App{})
	for _, cmd := range commands(root) {
		lines := exampleLines(cmd)
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, cmd.CommandPath()) }) {
			t.Errorf("%s: none of its examples %q shows it", cmd.CommandPath(), lines)
		}
		for _, line := range lines {
			at := strings.Index(line, "hetero-train ")
			if at < 0 {
				continue // the line runs another program
			}
			if err := parses(line[at:]); err != nil {
				t.Errorf("%s: example %q: %v", cmd.CommandPath(), line, err)
			}
		}
	}
}

// parses returns an error if a flag of a command line does not exist, or if the number of arguments is wrong.
func parses(line string) error {
	line, _, _ = strings.Cut(line, " | ")
	line, _, _ = strings.Cut(line, " > ")
	line, _, _ = strings.Cut(line, " < ")
	line = strings.TrimSuffix(line, ")") // removes the end of <(hetero-train …)
	root := newRoot(&cli.App{})
	cmd, rest, err := root.Find(strings.Fields(line)[1:])
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

func TestExamplesThatDoNotParseAreFound(t *testing.T) {
	for _, line := range []string{"hetero-train trian", "hetero-train train --epoch 3", "hetero-train version now"} {
		if parses(line) == nil {
			t.Errorf("%q: no error", line)
		}
	}
}
