package archive

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data/datatest"
)

// seal returns a copy in which the checksums of all headers are correct. Without seal, Index would refuse nearly all
// fuzzed headers because of their checksums.
func seal(contents []byte) []byte {
	b := bytes.Clone(contents)
	for at := 0; at+512 <= len(b); at += 512 {
		block := b[at : at+512]
		copy(block[148:], "        ")
		sum := 0
		for _, v := range block {
			sum += int(v)
		}
		copy(block[148:], fmt.Sprintf("%06o\x00 ", sum))
	}
	return b
}

// FuzzSealedIndex is FuzzIndex with correct checksums of the headers.
func FuzzSealedIndex(f *testing.F) {
	f.Add(datatest.Tar(f, folder("a/"), file("a/1.jpg", "one"), file("b/2.cls", "7")))
	f.Add(datatest.Tar(f, file(strings.Repeat("n", 300), "x")))
	f.Add(append(rawHeader("x", 'x', "00000000020\x00", ""),
		append(append([]byte("16 path=/etc/pw\n"), make([]byte, 496)...),
			rawHeader("a", '0', "00000000000\x00", "")...)...))
	f.Add(append(rawHeader("x", 'L', "00000000020\x00", ""),
		append(append([]byte("../../../etc/pw\x00"), make([]byte, 496)...),
			rawHeader("a", '0', "00000000000\x00", "")...)...))
	f.Add(rawHeader("a", 'S', "00000000000\x00", ""))
	f.Add(rawHeader("a", '2', "00000000000\x00", "/etc/passwd"))
	f.Fuzz(func(t *testing.T, contents []byte) {
		contents = seal(contents)
		members := 0
		err := Index(bytes.NewReader(contents), int64(len(contents)), Limits{}, func(m Member) error {
			members++
			if m.Size < 0 || m.Offset < 512 || m.Offset+m.Size > int64(len(contents)) {
				t.Fatalf("member %+v lies outside of %d bytes", m, len(contents))
			}
			if m.Name == "" || strings.HasPrefix(m.Name, "/") || m.Name == ".." || strings.HasPrefix(m.Name, "../") ||
				strings.Contains(m.Name, "/../") || strings.ContainsAny(m.Name, "\\\x00") {
				t.Fatalf("name %q leaves the archive", m.Name)
			}
			return nil
		})
		if err != nil && len(err.Error()) > 5000 {
			t.Fatalf("an error of %d bytes", len(err.Error()))
		}
		if members > len(contents)/512 {
			t.Fatalf("%d members in %d bytes", members, len(contents))
		}
	})
}
