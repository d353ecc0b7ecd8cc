package tokens

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/layout"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// Corpus concatenates shards to one sequence of tokens. All methods except Close are safe for concurrent use.
type Corpus struct {
	Shards []*Shard
	starts []int64 // position of the first token of each shard, then the total number of tokens
}

// OpenCorpus opens shards and concatenates them in the given order. All shards must come from the same tokenizer.
func (o OpenOptions) OpenCorpus(paths []string) (*Corpus, error) {
	if len(paths) == 0 {
		return nil, errors.New("open token shards: no paths")
	}
	c := &Corpus{starts: []int64{0}}
	var first error
	for _, path := range paths {
		s, err := o.Open(path)
		var f *data.Fault
		if o.LeftOut != nil && errors.As(err, &f) && f.Damaged {
			*o.LeftOut = append(*o.LeftOut, data.LeftOut{Path: path, Whole: true, Reason: f.Err})
			first = cmp.Or(first, err)
			continue
		}
		if err == nil {
			c.Shards = append(c.Shards, s)
			c.starts = append(c.starts, c.Len()+s.Count)
			err = sameTokenizer(c.Shards[0], s)
		}
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	if len(c.Shards) == 0 {
		return nil, fmt.Errorf("all token shards of a part are damaged: %w", first)
	}
	return c, nil
}

func sameTokenizer(a, b *Shard) error {
	if a.Tokenizer == b.Tokenizer && a.Vocabulary == b.Vocabulary && a.VocabularySum == b.VocabularySum &&
		a.EndOfText == b.EndOfText {
		return nil
	}
	return fault("open token shard", b.Path, "", fmt.Errorf("got tokenizer %s, want the tokenizer of %q: %s",
		describe(&b.Header), a.Path, describe(&a.Header)))
}

func describe(h *Header) string {
	return fmt.Sprintf("%q with %d tokens, end of text %d, vocabulary file %x", h.Tokenizer, h.Vocabulary, h.EndOfText,
		h.VocabularySum[:4])
}

// Len returns the number of tokens.
func (c *Corpus) Len() int64 { return c.starts[len(c.starts)-1] }

// EndOfText returns the token that ends a document, or NoToken if the headers contain no such token.
func (c *Corpus) EndOfText() int32 { return c.Shards[0].EndOfText }

// Close closes all shards.
func (c *Corpus) Close() error {
	var errs []error
	for _, s := range c.Shards {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// Read copies the tokens from position at to at+len(dst)-1. The range may span several shards. A successful Read does
// not allocate.
func (c *Corpus) Read(at int64, dst []int32) error {
	if at < 0 || at > c.Len()-int64(len(dst)) {
		return fmt.Errorf("read tokens %d to %d of %d", at, at+int64(len(dst)), c.Len())
	}
	i := sort.Search(len(c.Shards), func(i int) bool { return c.starts[i+1] > at })
	for len(dst) > 0 {
		n := min(int64(len(dst)), c.starts[i+1]-at)
		if err := c.Shards[i].Read(at-c.starts[i], dst[:n]); err != nil {
			return err
		}
		at, dst = at+n, dst[n:]
		i++
	}
	return nil
}

// Files of a folder that the command `hetero-train data tokenize` writes.
const (
	ManifestName = "dataset.json"   // lists the shards, and is written last
	JournalName  = ".tokenize.json" // state of a conversion that is not complete

	MostManifestBytes = 256 << 20 // limit for either file, bytes
)

// ErrIncomplete means that shards are missing in a folder.
var ErrIncomplete = errors.New("the folder is incomplete")

// Found lists the shards at a path.
type Found struct {
	Train, Eval []string
	EvalFrom    string // part and names of Eval; "" if Eval is empty
	Unused      string // names of the shards of the test part, if there is a validation part
	Folder      bool   // the path is a folder, so the names determined the parts
}

// Find lists the shards at path, which names a shard, a pattern such as "shards/train-*.bin", or a folder. The names of
// the files determine the parts; see package layout. In a folder, all names must name a part, because other programs
// also write files named *.bin. Find returns ErrIncomplete if the conversion to this folder is not complete, or if a
// shard of the manifest is missing. The parameter followLinks allows links that leave the folder.
func Find(path string, followLinks bool) (Found, error) {
	info, err := os.Stat(path)
	if err != nil && strings.ContainsAny(path, "*?[") {
		return findPattern(path)
	}
	if err != nil {
		return Found{}, fault("find token shards", path, makeShards(path), err)
	}
	if !info.IsDir() {
		return Found{Train: []string{path}}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return Found{}, fault("find token shards", path, "", err)
	}
	if err := complete(path, entries); err != nil {
		return Found{}, err
	}
	files, err := filesIn(path, followLinks)
	if err != nil {
		return Found{}, fault("find token shards", path, "", err)
	}
	f, named, err := divide(files)
	if err != nil {
		return Found{}, fault("find token shards", path, "", err)
	}
	if !named {
		return Found{}, fault("find token shards", path, "write them with hetero-train data tokenize",
			errors.New("no files whose names contain train or val, such as train-000000.bin"))
	}
	if len(f.Train) > 0 {
		if part, _ := layout.PartOf(filepath.Base(f.Train[0])); part == layout.None { // divide has reported the error
			return Found{},
				fault("find token shards", path, "",
					fmt.Errorf("the name %q names no part: want names that contain train, val or test",
						filepath.Base(f.Train[0])))
		}
	}
	f.Folder = true
	return f, nil
}

// makeShards returns the commands that create token files at path.
func makeShards(path string) string {
	return fmt.Sprintf("write them from text files with hetero-train data tokenize TEXT -o %[1]q, for BERT with hetero-train data tokenize TEXT -o %[1]q --tokenizer wordpiece --vocab vocab.txt --separator ''",
		path)
}

// filesIn lists the files of a folder that end in .bin.
func filesIn(dir string, followLinks bool) (files []string, err error) {
	folder, err := layout.OpenFolder(dir, followLinks)
	if err != nil {
		return nil, err
	}
	defer folder.Close() // read only
	entries, err := folder.List(".")
	for _, e := range entries {
		if !e.Mode.IsDir() && strings.HasSuffix(e.Name, ".bin") {
			files = append(files, folder.Path(e.Name))
		}
	}
	return files, err
}

// divide divides files by the parts in their names. The result named reports whether at least one name states a part.
func divide(files []string) (f Found, named bool, err error) {
	names := make([]string, len(files))
	for i, file := range files {
		names[i] = filepath.Base(file)
	}
	d, err := layout.Divide(names)
	if err != nil {
		return f, false, err
	}
	some := func(list []string, index []int) (out []string) {
		for _, i := range index {
			out = append(out, list[i])
		}
		return out
	}
	f = Found{Train: some(files, d.Train), Eval: some(files, d.Eval), Unused: strings.Join(some(names, d.Unused), ", ")}
	if d.Part != layout.None {
		f.EvalFrom = fmt.Sprintf("part %s, %s", d.Part, span(some(names, d.Eval)))
	}
	return f, d.Named, nil
}

// span describes a list of names, for messages.
func span(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return fmt.Sprintf("%s to %s (%d shards)", names[0], names[len(names)-1], len(names))
}

// complete returns an error if the folder lacks some of its shards. Without a manifest, a folder counts as complete,
// because other programs write no manifest.
func complete(folder string, entries []os.DirEntry) error {
	has := func(name string) bool {
		return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == name })
	}
	if has(JournalName) && !has(ManifestName) {
		return fault("find token shards", folder,
			"run the same command hetero-train data tokenize again, which continues",
			fmt.Errorf("%w: a conversion was interrupted", ErrIncomplete))
	}
	if !has(ManifestName) {
		return nil
	}
	path := filepath.Join(folder, ManifestName)
	text, err := regular.Read(path, MostManifestBytes)
	if err != nil {
		return fault("read the list of token shards", path, "", err)
	}
	type shards []struct {
		File string `json:"file"`
	}
	var manifest struct {
		Train shards `json:"train"`
		Eval  shards `json:"val"`
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		return fault("read the list of token shards", path, "", err)
	}
	for _, s := range slices.Concat(manifest.Train, manifest.Eval) {
		if !has(s.File) {
			return fault("find token shards", folder, "copy the missing file, or convert the text to an empty folder",
				fmt.Errorf("%w: %s lists %q, which is missing", ErrIncomplete, ManifestName, s.File))
		}
	}
	return nil
}

func findPattern(pattern string) (Found, error) {
	paths, err := filepath.Glob(pattern)
	if err == nil && len(paths) == 0 {
		err = errors.New("no file has such a name")
	}
	if err != nil {
		return Found{}, fault("find token shards", pattern, "", err)
	}
	slices.Sort(paths)
	if len(paths) == 1 {
		return Found{Train: paths}, nil
	}
	f, _, err := divide(paths)
	if err != nil {
		return Found{}, fault("find token shards", pattern, "", err)
	}
	if len(f.Train) == 0 && f.Unused == "" { // the shards of the pattern belong to one part
		f = Found{Train: f.Eval}
	}
	return f, nil
}
