package runtime

import (
	"bytes"
	"time"

	"github.com/hetero-train/hetero-train/engine/regular"
)

// Mark is the position of a Tail or a LineTail in its file. A later process can continue from it.
type Mark struct {
	Offset   int64     `json:"offset"` // bytes read
	Size     int64     `json:"size"`   // size of the file, in bytes
	Modified time.Time `json:"modified"`
	Text     []byte    `json:"text"` // text directly before Offset
	Skipped  int64     `json:"skipped"`
	Damaged  int       `json:"damaged"`
	Cut      bool      `json:"cut"`
}

// Mark returns the position after the last call of Next.
func (g *growing) Mark() Mark {
	m := Mark{Offset: g.offset, Size: g.Size, Text: bytes.Clone(g.mark), Skipped: g.skipped, Damaged: g.Damaged,
		Cut: g.Cut}
	if g.file != nil {
		m.Modified = g.file.ModTime()
	}
	return m
}

// Resume continues at a mark, so that the next call of Next reads only the records after it. It returns false if the
// file no longer matches the mark: it is missing or shorter, the text before the mark differs, or the file was written
// since then without becoming longer. If a longer file has the same text before the mark, Resume assumes that the file
// was only extended. A Writer that replaces a file writes other times, so the text would differ. Resume does not detect
// two kinds of changes. One is a change before Mark.Text in a file that has also become longer. The other is a change
// by a tool that keeps size and time of the file, such as rsync -t.
func (g *growing) Resume(m Mark) bool {
	if m.Offset == 0 && m.Size == 0 {
		return true // in this case, Next reads the file from its start
	}
	file, info, err := regular.OpenIn(g.root, g.name)
	if err != nil {
		return false
	}
	defer file.Close() // read only
	if m.Offset < 0 || info.Size() < m.Offset || info.Size() < m.Size || int64(len(m.Text)) > m.Offset ||
		len(m.Text) > markBytes {
		return false
	}
	if info.Size() == m.Size && !info.ModTime().Equal(m.Modified) {
		return false
	}
	text := make([]byte, len(m.Text))
	if _, err := file.ReadAt(text, m.Offset-int64(len(text))); err != nil || !bytes.Equal(text, m.Text) {
		return false
	}
	g.file, g.offset, g.mark, g.Size = info, m.Offset, m.Text, m.Size
	g.skipped, g.Damaged, g.Cut = m.Skipped, m.Damaged, m.Cut
	return true
}
