package text

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/huggingface"
	"github.com/hetero-train/hetero-train/engine/data/layout"
	"github.com/hetero-train/hetero-train/engine/data/table"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// Source describes an input file. Bytes and Content identify the file.
type Source struct {
	Path    string `json:"path"`
	Bytes   int64  `json:"bytes"`   // size of the file in bytes, as stored
	Content string `json:"content"` // SHA-256 of the first and last 64 KiB of the file
	Lines   bool   `json:"json_lines"`
	Column  string `json:"column,omitempty"` // column of an Arrow or Parquet file, whose rows are read as JSON lines
	Eval    bool   `json:"val,omitempty"`    // the name states that the file is for evaluation
}

// mostWindow is the largest permitted window of a zstd frame, in bytes. It is the limit of the zstd tool with --long.
const mostWindow = 128 << 20

// suffixes of the text files in a folder, without a compression suffix
var suffixes = []string{".txt", ".jsonl", ".ndjson"}

// Sources are the input files of a conversion.
type Sources struct {
	List     []Source
	EvalFrom string   // part and names of the sources for evaluation; "" if no name states this part
	Unused   []string // paths of the files of the test part, if there is a validation part
	Skipped  []string // paths of files in folders that have other extensions
}

// FindSources lists the input files of Options.Inputs. A folder contributes its text files and those of its subfolders,
// sorted by name. The names determine the parts, unless Options.IgnoreNames is set; see package layout.
func (o *Options) FindSources(ctx context.Context) (Sources, error) {
	var s Sources
	var files, names []string
	for _, path := range o.Inputs {
		info, err := os.Stat(path)
		switch {
		case path == "-" || err == nil && info.Mode()&os.ModeNamedPipe != 0:
			f := data.FileFault("read text", path,
				errors.New("want a file, because an interrupted conversion reads its input again"))
			f.Advice = "write the text to a file first"
			return Sources{}, f
		case err == nil && info.IsDir():
			var found []string
			skipped := len(s.Skipped)
			found, err = o.within(ctx, path, &s)
			if errors.Is(err, errNoTextFiles) && huggingface.Recognise(path) {
				found, parts, err := o.tables(ctx, path, &s)
				if err != nil {
					return Sources{}, err
				}
				files, names, s.Skipped = append(files, found...), append(names, parts...), s.Skipped[:skipped]
				continue
			}
			if err == nil {
				files = append(files, found...)
				for _, file := range found {
					names = append(names,
						filepath.ToSlash(strings.TrimPrefix(file, filepath.Clean(path)+string(filepath.Separator))))
				}
			}
		case err == nil:
			files, names = append(files, path), append(names, filepath.Base(path))
		}
		if err != nil {
			return Sources{}, data.FileFault("find text", path, err)
		}
	}
	d, err := o.divide(names)
	if err != nil {
		f := data.FileFault("find text", o.Inputs[0], err)
		f.Advice = "leave the file out, or let names have no meaning (--names off)"
		return Sources{}, f
	}
	if d.Part != layout.None {
		s.EvalFrom = fmt.Sprintf("part %s, %s", d.Part, names[d.Eval[0]])
		if n := len(d.Eval); n > 1 {
			s.EvalFrom += fmt.Sprintf(" and %d other files", n-1)
		}
	}
	eval, unused := make([]bool, len(files)), make([]bool, len(files))
	for _, i := range d.Eval {
		eval[i] = true
	}
	for _, i := range d.Unused {
		unused[i] = true
	}
	for i, file := range files {
		if unused[i] {
			s.Unused = append(s.Unused, file)
			continue
		}
		source, err := identify(file, o.Lines, cmp.Or(o.Field, "text"))
		if err != nil {
			return Sources{}, err
		}
		source.Eval = eval[i]
		s.List = append(s.List, source)
	}
	return s, nil
}

// divide assigns the inputs to parts by their names. A single input is not divided.
func (o *Options) divide(names []string) (layout.Division, error) {
	if o.IgnoreNames || len(names) == 1 {
		return layout.Division{}, nil
	}
	d, err := layout.Divide(names)
	if err == nil && len(d.Train) == 0 {
		if len(d.Unused) > 0 {
			return d, fmt.Errorf("%q names part %s and %q names part %s, but no file names the training part",
				names[d.Eval[0]], layout.Validation, names[d.Unused[0]], layout.Test)
		}
		return layout.Division{}, nil
	}
	return d, err
}

var errNoTextFiles = errors.New("the folder has no text files")

func (o *Options) within(ctx context.Context, path string, s *Sources) (files []string, err error) {
	folder, err := layout.OpenFolder(path, o.FollowLinks)
	if err != nil {
		return nil, err
	}
	defer folder.Close() // read only
	err = folder.Walk(ctx, func(e layout.Entry) error {
		switch {
		case e.Mode.IsDir():
		case e.Mode.IsRegular() && slices.Contains(suffixes, filepath.Ext(uncompressed(e.Name))):
			files = append(files, folder.Path(e.Name))
		default:
			s.Skipped = append(s.Skipped, folder.Path(e.Name))
		}
		return nil
	})
	if err == nil && files == nil {
		err = fmt.Errorf("%w, want files that end in %s, uncompressed or with the additional ending .gz or .zst, or a data set of Arrow or Parquet files",
			errNoTextFiles, strings.Join(suffixes, ", "))
	}
	return files, err
}

// tables lists the files of a data set of Hugging Face's library datasets, with names that state their parts.
func (o *Options) tables(ctx context.Context, path string, s *Sources) (files, names []string, err error) {
	found, err := huggingface.Find(ctx, huggingface.Source{Path: path, FollowLinks: o.FollowLinks})
	if which := (*huggingface.SplitError)(nil); errors.As(err, &which) { // its advice does not apply to a conversion
		f := data.FileFault("read text", path, which.Err)
		f.Advice = "name the files of the splits, or the folder of one configuration, in place of this folder"
		return nil, nil, f
	}
	if err != nil {
		return nil, nil, err
	}
	for k, file := range found.Train {
		name := fmt.Sprintf("rows/%d", k)
		if found.Eval != nil {
			name = fmt.Sprintf("%s/%d", layout.Train, k)
		}
		files, names = append(files, file), append(names, name)
	}
	for k, file := range found.Eval {
		files, names = append(files, file), append(names, fmt.Sprintf("%s/%d", layout.Validation, k))
	}
	if found.Unused != "" {
		s.Unused = append(s.Unused, "split "+found.Unused)
	}
	return files, names, nil
}

// uncompressed returns path without a compression suffix.
func uncompressed(path string) string {
	return strings.TrimSuffix(strings.TrimSuffix(path, ".gz"), ".zst")
}

// identifyingBytes is the number of bytes at each end of a file that the function identify hashes.
const identifyingBytes = 64 << 10

func identify(path string, format Lines, column string) (Source, error) {
	f, info, err := regular.Open(path)
	if err != nil {
		return Source{}, data.FileFault("open text", path, err)
	}
	defer f.Close() // read only
	if info.Size() == 0 {
		return Source{}, data.FileFault("read text", path, errors.New("the file is empty"))
	}
	hash := sha256.New()
	for _, at := range []int64{0, max(0, info.Size()-identifyingBytes)} {
		if _, err := io.Copy(hash, io.NewSectionReader(f, at, identifyingBytes)); err != nil {
			return Source{}, data.FileFault("read text", path, err)
		}
	}
	s := Source{Path: path, Bytes: info.Size(), Content: fmt.Sprintf("%x", hash.Sum(nil))}
	if format == LinesBySuffix && table.Recognise(f) {
		s.Lines, s.Column = true, column
		return s, s.checkColumn()
	}
	switch ext := filepath.Ext(uncompressed(path)); format {
	case LinesAlways:
		s.Lines = true
	case LinesBySuffix:
		if s.Lines = ext == ".jsonl" || ext == ".ndjson"; !s.Lines {
			return s, notText(f, path)
		}
	}
	return s, nil
}

// stream is the decompressed text of a source.
type stream struct {
	io.Reader
	file   *os.File
	stored *atomic.Int64 // number of bytes read from the file
	done   func()
}

// counted counts the bytes read from a file.
type counted struct {
	r io.Reader
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// checkColumn returns an error if the column of a table does not contain text.
func (s *Source) checkColumn() error {
	t, err := table.Open(s.Path)
	if err != nil {
		return data.FileFault("open text", s.Path, err)
	}
	defer t.Close() // read only
	field, ok := t.Field(s.Column)
	switch {
	case !ok:
		err = fmt.Errorf("there is no column %q; the columns are %q: select one with --field", s.Column, t.Names())
	case field.Kind != table.Text:
		err = fmt.Errorf("column %q has %s, want text: select another column with --field", s.Column, field.Kind)
	default:
		return nil
	}
	return data.FileFault("open text", s.Path, err)
}

// rows counts the lines of a table, and estimates from this number how many bytes were read from the file.
type rows struct {
	r           io.Reader
	read, total int64 // rows
	bytes, done int64 // size of the file, and estimated number of bytes read
	n           *atomic.Int64
}

func (c *rows) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.read += int64(bytes.Count(p[:n], []byte("\n")))
	done := int64(float64(c.bytes) * float64(c.read) / float64(max(c.total, 1)))
	c.n.Add(done - c.done)
	c.done = done
	return n, err
}

// open opens a source for reading at the given byte offset of its text.
func (s *Source) open(ctx context.Context, offset int64, stored *atomic.Int64) (*stream, error) {
	f, info, err := regular.Open(s.Path)
	if err != nil {
		return nil, data.FileFault("open text", s.Path, err)
	}
	out := &stream{file: f, stored: stored, done: func() {}}
	if info.Size() != s.Bytes {
		err = fmt.Errorf("%d bytes, want %d: the file has changed", info.Size(), s.Bytes)
	}
	in := bufio.NewReaderSize(counted{f, stored}, 1<<18)
	switch {
	case err != nil:
	case s.Column != "":
		var t *table.File
		if t, err = table.Open(s.Path); err == nil {
			lines := t.Lines(ctx, []string{s.Column})
			out.Reader = bufio.NewReaderSize(&rows{r: lines, total: t.Rows, bytes: s.Bytes, n: stored}, 1<<18)
			out.done = func() {
				lines.Close() // stops the reading of the table
				t.Close()     // read only
			}
		}
	case strings.HasSuffix(s.Path, ".gz"):
		out.Reader, err = gzip.NewReader(in)
	case strings.HasSuffix(s.Path, ".zst"):
		var d *zstd.Decoder
		d, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(mostWindow),
			zstd.WithDecoderLowmem(true))
		if err == nil {
			out.Reader, out.done = d, d.Close
		}
	default:
		out.Reader = in
		if _, err = f.Seek(offset, io.SeekStart); err == nil {
			stored.Add(offset)
			return out, nil
		}
	}
	if err == nil {
		err = out.skip(ctx, offset)
	}
	if err != nil {
		out.close()
		return nil, readFault(s.Path, offset, err)
	}
	return out, nil
}

// skip reads and discards n bytes.
func (s *stream) skip(ctx context.Context, n int64) error {
	for n > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		got, err := io.CopyN(io.Discard, s, min(n, 1<<24))
		if err != nil {
			return err
		}
		n -= got
	}
	return nil
}

func (s *stream) close() {
	s.done()
	s.file.Close() // read only
}

// length returns the length of the text of a source in bytes. It decompresses a compressed file completely.
func (s *Source) length(ctx context.Context) (int64, error) {
	if uncompressed(s.Path) == s.Path && s.Column == "" {
		return s.Bytes, nil
	}
	in, err := s.open(ctx, 0, new(atomic.Int64))
	if err != nil {
		return 0, err
	}
	defer in.close()
	for n := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		got, err := io.CopyN(io.Discard, in, 1<<24)
		n += got
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return 0, readFault(s.Path, n, err)
		}
	}
}

// invalid returns the position of the first byte that is not UTF-8, or -1. If complete is set, an incomplete character
// at the end of text is also invalid.
func invalid(text []byte, complete bool) int {
	if utf8.Valid(text) {
		return -1
	}
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			if !complete && !utf8.FullRune(text[i:]) {
				return -1
			}
			return i
		}
		i += n
	}
	return -1
}

// incomplete returns the number of bytes, 0 to 3, of an incomplete character at the end of text.
func incomplete(text []byte) int {
	for n := 1; n <= min(utf8.UTFMax-1, len(text)); n++ {
		if b := text[len(text)-n]; utf8.RuneStart(b) {
			if b >= utf8.RuneSelf && !utf8.FullRune(text[len(text)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

// readFault returns the Fault for an error at a byte offset of the text. It returns errors of a context unchanged.
func readFault(path string, offset int64, err error) error {
	var already *data.Fault
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &already) {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
		err = errors.New("the file is truncated")
	}
	return data.FileFault("read text", path, fmt.Errorf("after byte %d of the text: %w", offset, err))
}

func notUTF8(path string, offset int64, text []byte) error {
	f := data.FileFault("read text", path,
		fmt.Errorf("byte %d of the text is not UTF-8: % x", offset, text[:min(len(text), 8)]))
	f.Advice = "convert the file first, for example with iconv -t UTF-8"
	if offset == 0 && (bytes.HasPrefix(text, []byte{0xFF, 0xFE}) || bytes.HasPrefix(text, []byte{0xFE, 0xFF})) {
		f.Advice = "the file is UTF-16: convert it with iconv -f UTF-16 -t UTF-8"
	}
	return f
}
