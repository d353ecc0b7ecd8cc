package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/data/datatest"
)

func file(name, contents string) datatest.Member { return datatest.File(name, contents) }

func folder(name string) datatest.Member {
	return datatest.Member{Header: tar.Header{Name: name, Typeflag: tar.TypeDir}}
}

// rawHeader returns a header that the writer of archive/tar would refuse.
func rawHeader(name string, typeflag byte, size string, link string) []byte {
	b := make([]byte, 512)
	copy(b, name)
	copy(b[100:], "0000644\x00")
	copy(b[124:], size)
	b[156] = typeflag
	copy(b[157:], link)
	copy(b[257:], "ustar\x0000")
	return seal(b)
}

func index(contents []byte, limits Limits) ([]Member, error) {
	var all []Member
	err := Index(bytes.NewReader(contents), int64(len(contents)), limits, func(m Member) error {
		all = append(all, m)
		return nil
	})
	return all, err
}

func TestIndexFindsTheContentsOfEachMember(t *testing.T) {
	long := strings.Repeat("long/", 60) + "name.jpg" // a name that needs an extended header
	contents := datatest.Tar(t, folder("a/"), file("a/empty", ""), file("./a/one", "1"),
		file(long, strings.Repeat("x", 1000)),
		datatest.Member{Header: tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header",
			PAXRecords: map[string]string{"comment": "c"}}},
		file("ü/z", "last"))
	all, err := index(contents, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range all {
		text := "folder"
		if !m.Folder {
			text = string(contents[m.Offset:][:m.Size])
		}
		got = append(got, m.Name+"="+text)
	}
	want := []string{"a=folder", "a/empty=", "a/one=1", long + "=" + strings.Repeat("x", 1000), "ü/z=last"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q, want %q", got, want)
	}
	var walked []string
	err = Walk(bytes.NewReader(contents), Limits{}, func(m Member, r io.Reader) error {
		text, err := io.ReadAll(r)
		walked = append(walked, m.Name+"="+string(text))
		return err
	})
	if err != nil || len(walked) != len(want) || walked[2] != "a/one=1" {
		t.Errorf("Walk: %q, %v", walked, err)
	}
}

func TestAttacksAreRefused(t *testing.T) {
	regular := func(name string) []byte { return rawHeader(name, '0', "00000000000\x00", "") }
	pax := func(key, value string) []byte {
		record := fmt.Sprintf(" %s=%s\n", key, value)
		n := len(record) + 2
		text := fmt.Sprint(n) + record
		block := make([]byte, 512)
		copy(block, text)
		return append(rawHeader("pax", 'x', fmt.Sprintf("%011o\x00", len(text)), ""), block...)
	}
	for _, c := range []struct {
		name     string
		contents []byte
		limits   Limits
		want     string
	}{
		{"parent", regular("../x.jpg"), Limits{}, "leads out of the archive's folder"},
		{"parent within", regular("a/../../x.jpg"), Limits{}, "leads out of the archive's folder"},
		{"parent that stays inside", regular("a/../x.jpg"), Limits{}, "leads out of the archive's folder"},
		{"absolute", regular("/etc/passwd"), Limits{}, "relative path"},
		{"backslash", regular(`a\..\x.jpg`), Limits{}, "relative path"},
		{"no name", regular(""), Limits{}, "relative path"},
		{"symbolic link", rawHeader("a", '2', "0\x00", "/etc/passwd"), Limits{}, `is a link to "/etc/passwd"`},
		{"hard link", rawHeader("a", '1', "0\x00", "b"), Limits{}, `is a link to "b"`},
		{"character device", rawHeader("a", '3', "0\x00", ""), Limits{}, "neither a file nor a folder"},
		{"block device", rawHeader("a", '4', "0\x00", ""), Limits{}, "neither a file nor a folder"},
		{"pipe", rawHeader("a", '6', "0\x00", ""), Limits{}, "neither a file nor a folder"},
		{"contiguous file", rawHeader("a", '7', "0\x00", ""), Limits{}, "neither a file nor a folder"},
		{"member above its limit", rawHeader("a.jpg", '0', "00000000021\x00", ""), Limits{MemberBytes: 16},
			"17 bytes, want at most 16"},
		{"huge member", rawHeader("a.jpg", '0', "\x80\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff", ""), Limits{},
			"bytes, want at most 67108864"},
		{"too many entries", append(regular("a"), regular("b")...), Limits{Members: 1}, "more than 1 entries"},
		{"huge member by extended header", append(pax("size", "99999999999"), regular("a.jpg")...), Limits{},
			"99999999999 bytes, want at most"},
		{"parent by extended header", append(pax("path", "../../x"), regular("a.jpg")...), Limits{},
			"leads out of the archive's folder"},
		{"long name", datatest.Tar(t, file(strings.Repeat("n/", 3000)+"n", "")), Limits{},
			"name of 6001 bytes, want at most 4096"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := index(append(c.contents, make([]byte, 1024)...), c.limits)
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want a refusal with %q", err, c.want)
			}
		})
	}
}

func TestDamagedArchivesAreErrors(t *testing.T) {
	good := datatest.Tar(t, file("a.jpg", strings.Repeat("x", 2000)), file("b.jpg", "b"))
	wrongSum := bytes.Clone(good)
	wrongSum[0]++
	negative := append(rawHeader("a", '0', "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe", ""),
		make([]byte, 1024)...)
	for name, contents := range map[string][]byte{
		"empty file": nil, "no tar": bytes.Repeat([]byte("text "), 300), "cut in the contents": good[:700],
		"cut in a header": good[:100],
		"wrong checksum":  wrongSum, "negative size": negative, "zeros": make([]byte, 1024),
		"cut in the last contents": good[:len(good)-1024-512],
	} {
		all, err := index(contents, Limits{})
		if err == nil {
			t.Errorf("%s: no error, members %v", name, all)
		}
		if name == "no tar" && !strings.Contains(err.Error(), "not a tar archive") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestIndexStopsWithTheErrorOfVisit(t *testing.T) {
	stop := errors.New("stop")
	contents := datatest.Tar(t, file("a", ""), file("b", ""))
	n := 0
	err := Index(bytes.NewReader(contents), int64(len(contents)), Limits{}, func(Member) error { n++; return stop })
	if err != stop || n != 1 {
		t.Errorf("%v after %d members", err, n)
	}
}

func write(t testing.TB, path string, contents []byte) string {
	t.Helper()
	if err := os.WriteFile(path, contents, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPlainExpandsOnceAndAgainWhenTheSourceChanges(t *testing.T) {
	dir, cache := t.TempDir(), filepath.Join(t.TempDir(), "made", "on", "demand")
	plain := datatest.Tar(t, file("a/1.jpg", "one"))
	source := write(t, filepath.Join(dir, "set.tar.gz"), datatest.Gzip(t, plain))
	calls := 0
	get := func() string {
		t.Helper()
		path, err := Plain(t.Context(), source, cache, Limits{}, func(done, total int64) {
			calls++
			if done < 0 || done > total {
				t.Errorf("progress %d of %d", done, total)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	first := get()
	if got, err := os.ReadFile(first); err != nil || !bytes.Equal(got, plain) {
		t.Fatalf("contents differ, %v", err)
	}
	if base := filepath.Base(first); !strings.HasPrefix(base, "set-") || !strings.HasSuffix(base, ".tar") ||
		calls == 0 {
		t.Errorf("name %s, %d reports of progress", base, calls)
	}
	calls = 0
	if again := get(); again != first || calls != 0 {
		t.Errorf("second call: %s after %d reports of progress, want %s without", again, calls, first)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(source, later, later); err != nil {
		t.Fatal(err)
	}
	if third := get(); third == first {
		t.Error("a changed source is served from the old file")
	}
}

func TestPlainLeavesNothingBehindAFailure(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	good := datatest.Tar(t, file("a.jpg", "x"))
	zeros := datatest.Tar(t, file("zeros.png", strings.Repeat("\x00", 8<<20)))
	cut := datatest.Gzip(t, good)
	for _, c := range []struct {
		name     string
		ctx      context.Context
		contents []byte
		limits   Limits
		want     string
	}{
		{"not compressed", t.Context(), good, Limits{}, "gzip"},
		{"has become shorter", t.Context(), cut[:len(cut)-6], Limits{}, "unexpected EOF"},
		{"bomb by ratio", t.Context(), datatest.Gzip(t, zeros), Limits{ExpandFree: 1 << 20}, "more than 200 times its size"},
		{"bomb by size", t.Context(), datatest.Gzip(t, zeros), Limits{TotalBytes: 7 << 20}, "more than 7340032 bytes"},
		{"member above its limit", t.Context(), datatest.Gzip(t, zeros), Limits{MemberBytes: 1 << 20},
			"want at most 1048576"},
		{
			"link inside", t.Context(),
			datatest.Gzip(t, append(rawHeader("a", '2', "0\x00", "/etc/passwd"), make([]byte, 1024)...)), Limits{},
			"is a link"},
		{"cancelled", cancelled, datatest.Gzip(t, good), Limits{}, "context canceled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, cache := t.TempDir(), t.TempDir()
			source := write(t, filepath.Join(dir, "set.tgz"), c.contents)
			if path, err := Plain(c.ctx, source, cache, c.limits, nil); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("got %s, %v, want %q", path, err, c.want)
			}
			entries, err := os.ReadDir(cache)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if !strings.HasSuffix(e.Name(), ".lock") {
					t.Errorf("%s is left", e.Name())
				}
			}
		})
	}
}

// The test creates a file or a folder at a path that Plain needs. It does not remove permissions, because root may
// write anywhere.
func TestFaultsOfTheCacheFolderAreTold(t *testing.T) {
	source := write(t, filepath.Join(t.TempDir(), "set.tar.gz"), datatest.Gzip(t, datatest.Tar(t, file("a.jpg", "x"))))
	for _, c := range []struct {
		name    string
		prepare func(cache, target string) error
		want    error
	}{
		{"the folder is a file", func(cache, _ string) error {
			return errors.Join(os.RemoveAll(cache), os.WriteFile(cache, nil, 0o644))
		}, syscall.ENOTDIR},
		{"the lock is a folder", func(_, target string) error {
			return errors.Join(os.Remove(target+".lock"), os.Mkdir(target+".lock", 0o755))
		}, syscall.EISDIR},
		{"the temporary file is a folder", func(_, target string) error { return os.Mkdir(target+".part", 0o755) },
			syscall.EEXIST},
	} {
		t.Run(c.name, func(t *testing.T) {
			cache := filepath.Join(t.TempDir(), "cache")
			target, err := Plain(t.Context(), source, cache, Limits{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.Remove(target), c.prepare(cache, target)); err != nil {
				t.Fatal(err)
			}
			_, err = Plain(t.Context(), source, cache, Limits{}, nil)
			var fault *CacheError
			if !errors.As(err, &fault) || fault.Dir != cache || !errors.Is(err, c.want) {
				t.Errorf("got %v, want a *CacheError of %s with %q", err, cache, c.want)
			}
		})
	}
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0) // a full disk
	if err != nil {
		t.Fatal(err)
	}
	packed, err := os.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	target := filepath.Join(t.TempDir(), "set")
	write(t, target+".part", nil)
	var fault *CacheError
	err = expand(t.Context(), packed, 100, full, target, Limits{}.withDefaults(), nil, func(err error) error {
		return &CacheError{"cache", err}
	})
	if !errors.As(err, &fault) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk: got %v", err)
	}
	if _, err := os.Stat(target + ".part"); err == nil {
		t.Error("a full disk: the file without its end stays")
	}
	damaged := write(t, filepath.Join(t.TempDir(), "set.tar.gz"), []byte{0x1F, 0x8B, 8})
	if _, err := Plain(t.Context(), damaged, t.TempDir(), Limits{}, nil); err == nil ||
		errors.As(err, new(*CacheError)) {
		t.Errorf("a damaged source: got %v, want an error that is not the cache's", err)
	}
}

func TestPlainFollowsNoLink(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	source := write(t, filepath.Join(dir, "set.tar.gz"), datatest.Gzip(t, datatest.Tar(t, file("a.jpg", "x"))))
	path, err := Plain(t.Context(), source, cache, Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	victim := write(t, filepath.Join(dir, "victim"), []byte("precious"))
	if err := errors.Join(os.Remove(path), os.Symlink(victim, path+".part")); err != nil {
		t.Fatal(err)
	}
	if _, err := Plain(t.Context(), source, cache, Limits{}, nil); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(victim); string(text) != "precious" || err != nil {
		t.Errorf("got %.20q, %v, want the file as it was", text, err)
	}
}

func TestPlainOverwritesWhatAnInterruptedRunLeft(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	plain := datatest.Tar(t, file("a.jpg", "x"))
	source := write(t, filepath.Join(dir, "set.tar.gz"), datatest.Gzip(t, plain))
	path, err := Plain(t.Context(), source, cache, Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".part"); err != nil {
		t.Fatal(err)
	}
	write(t, path+".part", bytes.Repeat([]byte("garbage"), 10_000))
	if _, err := Plain(t.Context(), source, cache, Limits{}, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("contents differ, %v", err)
	}
}

func TestCompressedLooksAtTheContents(t *testing.T) {
	for name, c := range map[string]struct {
		contents []byte
		want     bool
	}{"gzip": {datatest.Gzip(t, nil), true}, "tar": {datatest.Tar(t, file("a", "")), false}, "empty": {nil, false},
		"one byte": {[]byte{0x1F}, false}} {
		if got, err := Compressed(bytes.NewReader(c.contents)); err != nil || got != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func FuzzIndex(f *testing.F) {
	f.Add(datatest.Tar(f, folder("a/"), file("a/1.jpg", "one"), file(strings.Repeat("n", 300), "x")))
	f.Add(rawHeader("../x", '0', "00000000000\x00", ""))
	f.Add(rawHeader("a", '0', "\x80\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff", ""))
	f.Add(append(rawHeader("x", 'x', "00000000020\x00", ""), []byte("16 path=/etc/pw\n")...))
	f.Fuzz(func(t *testing.T, contents []byte) {
		err := Index(bytes.NewReader(contents), int64(len(contents)), Limits{}, func(m Member) error {
			if m.Size < 0 || m.Offset < 512 || m.Offset+m.Size > int64(len(contents)) {
				t.Fatalf("member %+v lies outside of %d bytes", m, len(contents))
			}
			if m.Name == "" || strings.HasPrefix(m.Name, "/") || m.Name == ".." || strings.HasPrefix(m.Name, "../") ||
				strings.Contains(m.Name, "/../") {
				t.Fatalf("name %q leaves the archive", m.Name)
			}
			return nil
		})
		_ = err // any error is allowed, because the test only checks the visited members
	})
}
