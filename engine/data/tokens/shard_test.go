package tokens

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
)

// testHeader returns the header of a small vocabulary. Token 9 ends a document.
func testHeader() Header { return Header{Tokenizer: "test", Vocabulary: 10, EndOfText: 9} }

// writeShard writes tokens to a shard in a temporary folder.
func writeShard(t testing.TB, h Header, tokens ...int32) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "train-000000.bin")
	w, err := Create(path, h)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(tokens); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	return path
}

func writeFile(t testing.TB, name string, contents []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, contents, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func count(n, below int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(i % below)
	}
	return tokens
}

func openShard(t testing.TB, path string, vocabulary int) *Shard {
	t.Helper()
	s, err := OpenOptions{Vocabulary: vocabulary}.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestAShardReturnsItsTokens(t *testing.T) {
	for _, vocabulary := range []int{10, 1 << 16, 1<<16 + 1, 1<<31 - 1} {
		h := testHeader()
		h.Vocabulary = vocabulary
		tokens := count(25, 10)
		tokens = append(tokens, int32(vocabulary-1))
		s := openShard(t, writeShard(t, h, tokens...), 0)
		got := make([]int32, len(tokens))
		if err := s.Read(0, got); err != nil || !slices.Equal(got, tokens) {
			t.Errorf("vocabulary %d: got %v, %v, want %v", vocabulary, got, err, tokens)
		}
		if err := s.Read(3, got[:2]); err != nil || got[0] != 3 || got[1] != 4 {
			t.Errorf("vocabulary %d: got %v, %v", vocabulary, got[:2], err)
		}
		want := 2
		if vocabulary > 1<<16 {
			want = 4
		}
		sum, err := s.Verify(t.Context())
		if err != nil || sum.Largest != int32(vocabulary-1) || s.TokenBytes != want || s.Tokenizer != "test" ||
			s.Count != 26 {
			t.Errorf("vocabulary %d: got %+v, %+v, %v", vocabulary, s.Header, sum, err)
		}
	}
}

func TestReadOutsideAShardIsAnError(t *testing.T) {
	s := openShard(t, writeShard(t, testHeader(), 1, 2, 3), 0)
	for _, at := range []int64{-1, 2, 1 << 62} {
		if err := s.Read(at, make([]int32, 2)); err == nil {
			t.Errorf("at %d: no error", at)
		}
	}
}

// llmc returns a file in the format of llm.c, as dev/data/data_common.py writes it.
func llmc(magic, version, count int32, tokens []byte) []byte {
	head := make([]byte, 1024)
	for i, v := range []int32{magic, version, count} {
		binary.LittleEndian.PutUint32(head[4*i:], uint32(v))
	}
	return append(head, tokens...)
}

func TestFilesOfOtherProgramsAreRead(t *testing.T) {
	u16 := []byte{1, 0, 0x50, 0xC4, 7, 0} // tokens 1, 50256, 7
	u32 := []byte{1, 0, 0, 0, 0, 0xF4, 1, 0}
	for name, c := range map[string]struct {
		file []byte
		want Header
		is   []int32
	}{
		"gpt-2": {llmc(20240520, 1, 3, u16), Header{Format: FormatLLMC, TokenBytes: 2, Count: 3, Vocabulary: 50257,
			EndOfText: 50256, Tokenizer: "gpt2"}, []int32{1, 50256, 7}},
		"llama-3": {llmc(20240801, 7, 2, u32), Header{Format: FormatLLMC, TokenBytes: 4, Count: 2, Vocabulary: 128256,
			EndOfText: 128000, Tokenizer: "llama3"}, []int32{1, 128000}},
		"nanoGPT": {u16, Header{Format: FormatNanoGPT, TokenBytes: 2, Count: 3, EndOfText: NoToken},
			[]int32{1, 50256, 7}},
	} {
		s := openShard(t, writeFile(t, "train.bin", c.file), 0)
		got := make([]int32, len(c.is))
		if err := s.Read(0, got); err != nil || s.Header != c.want || !slices.Equal(got, c.is) {
			t.Errorf("%s: got %+v %v %v, want %+v %v", name, s.Header, got, err, c.want, c.is)
		}
	}
}

// The test changes one value in a valid file. In all cases but one, it also corrects the checksum of the header.
func TestLyingHeaders(t *testing.T) {
	path := writeShard(t, testHeader(), 1, 2, 9)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	put32 := func(at int, v uint32) func([]byte) []byte {
		return func(b []byte) []byte { binary.LittleEndian.PutUint32(b[at:], v); return b }
	}
	for name, c := range map[string]struct {
		change func([]byte) []byte
		want   string
	}{
		"empty": {func(b []byte) []byte { return nil }, "the file is empty"},
		"half a header": {func(b []byte) []byte { return b[:100] },
			"header: got 100 bytes, want 256: the file is truncated"},
		"half a magic": {func(b []byte) []byte { return b[:4] }, "got 4 bytes"},
		"truncated tokens": {func(b []byte) []byte { return b[:len(b)-2] },
			"header: got 3 tokens of 2 bytes each, but 4 bytes follow the header"},
		"half a token": {func(b []byte) []byte { return b[:len(b)-1] },
			"header: got 3 tokens of 2 bytes each, but 5 bytes follow the header"},
		"more tokens": {func(b []byte) []byte { return append(b, 1, 0) },
			"but 8 bytes follow the header"},
		"a later version":   {put32(8, 2), "header: got version 2, want 1"},
		"3 bytes per token": {put32(12, 3), "header: got 3 bytes per token, want 2 or 4"},
		"4 bytes per token": {
			put32(12, 4), "header: got 3 tokens of 4 bytes each, but 6 bytes follow the header"},
		"more tokens stated": {
			put32(16, 4), "header: got 4 tokens of 2 bytes each, but 6 bytes follow the header"},
		"2^62 tokens stated":      {put32(20, 1<<30), "tokens, want at least 1"},
		"no tokens stated":        {put32(16, 0), "header: got 0 tokens, want at least 1"},
		"no vocabulary":           {put32(24, 0), "a vocabulary of 0 tokens, want 1 to 65536"},
		"a vocabulary of 32 bits": {put32(24, 1<<16+1), "a vocabulary of 65537 tokens, want 1 to 65536"},
		"end of text beyond": {
			put32(28, 10), "got end-of-text token 10, want less than the vocabulary size, 10"},
		"more documents than tokens": {put32(160, 4), "got 4 documents, more than the 3 tokens"},
		"a name with a control":      {func(b []byte) []byte { b[64] = 27; return b }, `got tokenizer "\x1best"`},
		"no name":                    {func(b []byte) []byte { clear(b[64:128]); return b }, "got tokenizer"},
		"a name after its end": {func(b []byte) []byte { b[100] = 'x'; return b },
			"continues after a zero byte"},
		"reserved bytes":              {func(b []byte) []byte { b[200] = 1; return b }, "want zeros"},
		"a changed header, unchecked": {func(b []byte) []byte { b[252]++; return b }, "the header is damaged"},
		"gpt-2: truncated header": {func([]byte) []byte { return llmc(20240520, 1, 3, nil)[:500] },
			"llm.c header: got 500 bytes, want 1024"},
		"gpt-2: another version": {func([]byte) []byte { return llmc(20240520, 2, 1, []byte{1, 0}) },
			"llm.c header: got version 2, want 1"},
		"gpt-2: negative count": {func([]byte) []byte { return llmc(20240520, 1, -1, []byte{1, 0}) },
			"got -1 tokens"},
		"gpt-2: truncated": {func([]byte) []byte { return llmc(20240520, 1, 2, []byte{1, 0}) },
			"header: got 2 tokens of 2 bytes each, but 2 bytes follow the header"},
		"llama-3: version of gpt-2": {func([]byte) []byte { return llmc(20240801, 1, 1, []byte{1, 0, 0, 0}) },
			"llm.c header: got version 1, want 7"},
		"nanoGPT: odd size": {func([]byte) []byte { return []byte{1, 0, 2} },
			"3 bytes, want a multiple of 2"},
	} {
		file := c.change(bytes.Clone(good))
		if len(file) >= HeaderBytes && bytes.HasPrefix(file, []byte(magic)) && !strings.Contains(name, "unchecked") {
			binary.LittleEndian.PutUint32(file[252:], crc32.Checksum(file[:252], castagnoli))
		}
		_, err := (OpenOptions{}).Open(writeFile(t, "train.bin", file))
		var f *data.Fault
		if !errors.As(err, &f) || f.Path == "" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	for _, name := range []string{"text.txt", "photo.jpg"} {
		if _, err := (OpenOptions{}).Open(writeFile(t, name, []byte("ordinary text"))); err == nil ||
			!strings.Contains(err.Error(), `starts with "ordinary"`) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestATokenBeyondTheVocabularyIsNamedWithItsPosition(t *testing.T) {
	file := llmc(20240520, 1, 3, []byte{1, 0, 0x51, 0xC4, 7, 0}) // tokens 1, 50257, 7
	s := openShard(t, writeFile(t, "train.bin", file), 0)
	want := "token 1 (byte 1026 of the file) is 50257, want below 50257"
	if err := s.Read(0, make([]int32, 3)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	if _, err := s.Verify(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	if err := s.Read(2, make([]int32, 1)); err != nil {
		t.Errorf("a range without the token: %v", err)
	}
	// nanoGPT's data set of Shakespeare has 65 different characters.
	s = openShard(t, writeFile(t, "val.bin", []byte{64, 0, 65, 0}), 65)
	if err := s.Read(0, make([]int32, 2)); err == nil ||
		!strings.Contains(err.Error(), "token 1 (byte 2 of the file) is 65, want below 65") {
		t.Errorf("got %v", err)
	}
}

func TestAModelWithASmallerVocabularyIsRefused(t *testing.T) {
	_, err := OpenOptions{Vocabulary: 9}.Open(writeShard(t, testHeader(), 1))
	if err == nil || !strings.Contains(err.Error(), `tokenizer "test" has 10 tokens, want at most the 9 of the model`) {
		t.Errorf("got %v", err)
	}
}

func TestDamagedTokensFailVerification(t *testing.T) {
	path := writeShard(t, testHeader(), 1, 2, 3)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{4}, HeaderBytes); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := openShard(t, path, 0).Verify(t.Context()); err == nil || !strings.Contains(err.Error(), "SHA-256") {
		t.Errorf("got %v", err)
	}
}

// The test reads beyond the end of a truncated file, which raises SIGBUS. The read must return a fault.
func TestATruncatedMappingIsAFault(t *testing.T) {
	path := writeShard(t, testHeader(), count(20_000, 9)...)
	s := openShard(t, path, 0)
	if err := os.Truncate(path, 300); err != nil {
		t.Fatal(err)
	}
	var f *data.Fault
	if err := s.Read(15_000, make([]int32, 10)); !errors.As(err, &f) ||
		!strings.Contains(err.Error(), "truncated while it was open") {
		t.Errorf("got %v", err)
	}
	if _, err := s.Verify(t.Context()); !errors.As(err, &f) {
		t.Errorf("got %v", err)
	}
}

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	var f *data.Fault
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "missing.bin"), "/dev/zero"} {
		if _, err := (OpenOptions{}).Open(path); !errors.As(err, &f) {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

func TestAWriterContinuesAPart(t *testing.T) {
	whole := writeShard(t, testHeader(), count(1000, 10)...)
	want, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	for _, finished := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "s.bin")
		w, err := Create(path, testHeader())
		if err != nil {
			t.Fatal(err)
		}
		must(t, w.Append(count(500, 10)))
		must(t, w.Sync())
		kept, documents := w.Count(), w.Documents()
		must(t, w.Append([]int32{1, 1, 1})) // tokens after the last Sync, which a process that continues must ignore
		if finished {
			_, err = w.Finish()
			must(t, err)
		} else {
			must(t, w.out.Flush())
			must(t, w.Close())
		}
		w, err = Resume(path, testHeader(), kept, documents)
		if err != nil {
			t.Fatal(err)
		}
		rest := make([]int32, 0, 500)
		for i := 500; i < 1000; i++ {
			rest = append(rest, int32(i%10))
		}
		must(t, w.Append(rest))
		_, err = w.Finish()
		must(t, err)
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("finished %v: files differ (%v)", finished, err)
		}
	}
}

func TestAWriterRefusesWhatAReaderWouldRefuse(t *testing.T) {
	dir := t.TempDir()
	if _, err := Create(filepath.Join(dir, "a.bin"), Header{Tokenizer: "a\n", Vocabulary: 3}); err == nil {
		t.Error("a name with a line end: no error")
	}
	w, err := Create(filepath.Join(dir, "b.bin"), testHeader())
	must(t, err)
	if err := w.Append([]int32{1, 10}); err == nil || !strings.Contains(err.Error(), "token 1 is 10, want below 10") {
		t.Errorf("got %v", err)
	}
	w, err = Create(filepath.Join(dir, "c.bin"), testHeader())
	must(t, err)
	if _, err := w.Finish(); err == nil || !strings.Contains(err.Error(), "no tokens") {
		t.Errorf("got %v", err)
	}
	if names, err := filepath.Glob(filepath.Join(dir, "*.bin")); len(names) != 0 || err != nil {
		t.Errorf("got %v, %v", names, err)
	}
}

func TestACorpusJoinsShards(t *testing.T) {
	a, b := writeShard(t, testHeader(), 0, 1, 2), writeShard(t, testHeader(), 3)
	c, err := (OpenOptions{}).OpenCorpus([]string{a, b, a})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all := []int32{0, 1, 2, 3, 0, 1, 2}
	for at := range all {
		for n := range len(all) - at + 1 {
			got := make([]int32, n)
			if err := c.Read(int64(at), got); err != nil || !slices.Equal(got, all[at:at+n]) {
				t.Errorf("%d tokens at %d: got %v, %v", n, at, got, err)
			}
		}
	}
	if err := c.Read(5, make([]int32, 3)); err == nil {
		t.Error("a range that ends behind the corpus: no error")
	}
	other := testHeader()
	other.VocabularySum[0] = 1
	if _, err := (OpenOptions{}).OpenCorpus([]string{a, writeShard(t, other, 1)}); err == nil ||
		!strings.Contains(err.Error(), "want the tokenizer of") {
		t.Errorf("got %v", err)
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"fineweb_train_000002.bin", "fineweb_train_000001.bin", "fineweb_val_000000.bin",
		"notes.txt", "train.bin.part"} {
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
	}
	train := []string{filepath.Join(dir, "fineweb_train_000001.bin"), filepath.Join(dir, "fineweb_train_000002.bin")}
	f, err := Find(dir, true)
	if err != nil || !slices.Equal(f.Train, train) ||
		!slices.Equal(f.Eval, []string{filepath.Join(dir, "fineweb_val_000000.bin")}) {
		t.Errorf("got %v, %v", f, err)
	}
	if f, err := Find(filepath.Join(dir, "*train*.bin"), true); err != nil || !slices.Equal(f.Train, train) ||
		f.Eval != nil {
		t.Errorf("got %v, %v", f, err)
	}
	for _, path := range []string{t.TempDir(), filepath.Join(dir, "none"), filepath.Join(dir, "none*")} {
		var fault *data.Fault
		if _, err := Find(path, true); !errors.As(err, &fault) {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

// If shards are missing, Find must return an error. They can be missing after an interrupted conversion, or if a file
// was removed.
func TestFindRefusesAPartOfTheShards(t *testing.T) {
	const manifest = `{"version":1,"train":[{"file":"train-000000.bin"},{"file":"train-000001.bin"}],"val":[{"file":"val-000000.bin"}]}`
	all := map[string]string{"train-000000.bin": "", "train-000001.bin": "", "val-000000.bin": "",
		ManifestName: manifest, JournalName: "{}"}
	for _, c := range []struct {
		without    []string
		incomplete bool
		say        string
	}{
		{nil, false, ""}, // a power failure at the end of a conversion may leave the journal
		{[]string{JournalName}, false, ""},
		{[]string{JournalName, ManifestName}, false, ""}, // as written by another program
		{[]string{ManifestName}, true, "interrupted"},
		{[]string{ManifestName, "train-000000.bin", "train-000001.bin", "val-000000.bin"}, true, "interrupted"},
		{[]string{JournalName, "train-000001.bin"}, true, `"train-000001.bin"`},
		{[]string{JournalName, "val-000000.bin"}, true, `"val-000000.bin"`},
	} {
		dir := t.TempDir()
		for name, text := range all {
			if !slices.Contains(c.without, name) {
				must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
			}
		}
		_, err := Find(dir, true)
		var fault *data.Fault
		if errors.Is(err, ErrIncomplete) != c.incomplete || errors.As(err, &fault) != c.incomplete || c.incomplete &&
			!strings.Contains(err.Error(), c.say) {
			t.Errorf("without %v: got error %v", c.without, err)
		}
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, ManifestName), []byte("[1"), 0o644))
	var fault *data.Fault
	if _, err := Find(dir, true); !errors.As(err, &fault) {
		t.Errorf("damaged list: got %v", err)
	}
}

// FuzzParseHeader checks that a header is refused, or describes the file exactly.
func FuzzParseHeader(f *testing.F) {
	good, err := os.ReadFile(writeShard(f, testHeader(), 1, 2, 9))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, int64(len(good)), false)
	f.Add(llmc(20240520, 1, 1, []byte{1, 0}), int64(1026), true)
	f.Add(llmc(20240801, 7, 1, []byte{1, 0, 0, 0}), int64(1028), true)
	f.Add([]byte{1, 0}, int64(2), true)
	f.Fuzz(func(t *testing.T, head []byte, size int64, headerless bool) {
		if size < 0 || int64(len(head)) > size {
			return
		}
		if len(head) >= HeaderBytes { // corrects the checksum, without which nearly all inputs would be refused early
			binary.LittleEndian.PutUint32(head[252:], crc32.Checksum(head[:252], castagnoli))
		}
		width := 0
		if headerless {
			width = 2
		}
		h, err := parseHeader(head, size, width)
		if err != nil {
			return
		}
		if h.Count < 1 || h.TokenBytes != 2 && h.TokenBytes != 4 || h.start()+h.Count*int64(h.TokenBytes) != size {
			t.Fatalf("%+v of %d bytes", h, size)
		}
		if h.EndOfText != NoToken && (h.EndOfText < 0 || int(h.EndOfText) >= h.Vocabulary) {
			t.Fatalf("end of text %d, vocabulary %d", h.EndOfText, h.Vocabulary)
		}
		if h.Format == FormatOwn && !bytes.Equal(h.bytes(), head[:HeaderBytes]) {
			t.Fatalf("got %q, want %q", h.bytes(), fmt.Sprintf("%s", head[:HeaderBytes]))
		}
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The checksums of a shard must cover each of its bytes.
func TestEveryChangedByteIsNoticed(t *testing.T) {
	good, err := os.ReadFile(writeShard(t, testHeader(), count(20, 10)...))
	must(t, err)
	for at := range good {
		file := bytes.Clone(good)
		file[at] ^= 1 << (at % 8)
		s, err := (OpenOptions{}).Open(writeFile(t, "train.bin", file))
		if err == nil {
			_, err = s.Verify(t.Context())
			must(t, s.Close())
		}
		var f *data.Fault
		if !errors.As(err, &f) {
			t.Errorf("byte %d: got %v", at, err)
		}
	}
}
