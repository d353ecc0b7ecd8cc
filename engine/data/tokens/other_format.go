package tokens

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// noColumn returns the error for a first line that does not name a column. If the file has another known format, the
// error names the command for conversion.
func (o ClassificationOptions) noColumn(name string, line []byte, columns []string) error {
	text := o.otherFormat(line)
	if text == "" && slices.ContainsFunc(columns, func(c string) bool { return strings.Trim(c, `"`) == name }) {
		text = converted(o.Path, "quotes", "tab-separated values without quotes",
			`import csv,json,sys; [print(json.dumps(x)) for x in csv.DictReader(sys.stdin, delimiter="\t")]`)
	}
	if text != "" {
		return fmt.Errorf("there is no column %q: %s", name, text)
	}
	return fmt.Errorf("there is no column %q; the columns are %q", name, columns)
}

// otherFormat calls OtherFormat for a file of labelled texts.
func (o ClassificationOptions) otherFormat(line []byte) string {
	return OtherFormat(o.Path, line, "tab-separated values")
}

// OtherFormat returns a message with the format of a file and the command for conversion to JSON lines. The parameter
// line is the start of the file, such as its first line. If line has the format want or no known format, OtherFormat
// returns "".
func OtherFormat(path string, line []byte, want string) string {
	convert := func(format, program string) string { return converted(path, format, want, program) }
	start := bytes.TrimLeft(line, " \t\r\n")
	switch {
	case bytes.HasPrefix(line, []byte("PAR1")):
		return convert("Parquet", `import io,sys,pandas; pandas.read_parquet(io.BytesIO(sys.stdin.buffer.read())).to_json(sys.stdout, orient="records", lines=True)`)
	case bytes.HasPrefix(start, []byte("[")):
		return convert("a JSON array", "import json,sys; [print(json.dumps(x)) for x in json.load(sys.stdin)]")
	case bytes.HasPrefix(start, []byte("{")):
		return fmt.Sprintf(
			"the file has JSON, not %s: if each line is an object, rename the file to %s, the name of JSON lines", want,
			jsonLines(path))
	case bytes.ContainsRune(line, '\t'):
		return ""
	case bytes.ContainsRune(line, ','):
		return convert("CSV", "import csv,json,sys; [print(json.dumps(x)) for x in csv.DictReader(sys.stdin)]")
	case bytes.ContainsRune(line, ';'):
		return convert("CSV",
			`import csv,json,sys; [print(json.dumps(x)) for x in csv.DictReader(sys.stdin, delimiter=";")]`)
	}
	return ""
}

// converted returns a message with the format of a file and the command that converts the file to JSON lines.
func converted(path, format, want, program string) string {
	return fmt.Sprintf("the file has %s, not %s: python3 -c '%s' < %s > %s converts %s to JSON lines", format, want,
		program, quoted(filepath.Base(path)), quoted(jsonLines(path)), format)
}

// jsonLines returns the name of the converted file.
func jsonLines(path string) string {
	file := filepath.Base(path)
	return strings.TrimSuffix(file, filepath.Ext(file)) + ".jsonl"
}

var plainWord = regexp.MustCompile(`^[\pL\pN._-]+$`)

// quoted returns text as one word of a POSIX shell. Quoting is necessary because a user may paste the command, and an
// untrusted party may have named the file.
func quoted(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
