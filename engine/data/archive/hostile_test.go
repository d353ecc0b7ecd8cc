package archive

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/needtest"
)

// endless is a tar that repeats one entry.
type endless struct {
	entry []byte // header, contents and padding
	times int64
}

func (e endless) size() int64 { return int64(len(e.entry))*e.times + 1024 }

func (e endless) ReadAt(p []byte, offset int64) (n int, err error) {
	for n < len(p) {
		at := offset + int64(n)
		switch {
		case at >= e.size():
			return n, io.EOF
		case at >= int64(len(e.entry))*e.times:
			p[n] = 0 // the archive ends with two blocks of zeros
			n++
		default:
			n += copy(p[n:], e.entry[at%int64(len(e.entry)):])
		}
	}
	return n, nil
}

// allocated returns the number of bytes that do allocates. Bytes that are freed again also count.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// The test has 20,000 entries. If HETERO_HOSTILE=1, it has a million (row S7 of docs/reliability.md).
func TestAMillionEmptyEntriesAreWalkedInBoundedMemory(t *testing.T) {
	times := int64(20_000)
	if needtest.Hostile.On() {
		times = 1_000_000
	}
	source := endless{rawHeader("a/empty.jpg", '0', "00000000000\x00", ""), times}
	members := int64(0)
	begun := time.Now()
	got := allocated(func() {
		if err := Index(source, source.size(), Limits{}, func(Member) error { members++; return nil }); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%d entries in %v, %d bytes allocated for each", members, time.Since(begun), got/uint64(times))
	if members != times {
		t.Errorf("got %d members, want %d", members, times)
	}
	if each := got / uint64(times); each > 1024 && !raceEnabled {
		t.Errorf("took %d bytes for each entry, want at most 1,024", each)
	}
	if err := Index(source, source.size(), Limits{Members: int(times) - 1}, func(Member) error {
		return nil
	}); err == nil {
		t.Error("one entry too many: no error")
	}
}

// The extended headers of an entry can have any size, so their memory must be limited (row S7 of docs/reliability.md).
func TestExtendedHeadersAreBounded(t *testing.T) {
	block := func(b []byte) []byte { return append(b, make([]byte, (512-len(b)%512)%512)...) }
	header := func(typeflag byte, contents string) []byte {
		return append(rawHeader("x", typeflag, fmt.Sprintf("%011o\x00", len(contents)), ""), block([]byte(contents))...)
	}
	record := func(key, value string) string {
		text := fmt.Sprintf(" %s=%s\n", key, value)
		n := len(text)
		for n != len(text)+len(fmt.Sprint(n)) {
			n = len(text) + len(fmt.Sprint(n))
		}
		return fmt.Sprint(n) + text
	}
	file := rawHeader("a.jpg", '0', "00000000000\x00", "")
	long := strings.Repeat("n", 8<<20)
	var records strings.Builder
	for i := range 50_000 {
		records.WriteString(record(fmt.Sprintf("SCHILY.xattr.%d", i), "v"))
	}
	for _, c := range []struct {
		name     string
		contents []byte
		refused  bool
	}{
		{"a name of 8 MiB", append(header('x', record("path", long)), file...), true},
		{"an attribute of 8 MiB", append(header('x', record("SCHILY.xattr.user.a", long)), file...), true},
		{"50,000 attributes", append(header('x', records.String()), file...), true},
		{"a GNU name of 8 MiB", append(header('L', long), file...), true},
		{"a GNU link name of 8 MiB", append(header('K', long), file...), true},
		{"a header of 8 GiB that is not there", append(rawHeader("x", 'x', "77777777777\x00", ""), file...), true},
		{"many headers before one file",
			append(bytes.Repeat(header('x', record("comment", strings.Repeat("c", 900_000))), 20), file...), false},
		{"many settings for all files",
			append(bytes.Repeat(header('g', record("comment", strings.Repeat("c", 900_000))), 20), file...), false},
		{
			"GNU sparse 1.0",
			append(header('x', record("GNU.sparse.major", "1")+record("GNU.sparse.minor", "0")+
				record("GNU.sparse.name", "a")+record("GNU.sparse.realsize", "999999999999")), file...), true},
		{"GNU sparse, old", rawHeader("a", tar.TypeGNUSparse, "00000000000\x00", ""), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			contents := append(c.contents, make([]byte, 1024)...)
			var err error
			got := allocated(func() { _, err = index(contents, Limits{}) })
			if refused := err != nil; refused != c.refused {
				t.Errorf("got %v, want refused: %v", err, c.refused)
			}
			if most := uint64(len(contents))*4 + 8<<20; got > most && !raceEnabled {
				t.Errorf("took %d MiB for %d MiB", got>>20, len(contents)>>20)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}
