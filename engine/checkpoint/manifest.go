package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The files of a checkpoint.
const (
	modelFile     = "model.safetensors"
	optimizerFile = "optimizer.safetensors"
	stateFile     = "state.json"
	manifestFile  = "MANIFEST"

	// FormatVersion is the version of the checkpoint format that this program writes and reads.
	FormatVersion = 1

	manifestTitle    = "hetero-train checkpoint "
	maxManifestBytes = 64 << 20
	maxStateBytes    = 16 << 20
)

var checkpointFiles = []string{modelFile, optimizerFile, stateFile}

// manifest lists the files of a checkpoint. The package comment describes the format of the file MANIFEST.
type manifest struct {
	files map[string]fileSum
}

type fileSum struct {
	bytes   int64
	sha256  string            // lower-case hexadecimal
	tensors map[string]uint32 // CRC-32C by tensor name
}

func (m manifest) encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s%d\n", manifestTitle, FormatVersion)
	for _, name := range checkpointFiles {
		fmt.Fprintf(&b, "file %d %s %s\n", m.files[name].bytes, m.files[name].sha256, name)
	}
	for _, name := range checkpointFiles {
		var lines []string
		for tensor, crc := range m.files[name].tensors {
			lines = append(lines, fmt.Sprintf("tensor %08x %s %q\n", crc, name, tensor))
		}
		slices.Sort(lines)
		for _, line := range lines {
			b.WriteString(line)
		}
	}
	fmt.Fprintf(&b, "manifest %s\n", hexSum(b.Bytes()))
	return b.Bytes()
}

func hexSum(p []byte) string {
	sum := sha256.Sum256(p)
	return hex.EncodeToString(sum[:])
}

// decodeManifest parses the text of the manifest at path. Errors: *CorruptError, *FormatError.
func decodeManifest(path string, text []byte) (manifest, error) {
	m := manifest{files: map[string]fileSum{}}
	last := bytes.LastIndexByte(bytes.TrimSuffix(text, []byte("\n")), '\n') + 1
	if got, want := string(text[last:]), "manifest "+hexSum(text[:last])+"\n"; got != want {
		return m, corrupt(path, "its own SHA-256 does not match")
	}
	lines := strings.Split(strings.TrimSuffix(string(text[:last]), "\n"), "\n")
	version, err := strconv.Atoi(strings.TrimPrefix(lines[0], manifestTitle))
	if err != nil || !strings.HasPrefix(lines[0], manifestTitle) {
		return m, corrupt(path, "line 1: got %q, want %q and a version", lines[0], manifestTitle)
	}
	if version != FormatVersion {
		return m, &FormatError{Path: path, Got: version, Want: FormatVersion}
	}
	for i, line := range lines[1:] {
		if err := m.decodeLine(line); err != nil {
			return m, corrupt(path, "line %d: %v", i+2, err)
		}
	}
	for _, name := range checkpointFiles {
		if _, ok := m.files[name]; !ok {
			return m, corrupt(path, "it does not list %s", name)
		}
	}
	return m, nil
}

func (m manifest) decodeLine(line string) error {
	field := strings.SplitN(line, " ", 4)
	if len(field) != 4 {
		return fmt.Errorf("got %q, want 4 fields", line)
	}
	switch field[0] {
	case "file":
		name := field[3]
		size, err := strconv.ParseInt(field[1], 10, 64)
		if _, twice := m.files[name]; twice || err != nil || size < 0 || !slices.Contains(checkpointFiles, name) {
			return fmt.Errorf("bad file line %q", line)
		}
		m.files[name] = fileSum{bytes: size, sha256: field[2], tensors: map[string]uint32{}}
	case "tensor":
		crc, err := strconv.ParseUint(field[1], 16, 32)
		name, errName := strconv.Unquote(field[3])
		file, listed := m.files[field[2]]
		if _, twice := file.tensors[name]; twice || !listed || err != nil || errName != nil {
			return fmt.Errorf("bad tensor line %q", line)
		}
		file.tensors[name] = uint32(crc)
	default:
		return fmt.Errorf("kind of line: got %q, want \"file\" or \"tensor\"", field[0])
	}
	return nil
}
