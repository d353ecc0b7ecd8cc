package webdataset

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/archive"
	"github.com/hetero-train/hetero-train/engine/data/filelock"
	"github.com/hetero-train/hetero-train/engine/data/images"
	"github.com/hetero-train/hetero-train/engine/data/openfiles"
	"github.com/hetero-train/hetero-train/engine/data/stored"
)

// Options describes where the shards are, and sets limits.
type Options struct {
	Path    string // all shards, or the training shards: see the package comment
	ValPath string // evaluation shards; "": found by name, or split off by ValFraction
	// If All is set, Train and Eval both contain the same samples: those of the evaluation part if Path has one,
	// otherwise all samples. Package layout defines the parts.
	All         bool
	FollowLinks bool // follow links that leave a folder of shards
	// ValFraction is the fraction of the samples that is held out if there are no evaluation shards; 0 … 0.9.
	ValFraction float64
	ClassNames  []string // names of numeric labels; nil: the names are the numbers
	// NamesFound is the path of the file of ClassNames if the program found it next to the shards. If this file has too
	// few names, it belongs to other data and is ignored. If NamesFound is "", too few names are an error.
	NamesFound string

	CacheDir   string // folder for indexes and expanded gzip shards; "": do not store indexes, and refuse gzip shards
	CacheBytes int64  // limit of the memory for decompressed frames, in bytes

	// SkipDamaged leaves out damaged shards, the rest of truncated shards, and samples without a valid label. Otherwise
	// they are errors.
	SkipDamaged bool

	Decode images.DecodeOptions
	Limits archive.Limits // limits of one shard

	Logger   *slog.Logger                 // nil means slog.Default()
	Progress func(done, totalBytes int64) // called while shards are scanned; may be nil
}

// Open finds the shards and their samples without reading an image. Data errors are *data.Fault.
func Open(ctx context.Context, o Options) (data.Splits, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if !(o.ValFraction >= 0 && o.ValFraction <= 0.9) {
		return data.Splits{}, fmt.Errorf("webdataset: fraction held out is %g, want 0 to 0.9", o.ValFraction)
	}
	found, err := o.find(ctx)
	if err != nil {
		return data.Splits{}, &data.Fault{Op: "find shards", Path: o.Path, Index: -1, Err: err}
	}
	all := append(slices.Clone(found.train), found.eval...)
	seen := map[string]bool{}
	for _, path := range all {
		if path = stored.Clean(path); seen[path] {
			return data.Splits{}, &data.Fault{Op: "find shards", Path: path, Index: -1, Err: errors.New("listed twice")}
		}
		seen[path] = true
	}
	if err := stored.Plan(ctx, all); err != nil {
		return data.Splits{}, data.FileFault("open shards", o.Path, err)
	}
	left := &leftOut{skip: o.SkipDamaged, whole: make([]error, len(all))}
	ids, indices, err := o.indexAll(ctx, all, left)
	if err == nil {
		err = left.check(all, indices)
	}
	if err != nil {
		return data.Splits{}, err
	}
	kept, nTrain := 0, 0
	for k := range all {
		if indices[k] == nil {
			continue
		}
		ids[kept], indices[kept] = ids[k], indices[k]
		if kept++; k < len(found.train) {
			nTrain++
		}
	}
	if nTrain == 0 || len(found.eval) > 0 && kept == nTrain {
		return data.Splits{}, &data.Fault{Op: "open shards", Path: o.Path, Index: -1, Damaged: true,
			Err: fmt.Errorf("all shards of a part are damaged: %w", left.first)}
	}
	s, err := o.splits(ids[:kept], indices[:kept], nTrain, found)
	s.LeftOut, s.Files = left.list, len(all)
	return s, err
}

// indexAll indexes several shards at a time. It uses stored indexes if possible. A shard that is left out has no index.
func (o Options) indexAll(ctx context.Context, paths []string, left *leftOut) ([]identity, []*index, error) {
	named := paths
	paths, err := o.expandAll(ctx, paths, left)
	if err != nil {
		return nil, nil, err
	}
	ids, indices := make([]identity, len(paths)), make([]*index, len(paths))
	dir := filepath.Join(o.CacheDir, "shards")
	total, missing := int64(0), 0
	for k, path := range paths {
		if left.whole[k] != nil {
			continue
		}
		err := open(path, func(f stored.File) (err error) {
			ids[k], err = identify(path, f)
			return err
		})
		if err != nil {
			return nil, nil, &data.Fault{Op: "open shard", Path: path, Index: -1, Err: err}
		}
		if o.CacheDir != "" {
			indices[k] = ids[k].load(dir)
		}
		if indices[k] == nil {
			missing++
			total += ids[k].size
		}
	}
	if missing == 0 {
		return ids, indices, nil
	}
	if o.CacheDir != "" {
		release, err := o.lock(ctx, dir)
		if err != nil {
			return nil, nil, err
		}
		defer release()
		o.Logger.Info("indexing shards, once", "shards", missing, "megabytes", total>>20)
	}
	p := &progress{report: o.Progress, total: total}
	err = eachShard(ctx, "index shard", named, func(ctx context.Context, k int) (err error) {
		if indices[k] == nil && left.whole[k] == nil {
			indices[k], err = o.index(ctx, ids[k], dir, p)
		}
		return left.note(k, err)
	})
	if err != nil {
		return nil, nil, err
	}
	return ids, indices, nil
}

// eachShard calls do with the index of each shard, for several shards at a time. It returns the *data.Fault of the
// first faulty shard, or the error of ctx.
func eachShard(ctx context.Context, op string, paths []string, do func(ctx context.Context, k int) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, len(paths))
	each, cancel := context.WithCancel(ctx)
	defer cancel()
	for range min(runtime.GOMAXPROCS(0), 8, len(paths)) {
		wg.Go(func() {
			for k := int(next.Add(1)) - 1; k < len(paths) && each.Err() == nil; k = int(next.Add(1)) - 1 {
				if errs[k] = do(each, k); errs[k] != nil {
					cancel() // otherwise, reading the remaining shards might take hours
				}
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	for k, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) { // not cancelled because of the error of another shard
			fault := &data.Fault{Op: op, Path: paths[k], Index: -1, Err: err, Damaged: isDamage(err)}
			if cache := (*archive.CacheError)(nil); errors.As(err, &cache) {
				fault.Advice = archive.CacheAdvice
			}
			return fault
		}
	}
	return nil
}

// expandAll replaces gzip shards in paths by plain tars in the cache folder.
func (o Options) expandAll(ctx context.Context, paths []string, left *leftOut) ([]string, error) {
	total := int64(0)
	streams := map[int]bool{}
	for k, path := range paths {
		err := open(path, func(f stored.File) error {
			c, err := archive.Detect(f)
			if err != nil || c != archive.Gzip {
				return err
			}
			info, err := f.Stat()
			if err == nil {
				total += info.Size()
				streams[k] = true
			}
			return err
		})
		if err != nil {
			return nil, &data.Fault{Op: "open shard", Path: path, Index: -1, Err: err}
		}
	}
	if len(streams) == 0 {
		return paths, nil
	}
	if o.CacheDir == "" {
		return nil, fmt.Errorf("webdataset: %d gzip shards need a cache folder, but none is set", len(streams))
	}
	paths = slices.Clone(paths)
	p := &progress{report: o.Progress, total: total}
	return paths, eachShard(ctx, "expand shard", slices.Clone(paths), func(ctx context.Context, k int) (err error) {
		if streams[k] {
			var plain string
			if plain, err = archive.Plain(ctx, paths[k], filepath.Join(o.CacheDir, "expanded"), o.Limits,
				p.of()); err == nil {
				paths[k] = plain
			}
		}
		return left.note(k, err)
	})
}

// lock ensures that only one process at a time indexes the shards. If the cache folder cannot be written, lock only
// logs a warning.
func (o Options) lock(ctx context.Context, dir string) (release func(), err error) {
	none := func() {}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		o.Logger.Warn("the indexes of the shards cannot be cached, so each start of a run reads all shards again",
			"reason", err)
		return none, nil
	}
	l, err := filelock.Acquire(ctx, filepath.Join(dir, ".lock"))
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		o.Logger.Warn("the indexes of the shards cannot be cached, so each start of a run reads all shards again",
			"reason", err)
		return none, nil
	}
	return func() { l.Release() }, nil
}

func open(path string, use func(f stored.File) error) error {
	f, _, err := stored.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() // read only
	return use(f)
}

// index scans one shard.
func (o Options) index(ctx context.Context, id identity, dir string, p *progress) (x *index, err error) {
	if o.CacheDir != "" {
		if x := id.load(dir); x != nil { // another process has stored the index in the meantime
			return x, nil
		}
	}
	err = open(id.path, func(f stored.File) error {
		g := newGrouper()
		if id.size == 0 {
			return errors.New("the file is empty (0 bytes)")
		}
		l, err := archive.Scan(ctx, f, id.size, o.Limits, p.of(), g.add)
		var cut *archive.CutError
		if err != nil && (!errors.As(err, &cut) || !data.IsDamage(err)) {
			return err
		}
		x, err = g.index(l, cut)
		return err
	})
	if err != nil {
		return nil, err
	}
	if o.CacheDir != "" {
		if err := id.save(dir, x); err != nil {
			o.Logger.Warn("the index of a shard cannot be cached", "shard", id.path, "reason", err)
		}
	}
	return x, nil
}

// progress adds up the bytes that were read from all shards.
type progress struct {
	report func(done, total int64)
	total  int64
	mu     sync.Mutex
	done   int64
}

// of returns the progress function for one shard.
func (p *progress) of() func(done, total int64) {
	if p.report == nil {
		return nil
	}
	last := int64(0)
	return func(done, _ int64) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.done += done - last
		last = done
		p.report(min(p.done, p.total), p.total)
	}
}

// splits returns the two parts of the data set. The first nTrain shards are for training.
func (o Options) splits(ids []identity, indices []*index, nTrain int, found shards) (data.Splits, error) {
	fault := func(err error) (data.Splits, error) {
		return data.Splits{}, &data.Fault{Op: "open shards", Path: o.Path, Index: -1, Err: err}
	}
	names, labels, err := classes(indices, o.ClassNames)
	if errors.Is(err, errFewNames) && o.NamesFound != "" {
		o.Logger.Warn("webdataset: the list of class names is ignored", "list", o.NamesFound, "reason", err)
		names, labels, err = classes(indices, nil)
	}
	if err != nil {
		return fault(err)
	}
	files := make([]openfiles.File, len(ids))
	for k, id := range ids {
		files[k] = openfiles.File{Path: id.path, Size: id.size, Time: id.time}
	}
	src := &source{Pool: openfiles.New(files), shards: ids, random: archive.NewRandom(o.CacheBytes), decode: o.Decode}
	if err := o.checkChunks(ids, indices); err != nil {
		return data.Splits{}, err
	}
	train, eval := &dataset{src: src, classes: names}, &dataset{src: src, classes: names}
	ignored := 0
	for k, x := range indices {
		src.layouts = append(src.layouts, &x.Layout)
		ignored += x.Ignored
		if x.Layout.Unmarked && x.Cut == "" {
			o.Logger.Warn("webdataset: the shard has no end mark, so it may have been cut between two files; count its samples, or pack it again",
				"shard", ids[k].path, "samples", len(x.Keys))
		}
		for i := range x.Keys {
			part := train
			if k >= nTrain || nTrain == len(indices) && !o.All && held(x.Keys[i], o.ValFraction) {
				part = eval
			}
			part.add(k, x, i, labels[k][x.Labels[i]])
		}
	}
	train.fetchAhead()
	eval.fetchAhead()
	if ignored > 0 {
		o.Logger.Warn("webdataset: samples without an image were skipped", "samples", ignored)
	}
	if train.Len() == 0 {
		return fault(errors.New("no samples to train on"))
	}
	if int64(train.Len()) > math.MaxInt32 {
		return fault(fmt.Errorf("%d samples, want at most %d", train.Len(), math.MaxInt32))
	}
	images.SayDecoder(o.Logger)
	same := o.All && nTrain == len(indices)
	if same {
		eval = train
	}
	s := data.Splits{Train: train, OwnEval: o.All || nTrain < len(indices), EvalFrom: found.evalFrom, Same: same,
		Unused: found.unused, Normalization: data.NormalizeImageNet, Closer: src, Fingerprint: train.fingerprint() +
			eval.fingerprint()}
	if eval.Len() > 0 {
		s.Eval = eval
	}
	return s, nil
}

// checkChunks returns an error if random access to a shard needs more than the memory limit. It warns about slow
// shards.
func (o Options) checkChunks(ids []identity, indices []*index) error {
	const slow = 16 << 20 // bytes; decompressing more than this for each sample is noticeably slow
	large, total := 0, int64(0)
	for k, x := range indices {
		l := x.Layout.Largest()
		if l > o.CacheBytes {
			return &data.Fault{Op: "open shard", Path: ids[k].path, Index: -1,
				Err: fmt.Errorf("the %s stream has frames of %d MiB, want at most %d MiB (data.shard_cache_mb)",
					x.Layout.Compression, l>>20, o.CacheBytes>>20),
				Advice: "convert the shard with hetero-train data repack"}
		}
		if l > slow {
			large++
			total += x.Layout.Size
		}
	}
	if large > 0 && total > o.CacheBytes {
		o.Logger.Warn("the shards have a single zstd frame each and do not all fit into data.shard_cache_mb, so reading a sample may decompress a whole shard; convert the shards with hetero-train data repack, or raise data.shard_cache_mb",
			"shards", large, "megabytes", total>>20, "shard_cache_mb", o.CacheBytes>>20)
	}
	return nil
}

// held reports whether a sample is held out for evaluation. The choice depends on a hash of the sample's key. It does
// not depend on the order or the number of shards.
func held(key string, fraction float64) bool {
	if fraction == 0 {
		return false
	}
	sum := sha256.Sum256([]byte(key))
	return float64(binary.LittleEndian.Uint64(sum[:])>>11)/(1<<53) < fraction
}

// fingerprint returns a hash of the names, labels and sizes of all samples in order. It must be equal on all ranks.
func (d *dataset) fingerprint() string {
	h := sha256.New()
	h.Write(d.names)
	b := make([]byte, 0, 16)
	for _, e := range d.samples {
		b = binary.LittleEndian.AppendUint64(b[:0], uint64(e.nameEnd))
		b = binary.LittleEndian.AppendUint32(b, uint32(e.size))
		b = binary.LittleEndian.AppendUint32(b, uint32(e.label))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Labelled reports whether a tar is a shard that contains labels with its images. It reads only the first members.
func Labelled(path string) (labelled bool, err error) {
	const members = 200
	enough := errors.New("enough")
	n := 0
	err = open(path, func(f stored.File) error {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		err = archive.Stream(context.Background(), f, info.Size(), archive.Limits{MemberBytes: 1 << 40},
			func(m archive.Member, _ io.Reader) error {
				if _, end := split(m.Name); !m.Folder && !hidden(m.Name) {
					labelled = labelled || slices.Contains(labelEnds, end) && !strings.Contains(m.Name, "synset")
					n++
				}
				if labelled || n == members {
					return enough
				}
				return nil
			})
		return err
	})
	if errors.Is(err, enough) {
		err = nil
	}
	return labelled, err
}
