package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// Limits restricts the resources that reading an archive may need. 0 means the default.
type Limits struct {
	MemberBytes int64 // largest size of one file in bytes; default 64 MiB
	Members     int   // largest number of entries of all kinds; default 32 Mi
	TotalBytes  int64 // largest size of a decompressed archive in bytes; default 4 TiB
	// largest ratio of decompressed to compressed bytes, after the first ExpandFree bytes; default 200
	ExpandFactor int64
	ExpandFree   int64 // number of decompressed bytes that are exempt from ExpandFactor; default 64 MiB
}

const (
	defaultMemberBytes  = 64 << 20
	defaultMembers      = 32 << 20
	defaultTotalBytes   = 4 << 40
	defaultExpandFactor = 200
	defaultExpandFree   = 64 << 20
	maxNameBytes        = 4096
)

func (l Limits) withDefaults() Limits {
	set := func(v *int64, value int64) {
		if *v == 0 {
			*v = value
		}
	}
	set(&l.MemberBytes, defaultMemberBytes)
	set(&l.TotalBytes, defaultTotalBytes)
	set(&l.ExpandFactor, defaultExpandFactor)
	set(&l.ExpandFree, defaultExpandFree)
	if l.Members == 0 {
		l.Members = defaultMembers
	}
	return l
}

// ErrRefused is in the error chain if an archive is unsafe to read, but not if it is damaged.
var ErrRefused = errors.New("refused")

// Member is a regular file or a folder of an archive.
type Member struct {
	Name   string // clean relative path, separated by slashes
	Offset int64  // byte offset of the contents in the decompressed tar; set by Index and Scan
	Size   int64  // size in bytes; 0 for a folder
	Folder bool
}

// Index calls visit for each regular file and folder of the plain tar r, in the order of the archive. The parameter
// size is the size of r in bytes. Index reads only the headers. It stops at the first error of visit and returns this
// error.
func Index(r io.ReaderAt, size int64, limits Limits, visit func(Member) error) error {
	_, err := IndexToMark(r, size, limits, visit)
	return err
}

// IndexToMark does the same as Index, and reports whether the archive ends with the mark of a complete archive. If the
// mark is missing, the archive may have been truncated between two members. The error of an archive that was truncated
// elsewhere is a *CutError.
func IndexToMark(r io.ReaderAt, size int64, limits Limits, visit func(Member) error) (marked bool, err error) {
	return indexPlain(r, size, limits, func(m Member, _ io.Reader) error { return visit(m) })
}

// CutError is the error of a truncated archive. All members that were visited before the error are complete.
type CutError struct {
	Size int64 // size of the truncated archive in bytes
	Err  error // states where the archive ends
}

func (e *CutError) Error() string { return "the archive was cut: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *CutError) Unwrap() error { return e.Err }

// blockBytes is the size of a block of a tar. At least one block of zeros marks the end; most programs write two.
const blockBytes = 512

// blocks rounds a size in bytes up to whole blocks.
func blocks(size int64) int64 { return (size + blockBytes - 1) / blockBytes * blockBytes }

func indexPlain(r io.ReaderAt, size int64, limits Limits, visit func(Member, io.Reader) error) (marked bool,
	err error) {
	section := io.NewSectionReader(r, 0, size)
	last := int64(0) // end of the last member
	err = walk(section, limits, func(m Member, contents io.Reader) error {
		// After a header, archive/tar has read exactly the bytes before the contents.
		at, err := section.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		if m.Size > size-at {
			return &CutError{size, fmt.Errorf(
				"archive member %q: has %d bytes at offset %d, but the archive ends at byte %d: %w", m.Name, m.Size, at,
				size, io.ErrUnexpectedEOF)}
		}
		m.Offset = at
		last = at + blocks(m.Size)
		return visit(m, contents)
	})
	var entry *entryError
	if errors.As(err, &entry) && errors.Is(err, io.ErrUnexpectedEOF) {
		err = &CutError{size, err}
	}
	return size >= last+blockBytes, err
}

// entryError is the error of one header.
type entryError struct {
	n   int // number of headers before this one
	err error
}

func (e *entryError) Error() string { return fmt.Sprintf("archive entry %d: %v", e.n, e.err) }
func (e *entryError) Unwrap() error { return e.err }

// Walk calls visit for each regular file and folder of the tar stream r. The function visit may read the bytes of a
// file from contents.
func Walk(r io.Reader, limits Limits, visit func(m Member, contents io.Reader) error) error {
	return walk(r, limits, visit)
}

func walk(r io.Reader, limits Limits, visit func(Member, io.Reader) error) error {
	limits = limits.withDefaults()
	t := tar.NewReader(r)
	for n := 0; ; n++ {
		h, err := t.Next()
		if err == io.EOF {
			if n == 0 {
				return errors.New("empty archive, or not a tar")
			}
			return nil
		}
		if n == 0 && errors.Is(err, tar.ErrHeader) {
			return fmt.Errorf("not a tar archive: %w", err)
		}
		if err != nil {
			return &entryError{n, err}
		}
		if n >= limits.Members {
			return fmt.Errorf("archive has more than %d entries: %w", limits.Members, ErrRefused)
		}
		if err := check(h, limits); err != nil {
			return err
		}
		m := Member{Name: path.Clean(h.Name), Size: h.Size, Folder: h.Typeflag == tar.TypeDir}
		if h.Typeflag == tar.TypeXGlobalHeader || m.Name == "." {
			continue
		}
		if err := visit(m, t); err != nil {
			return err
		}
	}
}

// check refuses types and names of entries that no data set needs.
func check(h *tar.Header, limits Limits) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("archive member %.200q: %s: %w", h.Name, fmt.Sprintf(format, args...), ErrRefused)
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir:
	case tar.TypeXGlobalHeader:
		return nil // metadata, such as the commit that git archive writes
	case tar.TypeSymlink, tar.TypeLink:
		return refuse("is a link to %.200q", h.Linkname)
	default:
		return refuse("is neither a file nor a folder (type %q)", h.Typeflag)
	}
	if len(h.Name) > maxNameBytes {
		return refuse("name of %d bytes, want at most %d", len(h.Name), maxNameBytes)
	}
	if h.Name == "" || strings.HasPrefix(h.Name, "/") || strings.ContainsAny(h.Name, "\\\x00") {
		return refuse("want a relative path with slashes")
	}
	for part := range strings.SplitSeq(h.Name, "/") {
		if part == ".." {
			return refuse("leads out of the archive's folder")
		}
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return refuse("is a sparse file")
		}
	}
	if h.Typeflag == tar.TypeDir && h.Size != 0 {
		return refuse("folder with %d bytes of contents", h.Size)
	}
	if h.Size < 0 || h.Size > limits.MemberBytes {
		return refuse("%d bytes, want at most %d", h.Size, limits.MemberBytes)
	}
	return nil
}
