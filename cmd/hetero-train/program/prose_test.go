package program

import (
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

// mostWords is the largest number of words in a sentence of the documentation. Numbers, names of files, code, tables
// and text in parentheses do not count.
const mostWords = 25

// plainWords maps words that usually occur in unclear sentences to clearer ones.
var plainWords = map[string]string{
	"anew":      "again",
	"as far as": "if, or up to",
	"beside":    "next to, with, or in addition to",
	"can not":   "cannot",
	"everybody": "the noun: all ranks, every process",
	"fares":     "the measured figure",
	"is told":   "receives, or reads",
	"nobody":    "the noun: no rank, no process",
	"of late":   "recently",
	"so many":   "this number of",
	"somebody":  "the noun: another rank, another process",
	"whatever":  "every, or independent of",
	"whoever":   "the noun: the rank that",
}

var (
	plainPattern = func() *regexp.Regexp {
		words := make([]string, 0, len(plainWords))
		for word := range plainWords {
			words = append(words, strings.ReplaceAll(word, " ", `\s+`))
		}
		return regexp.MustCompile(`(?i)\b(` + strings.Join(words, "|") + `)\b`)
	}()
	spaces      = regexp.MustCompile(`\s+`)
	inlineCode  = regexp.MustCompile("`[^`]*`")
	link        = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	parentheses = regexp.MustCompile(`\([^)]*\)`)
	listItem    = regexp.MustCompile(`^\s*(- |\d+\. )`)
	sentenceEnd = regexp.MustCompile(`[.;:!?]\s+`)
	plainWord   = regexp.MustCompile(`^[^\pL\pN]*\pL[\pL'’/-]*[^\pL\pN]*$`)
	lineComment = regexp.MustCompile(`(?:^|\s)(?://|#)\s(.*)$`)
)

// Comments, messages and documentation must use the words that CONTRIBUTING.md, "Text", prescribes.
func TestTextsUsePlainWords(t *testing.T) {
	t.Parallel()
	for _, file := range textFiles(t, "*.go", "*.md", "*.cc", "*.h", "*.cu", "*.cuh", "*.sh", "*.py", "*.ts", "*.toml",
		"*.yml") {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !plainPattern.Match(source) || strings.HasSuffix(file, "prose_test.go") {
			continue
		}
		for _, text := range texts(file, source) {
			if found := plainPattern.FindString(text.text); found != "" {
				word := strings.ToLower(spaces.ReplaceAllString(found, " "))
				t.Errorf("%s:%d: got %q, want %s", file, text.line, word, plainWords[word])
			}
		}
	}
}

func TestSentencesOfTheDocumentationAreShort(t *testing.T) {
	for _, file := range textFiles(t, "*.md") {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts(file, source) {
			for _, sentence := range longSentences(text.text) {
				t.Errorf("%s:%d: got a sentence of more than %d words, want two sentences, a list or a table: %s", file,
					text.line, mostWords, sentence)
			}
		}
	}
}

func TestProseRules(t *testing.T) {
	long := strings.Repeat("word ", mostWords+1)
	for _, c := range []struct {
		text string
		want int
	}{
		{long, 1}, {long[len("word "):], 0}, {"- " + long + ". " + long, 2},
		{strings.Repeat("word ", mostWords) + ". One more.", 0},
		{strings.Repeat("word ", mostWords) + "(not counted here) file.go 12", 0}, {"| " + long + "|", 0},
		{"# " + long, 0},
	} {
		if got := longSentences(c.text); len(got) != c.want {
			t.Errorf("%.60q: got %d long sentences, want %d", c.text, len(got), c.want)
		}
	}
	for _, c := range []struct{ file, source, want string }{
		{"a.go", "package a // Nobody\n", " Nobody"}, {"a.go", "package a\nvar beside = 1\n", ""},
		{"a.go", "package a\nvar s = \"so many\"\n", "so many"},
		{"a.cc", "int beside; // anew\n", "anew"}, {"a.sh", "beside # anew\n", "anew"},
		{"a.md", "```\nanew\n```\n", ""}, {"a.md", "anew `beside`\n", "anew "},
	} {
		var got strings.Builder
		for _, text := range texts(c.file, []byte(c.source)) {
			got.WriteString(strings.TrimPrefix(text.text, "//"))
		}
		if got := strings.Trim(got.String(), `"`); got != c.want {
			t.Errorf("%s: %q: got text %q, want %q", c.file, c.source, got, c.want)
		}
	}
	if got := plainPattern.FindString("Nothing is  told"); got != "is  told" {
		t.Errorf("got %q, want a match across spaces", got)
	}
}

// proseText is a comment, a message, or a line of documentation.
type proseText struct {
	line int
	text string
}

// texts returns the texts of a file: comments and strings of Go, lines of Markdown outside of code, and comments after
// // or # of other languages.
func texts(file string, source []byte) (list []proseText) {
	if filepath.Ext(file) == ".go" {
		files := token.NewFileSet()
		var s scanner.Scanner
		s.Init(files.AddFile(file, -1, len(source)), source, nil, scanner.ScanComments)
		for {
			at, kind, text := s.Scan()
			if kind == token.EOF {
				return list
			}
			if kind == token.COMMENT || kind == token.STRING {
				list = append(list, proseText{files.Position(at).Line, text})
			}
		}
	}
	code := false
	for i, line := range strings.Split(string(source), "\n") {
		text := line
		if filepath.Ext(file) == ".md" {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				code = !code
				continue
			}
			if code {
				continue
			}
			text = inlineCode.ReplaceAllString(line, "")
		} else if m := lineComment.FindStringSubmatch(line); m != nil {
			text = m[1]
		} else {
			continue
		}
		if text != "" {
			list = append(list, proseText{i + 1, text})
		}
	}
	return list
}

// longSentences returns the sentences of a line of Markdown that have more than mostWords words.
func longSentences(line string) (long []string) {
	if strings.HasPrefix(strings.TrimSpace(line), "|") || strings.HasPrefix(line, "#") ||
		strings.HasPrefix(line, "    ") {
		return nil
	}
	line = parentheses.ReplaceAllString(link.ReplaceAllString(line, "$1"), "")
	for _, sentence := range sentenceEnd.Split(listItem.ReplaceAllString(line, "")+" ", -1) {
		words := 0
		for _, word := range strings.Fields(sentence) {
			if plainWord.MatchString(word) {
				words++
			}
		}
		if words > mostWords {
			long = append(long, strings.TrimSpace(sentence))
		}
	}
	return long
}

// textFiles returns the files of the repository that git tracks and whose names match one of the patterns.
func textFiles(t *testing.T, patterns ...string) []string {
	t.Helper()
	root := filepath.Join("..", "..", "..")
	command := exec.Command("git", append([]string{"-C", root, "ls-files", "-z", "--"}, patterns...)...)
	out, err := command.Output()
	if err != nil {
		needtest.Missing(t, "git", err)
	}
	var files []string
	for _, name := range strings.Split(strings.Trim(string(out), "\x00"), "\x00") {
		if _, err := os.Stat(filepath.Join(root, name)); err == nil { // git lists removed files until the next commit
			files = append(files, filepath.Join(root, name))
		}
	}
	if len(files) < 10 {
		t.Fatalf("got %d files that match %q, want at least 10", len(files), patterns)
	}
	return files
}
