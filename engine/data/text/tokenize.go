package text

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/filelock"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
	"github.com/hetero-train/hetero-train/engine/data/tokens"
	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// Lines determines which files are JSON lines.
type Lines int

// The rules for JSON lines.
const (
	LinesBySuffix Lines = iota // files named .jsonl or .ndjson, including .jsonl.gz and .jsonl.zst
	LinesAlways
	LinesNever
)

// Options configures a conversion. Workers and Progress do not affect the result.
type Options struct {
	Inputs    []string // paths of files and folders
	Folder    string   // folder of the result; created if missing
	Tokenizer tokenizer.Tokenizer
	// VocabularyFile is copied to Folder. It is "" if the tokenizer has no vocabulary file.
	VocabularyFile string

	FollowLinks bool // follow links that leave a folder
	IgnoreNames bool // ignore the parts in names: all inputs are for training, except for EvalFraction

	Lines Lines
	// field of JSON lines, or column of tables, that contains the text; "" means "text"; an error without such an input
	Field string
	// line that ends a document of plain text; nil: no separator; empty but not nil: an empty line; an error if no
	// input is plain text
	Separator []byte

	// SkipFaulty leaves out JSON lines that have no text in Field, and counts them. Otherwise such a line is an error.
	SkipFaulty bool

	ShardTokens int64 // number of tokens of each shard except the last one; 0 means 100,000,000
	// EvalFraction is the fraction of the input for evaluation, at least 0 and below 1. In JSON lines and in text with
	// separators, documents are chosen at random. In other plain text, the end of each file is used.
	EvalFraction float64

	Workers  int                     // number of goroutines that encode; 0 means one per processor
	Progress func(done, total int64) // called with bytes of the input files; may be nil

	// Tests use smaller values.
	chunk   int   // size of a chunk in bytes; 0 means chunkBytes
	journal int64 // bytes of text between entries of the journal; 0 means journalBytes
}

// The errors of the options and of the output. Errors of the input are *data.Fault.
var (
	ErrSettings = errors.New("the folder contains the result of a conversion with other settings")
	ErrUnused   = errors.New("an option has no effect on the inputs")
	ErrWrite    = errors.New("write token shards")
)

// MostSeparatorBytes is the largest permitted size of Options.Separator in bytes.
const MostSeparatorBytes = 1024

const (
	manifestName   = tokens.ManifestName
	journalName    = tokens.JournalName
	lockName       = ".tokenize.lock"
	vocabularyName = "vocab.txt"
	formatVersion  = 1
	mostJSONBytes  = tokens.MostManifestBytes
	journalBytes   = 64 << 20 // text between two entries of the journal; a crash loses a few seconds of work
)

// Settings contains the options that affect the result.
type Settings struct {
	Tokenizer    string   `json:"tokenizer"`
	Vocabulary   int      `json:"vocabulary_size"`
	VocabularyID string   `json:"vocabulary_sha256,omitempty"`
	EndOfText    int32    `json:"end_of_text"`
	Field        string   `json:"field"`
	Separator    *string  `json:"separator"`
	ShardTokens  int64    `json:"shard_tokens"`
	EvalFraction float64  `json:"val_fraction"`
	SkipFaulty   bool     `json:"skip_bad_lines,omitempty"`
	Sources      []Source `json:"sources"`
}

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

// Result describes what Tokenize did.
type Result struct {
	Manifest
	Already bool    // the folder was already complete
	Resumed bool    // the call continued the work of an earlier call
	Fault   error   // error of the first line that this call left out, or nil
	Sources Sources // inputs; may be incomplete if an earlier call completed the conversion
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

// Tokenize converts text to token shards. If an earlier call with the same settings was interrupted, it continues this
// work.
func Tokenize(ctx context.Context, o Options) (Result, error) {
	if err := o.check(); err != nil {
		return Result{}, err
	}
	sources, err := o.FindSources(ctx)
	if err != nil {
		return Result{}, err
	}
	s, err := o.settings(sources)
	if err != nil {
		return Result{}, err
	}
	if err := os.MkdirAll(o.Folder, 0o755); err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrWrite, err)
	}
	lock, err := filelock.Acquire(ctx, filepath.Join(o.Folder, lockName))
	if err != nil {
		return Result{}, err
	}
	defer lock.Release() // the lock also ends with the process
	var done Manifest
	switch found, err := load(filepath.Join(o.Folder, manifestName), &done); {
	case err != nil:
		return Result{}, err
	case found:
		if err := os.Remove(filepath.Join(o.Folder, journalName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Result{}, fmt.Errorf("%w: %w", ErrWrite, err)
		}
		return Result{Manifest: done, Already: true, Sources: sources}, done.Settings.differs(s)
	}
	j := journal{Version: formatVersion, Settings: s}
	resumed, err := load(filepath.Join(o.Folder, journalName), &j)
	if err == nil && resumed {
		if err = j.Settings.differs(s); err == nil {
			err = j.check(filepath.Join(o.Folder, journalName))
		}
	} else if err == nil {
		err = o.start(&j)
	}
	if err != nil {
		return Result{}, err
	}
	r := &run{o: &o, j: &j, sources: s.Sources}
	m, err := r.run(ctx)
	return Result{Manifest: m, Resumed: resumed, Fault: r.fault, Sources: sources}, err
}

// check checks the options and sets defaults.
func (o *Options) check() error {
	if o.Tokenizer == nil {
		return errors.New("tokenize: no tokenizer")
	}
	if o.ShardTokens == 0 {
		o.ShardTokens = 100_000_000
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.chunk == 0 {
		o.chunk = chunkBytes
	}
	if o.journal == 0 {
		o.journal = journalBytes
	}
	switch {
	case len(o.Inputs) == 0:
		return errors.New("tokenize: no input files")
	case o.ShardTokens < 1:
		return fmt.Errorf("tokenize: %d tokens per shard, want at least 1", o.ShardTokens)
	case !(o.EvalFraction >= 0 && o.EvalFraction < 1):
		return fmt.Errorf("tokenize: the fraction for evaluation is %v, want 0 to below 1", o.EvalFraction)
	case len(o.Separator) > MostSeparatorBytes:
		return fmt.Errorf("tokenize: got a separator of %d bytes, want at most %d", len(o.Separator),
			MostSeparatorBytes)
	case strings.ContainsAny(string(o.Separator), "\r\n"):
		return fmt.Errorf("tokenize: separator: got %q, want no line breaks", o.Separator)
	case o.Workers < 1 || o.Workers > 1024:
		return fmt.Errorf("tokenize: %d workers, want 1 to 1024", o.Workers)
	}
	return nil
}

// settings returns the options that affect the result.
func (o *Options) settings(found Sources) (Settings, error) {
	sources := found.List
	fieldIsSet := o.Field != ""
	if !fieldIsSet {
		o.Field = "text"
	}
	hasLines := slices.ContainsFunc(sources, func(s Source) bool { return s.Lines })
	hasPlain := slices.ContainsFunc(sources, func(s Source) bool { return !s.Lines })
	switch {
	case fieldIsSet && !hasLines:
		return Settings{}, fmt.Errorf("%w: field: got %q, but no input has JSON lines or a table; the first input is %s",
			ErrUnused, o.Field, sources[0].Path)
	case o.EvalFraction > 0 && found.EvalFrom != "":
		return Settings{},
			fmt.Errorf("%w: val-fraction: got %v, but the names of the inputs state the evaluation part (%s)",
				ErrUnused, o.EvalFraction, found.EvalFrom)
	case o.SkipFaulty && !hasLines:
		return Settings{}, fmt.Errorf("%w: bad-lines: no input has JSON lines or a table; the first input is %s",
			ErrUnused, sources[0].Path)
	case o.Separator != nil && !hasPlain:
		return Settings{}, fmt.Errorf("%w: separator: got %q, but all inputs have JSON lines or tables; the first input is %s",
			ErrUnused, o.Separator, sources[0].Path)
	}
	s := Settings{Tokenizer: o.Tokenizer.Name(), Vocabulary: o.Tokenizer.Vocabulary(),
		EndOfText: o.Tokenizer.EndOfText(),
		Field:     o.Field, SkipFaulty: o.SkipFaulty, ShardTokens: o.ShardTokens, EvalFraction: o.EvalFraction,
		Sources: sources}
	if sum := o.Tokenizer.VocabularySum(); sum != [32]byte{} {
		s.VocabularyID = fmt.Sprintf("%x", sum)
	}
	if o.Separator != nil {
		text := string(o.Separator)
		s.Separator = &text
	}
	return s, nil
}

// differs returns an error that describes the first difference between s and want.
func (s Settings) differs(want Settings) error {
	a, b := reflect.ValueOf(s), reflect.ValueOf(want)
	for i := range a.NumField() {
		x, y := a.Field(i).Interface(), b.Field(i).Interface()
		if !reflect.DeepEqual(x, y) {
			got, _ := json.Marshal(x) // both values were or will be written as JSON
			now, _ := json.Marshal(y)
			return fmt.Errorf("%w: %s was %.200s, now %.200s", ErrSettings, a.Type().Field(i).Tag.Get("json"), got, now)
		}
	}
	return nil
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

// run is the state of one call of Tokenize.
type run struct {
	o       *Options
	j       *journal
	sources []Source
	parts   [2]*part
	stored  atomic.Int64 // number of bytes read from the sources
	fault   error        // the first faulty line that was left out
	since   int64        // bytes of text since the last entry of the journal
}

func (r *run) run(ctx context.Context) (Manifest, error) {
	for i, name := range []string{"train", "val"} {
		p := &part{o: r.o, name: name, splits: &r.j.Parts[i]}
		r.parts[i] = p
		defer p.close()
		if err := p.resume(); err != nil {
			return Manifest{}, fmt.Errorf("%w: %w", ErrWrite, err)
		}
	}
	if err := r.encode(ctx); err != nil {
		return Manifest{}, err
	}
	return r.finish()
}

// encode reads, encodes and writes. One goroutine splits the input into chunks, and workers encode the chunks. The
// calling goroutine writes them in order.
func (r *run) encode(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	free := make(chan *chunk, 2*r.o.Workers+1)
	for range cap(free) {
		free <- &chunk{done: make(chan struct{}, 1)}
	}
	work, order := make(chan *chunk, cap(free)), make(chan *chunk, cap(free))
	var total int64
	for _, s := range r.sources {
		total += s.Bytes
	}
	for _, s := range r.sources[:min(r.j.At.Source, len(r.sources))] {
		r.stored.Add(s.Bytes)
	}
	k := &cutter{ctx: ctx, o: r.o, sources: r.sources, stored: &r.stored, at: r.j.At}
	var cutErr error
	all.Go(func() {
		defer close(order)
		defer close(work)
		defer k.close()
		cutErr = r.cut(ctx, k, free, work, order)
	})
	for range r.o.Workers {
		all.Go(func() {
			e := r.o.Tokenizer.NewEncoder()
			for c := range work {
				c.encode(e, r.o)
				c.done <- struct{}{}
			}
		})
	}
	for c := range order {
		<-c.done
		if err := r.write(c); err != nil {
			return err
		}
		if r.o.Progress != nil {
			r.o.Progress(r.stored.Load(), total)
		}
		free <- c
	}
	if errors.Is(cutErr, io.EOF) {
		return nil
	}
	return cutErr
}

// cut sends chunks to the workers until the input ends.
func (r *run) cut(ctx context.Context, k *cutter, free <-chan *chunk, work, order chan<- *chunk) error {
	for {
		select {
		case c := <-free:
			if err := k.next(c); err != nil {
				return err
			}
			work <- c
			order <- c
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// write appends the tokens of a chunk to the shards. After every Options.journal bytes of text, it updates the journal.
func (r *run) write(c *chunk) error {
	if c.err != nil {
		return c.err
	}
	for i, tokens := range [][]int32{c.train, c.eval} {
		if err := r.parts[i].append(tokens); err != nil {
			return fmt.Errorf("%w: %w", ErrWrite, err)
		}
	}
	r.j.At = c.after
	r.j.Empty += c.empty
	if r.j.Faulty += c.faulty; r.fault == nil {
		r.fault = c.firstFault
	}
	r.j.Unknown += c.unknown
	if r.since += int64(len(c.text)); r.since < r.o.journal {
		return nil
	}
	r.since = 0
	return r.note()
}

// note flushes the shards to disk, and then writes the journal.
func (r *run) note() error {
	for _, p := range r.parts {
		if err := p.sync(); err != nil {
			return fmt.Errorf("%w: %w", ErrWrite, err)
		}
	}
	return r.o.save(journalName, r.j)
}

// finish completes the last shards and writes the manifest.
func (r *run) finish() (Manifest, error) {
	m := Manifest{Version: formatVersion, Settings: r.j.Settings, Documents: r.j.At.Document,
		Empty: r.j.At.Empty + r.j.Empty, Unknown: r.j.Unknown}
	m.Faulty = r.j.Faulty
	m.Documents -= r.j.Empty + r.j.Faulty // JSON lines without text also have document numbers
	if r.j.Parts[0].Tokens == 0 && len(r.j.Parts[0].Done) == 0 {
		err := errNoText
		if r.parts[1].w != nil {
			err = errors.New(
				"no documents are left for training, because evaluation gets all of them: lower --val-fraction")
		}
		return m, data.FileFault("read text", r.sources[0].Path, err)
	}
	for _, p := range r.parts {
		if err := p.finish(); err != nil {
			return m, fmt.Errorf("%w: %w", ErrWrite, err)
		}
	}
	m.Train, m.Eval = r.j.Parts[0].Done, r.j.Parts[1].Done
	if r.o.VocabularyFile != "" {
		file, err := os.ReadFile(r.o.VocabularyFile) // the tokenizer has already read this file
		if err != nil {
			return m, data.FileFault("read vocabulary", r.o.VocabularyFile, err)
		}
		if err := replace(filepath.Join(r.o.Folder, vocabularyName), file); err != nil {
			return m, fmt.Errorf("%w: %w", ErrWrite, err)
		}
	}
	if err := r.o.save(manifestName, &m); err != nil {
		return m, err
	}
	if err := os.Remove(filepath.Join(r.o.Folder, journalName)); err != nil {
		return m, fmt.Errorf("%w: %w", ErrWrite, err)
	}
	return m, nil
}

// part writes the shards of one part, training or evaluation.
type part struct {
	*splits
	o    *Options
	name string
	w    *tokens.Writer // nil before the first token of a shard
}

func (p *part) file() string { return fmt.Sprintf("%s-%06d.bin", p.name, len(p.Done)) }

func (p *part) header() tokens.Header {
	t := p.o.Tokenizer
	return tokens.Header{Tokenizer: t.Name(), Vocabulary: t.Vocabulary(), EndOfText: t.EndOfText(),
		VocabularySum: t.VocabularySum()}
}

// resume opens the unfinished shard of an earlier call.
func (p *part) resume() (err error) {
	if p.Tokens > 0 {
		p.w, err = tokens.Resume(filepath.Join(p.o.Folder, p.file()), p.header(), p.Tokens, p.Documents)
	}
	return err
}

func (p *part) append(list []int32) (err error) {
	for len(list) > 0 {
		if p.w == nil {
			if p.w, err = tokens.Create(filepath.Join(p.o.Folder, p.file()), p.header()); err != nil {
				return err
			}
		}
		n := min(int64(len(list)), p.o.ShardTokens-p.w.Count())
		if err := p.w.Append(list[:n]); err != nil {
			return err
		}
		list = list[n:]
		p.Tokens, p.Documents = p.w.Count(), p.w.Documents()
		if p.Tokens == p.o.ShardTokens {
			if err := p.finish(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *part) sync() error {
	if p.w == nil {
		return nil
	}
	return p.w.Sync()
}

// finish completes the current shard, if there is one.
func (p *part) finish() error {
	if p.w == nil {
		return nil
	}
	name := p.file()
	h, err := p.w.Finish()
	p.w = nil
	if err != nil {
		return err
	}
	p.Done = append(p.Done,
		Shard{File: name, Tokens: h.Count, Documents: h.Documents, SHA256: fmt.Sprintf("%x", h.Sum)})
	p.Tokens, p.Documents = 0, 0
	return nil
}

// close closes an unfinished shard. A later call continues the shard.
func (p *part) close() {
	if p.w != nil {
		p.w.Close() // errors have no effect: the journal counts only durable tokens
	}
}

func list(names []string) string {
	slices.Sort(names)
	if len(names) > 20 {
		names = append(names[:20:20], "…")
	}
	return fmt.Sprintf("%q", names)
}
