package archive

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/hetero-train/hetero-train/engine/data/datatest"
)

// photos returns a tar with the given number of members. The members hardly compress. Each contains a line of text.
func photos(t testing.TB, members int) []byte {
	rng := rand.New(rand.NewPCG(5, 6))
	var items []datatest.Member
	for i := range members {
		b := make([]byte, 2000+rng.IntN(60_000))
		for k := range b {
			b[k] = byte(rng.Uint32())
		}
		items = append(items, file(fmt.Sprintf("%04d.jpg", i), string(b)),
			file(fmt.Sprintf("%04d.cls", i), fmt.Sprint(i%10)))
	}
	return datatest.Tar(t, items...)
}

// zstds compresses b into frames of at most frame bytes. Between any two frames, it adds a skippable frame.
func zstds(t testing.TB, b []byte, frame int) []byte {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(true))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	out := []byte{0x50, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 1, 2, 3}
	for len(b) > 0 {
		n := min(frame, len(b))
		out = e.EncodeAll(b[:n], out)
		out = append(out, 0x5F, 0x2A, 0x4D, 0x18, 0, 0, 0, 0)
		b = b[n:]
	}
	return out
}

// passed returns the members that Scan passes to visit. Scan refuses gzip, for which passed returns the members of
// Stream.
func passed(t testing.TB, b []byte, limits Limits) (all []Member, err error) {
	if c, err := Detect(bytes.NewReader(b)); err == nil && c == Gzip {
		if _, _, err := scan(t, b, limits); err == nil {
			t.Error("Scan takes a gzip stream")
		}
		err := Stream(t.Context(), bytes.NewReader(b), int64(len(b)), limits, func(m Member, _ io.Reader) error {
			all = append(all, m)
			return nil
		})
		return all, err
	}
	_, all, err = scan(t, b, limits)
	return all, err
}

func scan(t testing.TB, b []byte, limits Limits) (Layout, []Member, error) {
	var all []Member
	l, err := Scan(t.Context(), bytes.NewReader(b), int64(len(b)), limits, nil,
		func(m Member, contents io.Reader) error {
			if strings.HasSuffix(m.Name, ".cls") {
				if _, err := io.ReadAll(contents); err != nil {
					return err
				}
			}
			all = append(all, m)
			return nil
		})
	return l, all, err
}

func TestAnyPlaceOfACompressedArchiveCanBeRead(t *testing.T) {
	plain := photos(t, 60)
	for name, b := range map[string][]byte{"plain": plain, "zstd, one frame": zstds(t, plain, len(plain)),
		"zstd, small frames": zstds(t, plain, 10_000), "zstd, frames": zstds(t, plain, 500_000)} {
		l, members, err := scan(t, b, Limits{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if l.Size != int64(len(plain)) || len(members) != 120 {
			t.Fatalf("%s: got %d bytes and %d members, want %d and 120", name, l.Size, len(members), len(plain))
		}
		if want := 3; len(l.Chunks) < want && name != "plain" && name != "zstd, one frame" {
			t.Errorf("%s: %d chunks, want at least %d", name, len(l.Chunks), want)
		}
		for _, limit := range []int64{0, 600_000, 1 << 30} { // no cache, a small one, and one for all chunks
			random := NewRandom(limit)
			var wg sync.WaitGroup
			for g := range 3 {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(7, uint64(g)))
					for range 20 {
						m := members[rng.IntN(len(members))]
						got := make([]byte, m.Size)
						if err := random.ReadAt(1, bytes.NewReader(b), &l, got, m.Offset); err != nil {
							t.Errorf("%s: %s: %v", name, m.Name, err)
						} else if !bytes.Equal(got, plain[m.Offset:][:m.Size]) {
							t.Errorf("%s: %s: other bytes than were stored", name, m.Name)
						}
					}
				})
			}
			wg.Wait()
			if random.held > limit {
				t.Errorf("%s: holds %d bytes, want at most %d", name, random.held, limit)
			}
		}
		if err := NewRandom(0).ReadAt(0, bytes.NewReader(b), &l, make([]byte, 10), l.Size-9); !errors.Is(err,
			io.ErrUnexpectedEOF) {
			t.Errorf("%s: behind the end: got %v", name, err)
		}
	}
}

func TestDamageAfterTheScanIsFound(t *testing.T) {
	plain := photos(t, 20)
	for name, b := range map[string][]byte{"zstd": zstds(t, plain, 300_000)} {
		l, members, err := scan(t, b, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		read := func(b []byte) (failed int) {
			random := NewRandom(0)
			for _, m := range members {
				got := make([]byte, m.Size)
				if err := random.ReadAt(0, bytes.NewReader(b), &l, got, m.Offset); err != nil {
					failed++
				} else if !bytes.Equal(got, plain[m.Offset:][:m.Size]) {
					t.Fatalf("%s: %s: wrong bytes without an error", name, m.Name)
				}
			}
			return failed
		}
		damaged := bytes.Clone(b)
		damaged[len(b)/2] ^= 4
		if n := read(damaged); n == 0 || n == len(members) {
			t.Errorf("%s: a flipped bit: %d of %d members fail, want some", name, n, len(members))
		}
		if n := read(b[:len(b)/2]); n == 0 || n == len(members) {
			t.Errorf("%s: cut to half: %d of %d members fail, want some", name, n, len(members))
		}
	}
}

func TestBombsEndAtTheLimits(t *testing.T) {
	zeros := file("zeros.bin", strings.Repeat("\x00", 6<<20))
	// 12 MiB that compress to a thousandth of this size
	bomb := datatest.Tar(t, zeros, file("1.txt", ""), zeros)
	trailing := append(datatest.Tar(t, file("1.txt", "x")), make([]byte, 10<<20)...) // more bytes follow the tar
	for name, plain := range map[string][]byte{"members": bomb, "behind the end": trailing} {
		for kind, b := range map[string][]byte{"gzip": datatest.Gzip(t, plain), "zstd": zstds(t, plain, len(plain))} {
			if _, err := passed(t, b, Limits{ExpandFree: 1 << 20}); !errors.Is(err, ErrRefused) {
				t.Errorf("%s, %s of %d bytes: got %v, want it refused", name, kind, len(b), err)
			}
			if _, err := passed(t, b, Limits{TotalBytes: 5 << 20}); !errors.Is(err, ErrRefused) ||
				!strings.Contains(err.Error(), "5242880") {
				t.Errorf("%s, %s: total limit: got %v, want it refused", name, kind, err)
			}
		}
	}
	if _, err := passed(t, datatest.Gzip(t, datatest.Tar(t, file("a", strings.Repeat("x", 2000)))),
		Limits{MemberBytes: 1999}); !errors.Is(err, ErrRefused) {
		t.Errorf("large member: got %v, want it refused", err)
	}
	link := append(rawHeader("a.jpg", '2', "00000000000\x00", "/etc/passwd"), make([]byte, 1024)...)
	if _, _, err := scan(t, zstds(t, link, 1000), Limits{}); !errors.Is(err, ErrRefused) {
		t.Errorf("link: got %v, want it refused", err)
	}
}

func TestTruncatedArchivesAreDamaged(t *testing.T) {
	plain := photos(t, 8)
	for name, b := range map[string][]byte{"plain": plain[:len(plain)-1024], "gzip": datatest.Gzip(t, plain),
		"zstd": zstds(t, plain, 50_000)} {
		for i := 1; i < 64; i++ {
			n := len(b) * i / 64
			members, err := passed(t, b[:n], Limits{})
			// If a plain tar is truncated between two members, no reader can detect this.
			whole := name == "plain" && len(members) > 0
			if err == nil && !whole {
				t.Errorf("%s cut to %d of %d bytes: no error", name, n, len(b))
			}
		}
	}
}

// FuzzScan compares random access with sequential decompression.
func FuzzScan(f *testing.F) {
	plain := datatest.Tar(f, file("a/1.jpg", "photo"), file("a/1.cls", "3"), folder("b"))
	f.Add(plain)
	f.Add(zstds(f, plain, 600))
	f.Add(append(rawHeader("../a.jpg", '0', "00000000000\x00", ""), make([]byte, 1024)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, members, err := scan(t, b, Limits{TotalBytes: 8 << 20, MemberBytes: 1 << 20, Members: 1000})
		if err != nil {
			return
		}
		if err := l.Check(); err != nil {
			t.Fatalf("scanned without an error, but %v", err)
		}
		random := NewRandom(1 << 20)
		for _, m := range members {
			if strings.Contains("/"+m.Name+"/", "/../") || strings.HasPrefix(m.Name, "/") {
				t.Fatalf("name %q is not refused", m.Name)
			}
			if err := random.ReadAt(0, bytes.NewReader(b), &l, make([]byte, m.Size), m.Offset); err != nil {
				t.Fatalf("%s: %v", m.Name, err)
			}
		}
	})
}

func TestPlainExpandsZstd(t *testing.T) {
	plain := photos(t, 5)
	source := filepath.Join(t.TempDir(), "photos.tar.zst")
	if err := os.WriteFile(source, zstds(t, plain, 70_000), 0o644); err != nil {
		t.Fatal(err)
	}
	path, err := Plain(t.Context(), source, t.TempDir(), Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("got %d bytes and %v, want the %d of the tar", len(got), err, len(plain))
	}
}

func TestRepackedIsTheSame(t *testing.T) {
	plain := append(photos(t, 60), make([]byte, 5000)...) // the padding at the end of a tape must be kept
	for name, b := range map[string][]byte{"plain": plain, "gzip": datatest.Gzip(t, plain),
		"zstd": zstds(t, plain, len(plain))} {
		var out bytes.Buffer
		if _, err := Repack(t.Context(), bytes.NewReader(b), int64(len(b)), &out, nil); err != nil {
			t.Fatal(err)
		}
		l, _, err := scan(t, out.Bytes(), Limits{})
		if err != nil || l.Largest() > repackBytes {
			t.Errorf("%s: chunks of %d bytes, %v, want at most %d", name, l.Largest(), err, repackBytes)
		}
		got := make([]byte, len(plain))
		if err := NewRandom(0).ReadAt(0, bytes.NewReader(out.Bytes()), &l, got, 0); err != nil ||
			!bytes.Equal(got, plain) {
			t.Errorf("%s: other bytes, or %v", name, err)
		}
		if name != "plain" {
			if _, err := Repack(t.Context(), bytes.NewReader(b[:len(b)/2]), int64(len(b)/2), io.Discard,
				nil); err == nil {
				t.Errorf("%s: cut to half: no error", name)
			}
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestRepackTellsReadingFromWriting(t *testing.T) {
	plain := photos(t, 60)
	if _, err := Repack(t.Context(), bytes.NewReader(plain), int64(len(plain)), fullDisk{}, nil); !errors.Is(err,
		ErrWrite) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk: got %v", err)
	}
	text := bytes.Repeat([]byte("text"), 1000)
	for name, b := range map[string][]byte{"plain": text, "gzip": datatest.Gzip(t, text), "cut": plain[:len(plain)/2]} {
		if _, err := Repack(t.Context(), bytes.NewReader(b), int64(len(b)), io.Discard, nil); err == nil ||
			errors.Is(err, ErrWrite) {
			t.Errorf("%s: got %v, want that it is no tar", name, err)
		}
	}
}

// The fuzzer finds rare faults, and TestChangedBytesAreErrorsOrPlainData finds frequent ones. Use -archive.trials
// 1000000 for a long run.
var trials = flag.Int("archive.trials", 3000, "archives that TestChangedBytesAreErrorsOrPlainData tries")

func TestChangedBytesAreErrorsOrPlainData(t *testing.T) {
	plain := datatest.Tar(t, file("a/1.jpg", "photo"), file("a/1.cls", "3"), folder("b"),
		file("b/2.jpg", strings.Repeat("picture", 100)))
	seeds := [][]byte{plain, zstds(t, plain, 600)}
	rng := rand.New(rand.NewPCG(1, 1))
	read := 0
	for n := range *trials {
		b := bytes.Clone(seeds[n%len(seeds)])
		for range 1 + rng.IntN(4) {
			b[rng.IntN(len(b))] = byte(rng.Uint32())
		}
		want := map[int64]string{} // contents by offset
		l, err := Scan(t.Context(), bytes.NewReader(b), int64(len(b)), Limits{TotalBytes: 8 << 20}, nil,
			func(m Member, contents io.Reader) error {
				text, err := io.ReadAll(contents)
				want[m.Offset] = string(text)
				return err
			})
		if err != nil {
			continue
		}
		random := NewRandom(1 << 20)
		for at, text := range want {
			got := make([]byte, len(text))
			if err := random.ReadAt(0, bytes.NewReader(b), &l, got, at); err != nil || string(got) != text {
				t.Fatalf("trial %d: %d bytes at %d: other bytes than the scan saw, or %v", n, len(text), at, err)
			}
		}
		read++
	}
	if read == 0 || read == *trials {
		t.Errorf("%d of %d changed archives were read, want some", read, *trials)
	}
	t.Logf("%d of %d changed archives were read, as the scan saw them", read, *trials)
}
