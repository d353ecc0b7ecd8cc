package status

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// units contains words that stay on the same line as the number before them.
var units = []string{"%", "ms", "s", "samples/s", "MB/s", "GB/s", "MiB", "GiB", "|", "/"}

// wrapAll wraps lines to a width. The width 0 means unlimited. Continuation lines are indented by two more spaces.
func wrapAll(lines []string, width int) string {
	var b strings.Builder
	for _, line := range lines {
		indent := len(line) - len(strings.TrimLeft(line, " ")) + 2
		for i, part := range wrap(line, width, width-indent) {
			if i > 0 {
				b.WriteString(strings.Repeat(" ", indent))
			}
			b.WriteString(part)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// wrap divides a line at spaces. The first new line has at most width characters, the others have at most nextWidth. A
// list such as 95/33/20 that is longer than a line is divided after a slash. The width 0 means unlimited.
func wrap(line string, width, nextWidth int) (lines []string) {
	if width <= 0 || utf8.RuneCountInString(line) <= width {
		return []string{line}
	}
	nextWidth = max(nextWidth, 1)
	room, text := width, ""
	put := func(gap, word string) {
		if text != "" && utf8.RuneCountInString(text+gap+word) > room {
			lines, text, gap, room = append(lines, text), "", "", nextWidth
		}
		if text == "" {
			gap = ""
		}
		text += gap + word
	}
	for i, word := range words(line) {
		if i == 0 { // the first word keeps the indentation
			word = line[:len(line)-len(strings.TrimLeft(line, " "))] + word
		}
		gap := " "
		if utf8.RuneCountInString(word) > nextWidth {
			for part := range strings.SplitAfterSeq(word, "/") {
				put(gap, part)
				gap = ""
			}
			continue
		}
		put(gap, word)
	}
	return append(lines, text)
}

// words divides a line into parts that must not be divided: a number stays with its name and its unit.
func words(line string) (all []string) {
	before := ""
	for _, word := range strings.Fields(line) {
		named := isNumber(word) && !isNumber(before)
		if n := len(all); n > 0 && (named || slices.Contains(units, strings.TrimRight(word, ".,;:)"))) {
			all[n-1] += " " + word
		} else {
			all = append(all, word)
		}
		before = word
	}
	return all
}

// isNumber reports whether a word starts with a digit.
func isNumber(word string) bool { return word != "" && word[0] >= '0' && word[0] <= '9' }

// tableOf formats rows as a table. Each result ends with a line end. All columns except the last one contain numbers.
// Long texts of the last column continue below, in the same column. If the column is too narrow, they are on separate
// lines.
func tableOf(rows [][]string, width int) (formatted []string) {
	last := len(rows[0]) - 1
	widths := make([]int, last)
	for _, row := range rows {
		for i := range widths {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	start := 2
	for _, w := range widths {
		start += w + 2
	}
	const least = 16 // minimum width of the last column in characters
	for _, row := range rows {
		var b strings.Builder
		for i, w := range widths {
			b.WriteString(strings.Repeat(" ", 2+w-utf8.RuneCountInString(row[i])) + row[i])
		}
		indent, room := start, width-start
		if width > 0 && room < least {
			indent, room = 4, width-4
			if row[last] != "" {
				b.WriteString("\n" + strings.Repeat(" ", indent))
			}
		} else if row[last] != "" {
			b.WriteString("  ")
		}
		if width <= 0 {
			room = 0
		}
		b.WriteString(strings.Join(wrap(row[last], room, room), "\n"+strings.Repeat(" ", indent)))
		formatted = append(formatted, b.String()+"\n")
	}
	return formatted
}
