package tokens

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/data"
)

// onDisk returns the stored bytes of n tokens below vocabulary, size bytes each.
func onDisk(n, vocabulary, size int) (file []byte) {
	random := rand.New(rand.NewPCG(1, 2))
	for range n {
		b := binary.LittleEndian.AppendUint64(nil, uint64(random.IntN(vocabulary)))
		file = append(file, b[:size]...)
	}
	return file
}

// Tokens of 4 or 8 bytes must not be read as uint16. Tokens of uint16 must be read.
func TestTheSizeOfTokensWithoutAHeader(t *testing.T) {
	const wide, widest, narrow = "set data.token_bytes = 4", "tokens of 8 bytes", "set data.token_bytes = 2"
	letters := []byte("3\n1\n4\n") // characters, one per line
	var lines []byte
	for range 100 {
		for _, c := range letters {
			lines = append(lines, c, 0)
		}
	}
	for _, c := range []struct {
		name  string
		file  []byte
		given int
		count int64
		want  string
	}{
		{"uint16", onDisk(5000, 50257, 2), 0, 5000, ""},
		{"uint16, characters", onDisk(5000, 65, 2), 0, 5000, ""},
		{"uint16, four different tokens", onDisk(5000, 4, 2), 0, 5000, ""},
		{"uint16, few", []byte{1, 0, 0, 0, 2, 0}, 0, 3, ""},
		{"uint16, all zero", make([]byte, 4000), 0, 2000, ""},
		{"uint16, zeros at the end", append(onDisk(4000, 300, 2), make([]byte, 400_000)...), 0, 204_000, ""},
		{"uint16, short lines", lines, 0, 600, ""},
		{"int32", onDisk(5000, 50257, 4), 0, 0, wide},
		{"int32, characters", onDisk(5000, 65, 4), 0, 0, wide},
		{"int32, two different tokens", onDisk(500, 2, 4), 0, 0, wide},
		{"int32, a large vocabulary", onDisk(5000, 151_936, 4), 0, 0, wide},
		{"int32, large and long", onDisk(200_000, 128_256, 4), 0, 0, wide},
		{"int64", onDisk(5000, 50257, 8), 0, 0, widest},
		{"int64, a large vocabulary", onDisk(5000, 151_936, 8), 0, 0, widest},
		{"int32, stated", onDisk(5000, 151_936, 4), 4, 5000, ""},
		{"int32, stated as 2 bytes", onDisk(5000, 65, 4), 2, 0, wide},
		{"int32, a large vocabulary, stated as 2 bytes", onDisk(5000, 151_936, 4), 2, 0, wide},
		{"int64, stated as 2 bytes", onDisk(5000, 50257, 8), 2, 0, widest},
		{"int64, stated as 4 bytes", onDisk(5000, 50257, 8), 4, 0, widest},
		{"int64, a large vocabulary, stated as 4 bytes", onDisk(5000, 151_936, 8), 4, 0, widest},
		{"uint16, stated as 4 bytes", onDisk(5000, 50257, 2), 4, 0, narrow},
		{"uint16, characters, stated as 4 bytes", onDisk(5000, 65, 2), 4, 0, narrow},
		{"uint16, four different tokens, stated as 4 bytes", onDisk(5000, 4, 2), 4, 0, narrow},
		{"uint16, stated", onDisk(5000, 50257, 2), 2, 5000, ""},
		{"int32, all zero, stated", make([]byte, 4000), 4, 1000, ""},
		{"int32, characters, stated", onDisk(5000, 65, 4), 4, 5000, ""},
		{"int32, few, stated", onDisk(3, 151_936, 4), 4, 3, ""},
		{"4 bytes stated, a size that does not fit", onDisk(5001, 65, 2), 4, 0, "want a multiple of 4"},
		{"NumPy", append([]byte("\x93NUMPY\x01\x00v\x00{'descr': "), make([]byte, 100)...), 0, 0, "array of NumPy"},
		{"PyTorch", append([]byte("PK\x03\x04"), make([]byte, 100)...), 0, 0, "zip archive"},
	} {
		s, err := OpenOptions{TokenBytes: c.given}.Open(writeFile(t, "train.bin", c.file))
		if c.want != "" {
			var fault *data.Fault
			if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if s.Count != c.count {
			t.Errorf("%s: got %d tokens, want %d", c.name, s.Count, c.count)
		}
		s.Close()
	}
}

// The upper half of a 4-byte token is 16 or more if the token is at least 2^20. In a vocabulary of more than 2^20
// tokens, such halves therefore do not prove tokens of 2 bytes.
func TestAKnownLargeVocabularyIsNoEvidence(t *testing.T) {
	file := writeFile(t, "train.bin", onDisk(5000, 3_000_000, 4))
	s, err := OpenOptions{TokenBytes: 4, Vocabulary: 3_000_000}.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := (OpenOptions{TokenBytes: 4}).Open(file); err == nil ||
		!strings.Contains(err.Error(), "data.token_bytes") {
		t.Errorf("an unknown vocabulary: got %v", err)
	}
}

func TestTokensOfFourBytesAreRead(t *testing.T) {
	file := onDisk(1000, 151_936, 4)
	s, err := OpenOptions{TokenBytes: 4, Vocabulary: 151_936}.Open(writeFile(t, "train.bin", file))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got := make([]int32, 1000)
	must(t, s.Read(0, got))
	for i, token := range got {
		if want := int32(binary.LittleEndian.Uint32(file[4*i:])); token != want {
			t.Fatalf("token %d: got %d, want %d", i, token, want)
		}
	}
}

// A text file with the extension .bin must be refused. A short file is accepted, because it proves nothing.
func TestATextIsNoTokenFile(t *testing.T) {
	for text, want := range map[string]bool{strings.Repeat("hello, World\n", 50): true,
		strings.Repeat("grün ", 200): true, strings.Repeat("hello ", 10): false, strings.Repeat("a\x01", 300): false} {
		err := checkWidth(strings.NewReader(text), int64(len(text)), 2, 0)
		if got := err != nil && strings.Contains(err.Error(), "the file seems to be text"); got != want {
			t.Errorf("%.20q: got %v, want an error: %v", text, err, want)
		}
	}
}
