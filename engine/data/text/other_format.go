package text

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/tokens"
)

// formats are the first bytes of files in binary formats.
var formats = []struct{ start, name string }{
	{"%PDF-", "PDF"}, {"PK\x03\x04", "zip, as office programs and NumPy use it"}, {"ARROW1", "Arrow"},
	{"\x93NUMPY", "NumPy"},
}

// notText returns an error if the name or the start of a file indicates a table, JSON or a binary format. A model
// should not learn the syntax of such files.
func notText(f io.ReaderAt, path string) error {
	start := make([]byte, 4096)
	n, err := f.ReadAt(start, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return data.FileFault("read text", path, err)
	}
	start, _, _ = bytes.Cut(start[:n], []byte("\n"))
	why := ""
	for _, format := range formats {
		if bytes.HasPrefix(start, []byte(format.start)) {
			why = fmt.Sprintf("the file has the format %s, not plain text", format.name)
		}
	}
	ext := strings.ToLower(filepath.Ext(uncompressed(path)))
	named := ext == ".csv" || ext == ".tsv" || ext == ".json"
	if why == "" && (named || bytes.HasPrefix(start, []byte("PAR1"))) && uncompressed(path) == path {
		why = tokens.OtherFormat(path, start, "plain text")
	}
	if named {
		why = cmp.Or(why, fmt.Sprintf("the name ends in %s, which is not the name of plain text", ext))
	}
	if why == "" {
		return nil
	}
	fault := data.FileFault("read text", path, errors.New(why))
	fault.Advice = "--format text converts the file with its syntax; --format jsonl reads JSON lines"
	return fault
}
