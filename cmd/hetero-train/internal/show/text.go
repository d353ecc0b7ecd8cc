package show

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Foreign formats a name or a text from a file as one field of a line. It quotes a text with hidden characters, and
// replaces these by the escapes of Go and JSON. Otherwise, names of untrusted files could send escape sequences to the
// terminal and forge lines.
func Foreign(text string) string {
	for _, r := range text {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return strconv.Quote(text)
		}
	}
	if strings.HasPrefix(text, `"`) || text == "" {
		return strconv.Quote(text)
	}
	return text
}

// Foreigners applies Foreign to each text.
func Foreigners(texts []string) []string {
	shown := make([]string, len(texts))
	for i, text := range texts {
		shown[i] = Foreign(text)
	}
	return shown
}

// hidden reports whether a terminal acts on the character r instead of showing it. This is so for control characters
// except line ends and tabs, and for characters that change the direction of text.
func hidden(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) || r == '\u2028' ||
		r == '\u2029'
}

// Visible replaces hidden characters by JSON escapes, and bytes that are not UTF-8 by \xNN.
func Visible(text string) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case !hidden(r):
			b.WriteString(text[:size])
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
		}
		text = text[size:]
	}
	return b.String()
}

// Indented indents all lines except the first, so that a line end within a message cannot start a forged message.
func Indented(text string) string {
	if !strings.Contains(text, "\n") {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if i > 0 && line != "" && line[0] != ' ' && line[0] != '\t' {
			lines[i] = "  " + line
		}
	}
	return strings.Join(lines, "\n")
}
