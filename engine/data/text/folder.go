package text

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/tokens"
	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/engine/regular"
)

const (
	manifestName   = tokens.ManifestName
	journalName    = tokens.JournalName
	lockName       = ".tokenize.lock"
	vocabularyName = "vocab.txt"
	formatVersion  = 1
	mostJSONBytes  = tokens.MostManifestBytes
	journalBytes   = 64 << 20 // text between two entries of the journal; a crash loses a few seconds of work
)

// Shard describes a shard of the result.
type Shard struct {
	File      string `json:"file"`
	Tokens    int64  `json:"tokens"`
	Documents int64  `json:"documents"`
	SHA256    string `json:"sha256"` // SHA-256 of the tokens
}

// Manifest describes a complete folder.
type Manifest struct {
	Version   int      `json:"version"`
	Settings  Settings `json:"settings"`
	Documents int64    `json:"documents"`
	Empty     int64    `json:"documents_left_out"` // number of documents that contain only white space
	Faulty    int64    `json:"bad_lines_left_out,omitempty"`
	Train     []Shard  `json:"train"`
	Eval      []Shard  `json:"val"`
	// number of tokens that are the unknown token of the vocabulary
	Unknown int64 `json:"unknown_tokens,omitempty"`
}

// Tokens returns the total number of tokens of shards.
func Tokens(shards []Shard) (n int64) {
	for _, s := range shards {
		n += s.Tokens
	}
	return n
}

// journal is the state from which a later call continues.
type journal struct {
	Version  int       `json:"version"`
	Settings Settings  `json:"settings"`
	At       position  `json:"at"`
	Empty    int64     `json:"empty_lines"`
	Faulty   int64     `json:"bad_lines,omitempty"`
	Parts    [2]splits `json:"parts"` // training and evaluation
	Unknown  int64     `json:"unknown_tokens,omitempty"`
}

// splits is the state of the shards of one part.
type splits struct {
	Done      []Shard `json:"done"`
	Tokens    int64   `json:"tokens"` // number of tokens in the unfinished shard
	Documents int64   `json:"documents"`
}

// check returns an error for a journal that Tokenize cannot have written.
func (j *journal) check(path string) error {
	at := j.At
	least := min(int64(at.Source), at.Offset, at.Line, at.Document, at.Empty, j.Empty, j.Faulty)
	for _, p := range j.Parts {
		least = min(least, p.Tokens, p.Documents)
	}
	if least < 0 || at.Source > len(j.Settings.Sources) || at.Source == len(j.Settings.Sources) && at.Offset > 0 {
		return &data.Fault{Op: "read", Path: path, Index: -1,
			Err:    fmt.Errorf("the saved position %+v is not in the text", at),
			Advice: "delete the folder to start again"}
	}
	return nil
}

// start prepares the folder for a new result. The folder must be empty.
func (o *Options) start(j *journal) error {
	entries, err := os.ReadDir(o.Folder)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrWrite, err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".bin") || e.Name() == vocabularyName {
			return fmt.Errorf("%w: found %s, which another program or version wrote", ErrSettings,
				filepath.Join(o.Folder, e.Name()))
		}
	}
	return o.save(journalName, j)
}

// load parses a JSON file into value. It returns false if the file does not exist.
func load(path string, value any) (bool, error) {
	file, err := regular.Read(path, mostJSONBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(file, value)
	}
	if err == nil {
		if v := reflect.ValueOf(value).Elem().FieldByName("Version").Int(); v != formatVersion {
			err = fmt.Errorf("version %d, want %d", v, formatVersion)
		}
	}
	if err != nil {
		return false,
			&data.Fault{Op: "read", Path: path, Index: -1, Err: err, Advice: "delete the folder to start again"}
	}
	return true, nil
}

// save writes a JSON file under a temporary name and renames it, so the file is always complete.
func (o *Options) save(name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		err = replace(filepath.Join(o.Folder, name), append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrWrite, err)
	}
	return nil
}

func replace(path string, contents []byte) error {
	f, err := regular.Create(path + ".part")
	if err != nil {
		return err
	}
	_, err = f.Write(contents)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".part", path); err != nil {
		return err
	}
	return platform.SyncFolder(filepath.Dir(path))
}
