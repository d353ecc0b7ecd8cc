package text

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/filelock"
)

// Result describes what Tokenize did.
type Result struct {
	Manifest
	Already bool    // the folder was already complete
	Resumed bool    // the call continued the work of an earlier call
	Fault   error   // error of the first line that this call left out, or nil
	Sources Sources // inputs; may be incomplete if an earlier call completed the conversion
}

// Tokenize converts text to token shards. If an earlier call with the same settings was interrupted, Tokenize continues
// its work.
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
