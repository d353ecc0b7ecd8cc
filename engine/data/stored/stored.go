package stored

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/engine/objects"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// File is an open file or object. ReadAt is safe for concurrent use.
type File interface {
	io.Reader
	io.ReaderAt
	io.Closer
	Name() string
	Stat() (os.FileInfo, error)
}

// Options describes the cache of objects.
type Options struct {
	CacheDir   string // "": keep no objects
	CacheBytes int64  // 0: keep no objects
	Logger     *slog.Logger
}

// state contains the cache, the versions of the objects that this process has accessed, and the planned objects.
var state struct {
	sync.Mutex
	within  context.Context // of the run; nil: none
	options Options
	cache   *cache // nil: none
	known   map[objects.Name]objects.Info
	planned map[objects.Name]bool
	bytes   int64 // sizes of the planned objects
	told    int64 // value of bytes at the last message
}

// Configure sets the cache of this process. If the options are the same as before, Configure does nothing. Otherwise it
// also forgets the planned objects.
func Configure(o Options) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	state.Lock()
	defer state.Unlock()
	if old := state.options; state.known != nil && old.CacheDir == o.CacheDir && old.CacheBytes == o.CacheBytes {
		return
	}
	state.options, state.cache = o, nil
	state.known, state.planned, state.bytes = map[objects.Name]objects.Info{}, map[objects.Name]bool{}, 0
	if o.CacheDir != "" && o.CacheBytes > 0 {
		state.cache = newCache(filepath.Join(o.CacheDir, "objects"), o.CacheBytes, o.Logger)
	}
}

// LogTo sets the logger of this process for servers that do not answer.
func LogTo(log *slog.Logger) { objects.LogTo(log) }

// Within sets the context of the run of this process. Its end ends the requests of all files that are opened from now
// on, even if no caller closes them.
func Within(ctx context.Context) {
	state.Lock()
	defer state.Unlock()
	state.within = ctx
}

// whole returns the context of the run.
func whole() context.Context {
	state.Lock()
	defer state.Unlock()
	if state.within == nil {
		return context.Background()
	}
	return state.within
}

// Remote reports whether a path names an object or a folder of objects.
func Remote(path string) bool { return objects.Is(path) }

// FetchesAtOnce is the number of samples that a data.Fetcher requests at a time.
const FetchesAtOnce = 64

// statsAtOnce is the number of objects whose sizes Plan requests at a time.
const statsAtOnce = 32

// Plan notes that the objects of paths belong to a data set. Other paths have no effect. Plan decides whether the cache
// keeps objects.
func Plan(ctx context.Context, paths []string) error {
	var names []objects.Name
	for _, p := range paths {
		if !Remote(p) {
			continue
		}
		name, err := objects.Parse(p)
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return nil
	}
	infos, errs := make([]objects.Info, len(names)), make([]error, len(names))
	var all sync.WaitGroup
	workers := min(statsAtOnce, len(names))
	for w := range workers {
		all.Go(func() {
			for k := w; k < len(names); k += workers {
				if infos[k], errs[k] = statObject(ctx, names[k]); errs[k] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	if err := joined(errs); err != nil {
		return err
	}
	state.Lock()
	defer state.Unlock()
	if state.planned == nil {
		return nil // no cache was configured
	}
	for _, info := range infos {
		if !state.planned[info.Name] {
			state.planned[info.Name] = true
			state.bytes += info.Size
		}
	}
	if state.bytes != state.told && state.cache != nil {
		state.told = state.bytes
		o := state.options
		if state.bytes > o.CacheBytes {
			o.Logger.Info("the objects of the data set exceed data.object_cache_mb, so the cache keeps none of them: each epoch requests all samples",
				"megabytes", state.bytes>>20, "cache_megabytes", o.CacheBytes>>20)
		} else {
			o.Logger.Info("the objects of the data set are kept in the cache when they are first read", "megabytes",
				state.bytes>>20, "cache_megabytes", o.CacheBytes>>20, "folder", state.cache.dir)
		}
	}
	return nil
}

// mostNames limits the objects that a joined error names.
const mostNames = 10

// joined joins errors. Errors of several objects with the same cause become one, with the names of these objects.
func joined(errs []error) error {
	var kinds []error
	others := map[string][]string{}
	for _, err := range errs {
		if err == nil {
			continue
		}
		kind, name := err.Error(), ""
		if failed := (*objects.Error)(nil); errors.As(err, &failed) {
			kind, name = failed.Kind(), failed.Name.String()
		}
		names, known := others[kind]
		switch {
		case !known:
			kinds = append(kinds, err)
		case name != "":
			names = append(names, name)
		}
		others[kind] = names
	}
	for k, err := range kinds {
		failed := (*objects.Error)(nil)
		if !errors.As(err, &failed) || len(others[failed.Kind()]) == 0 {
			continue
		}
		names, more := others[failed.Kind()], ""
		if len(names) > mostNames {
			names, more = names[:mostNames], fmt.Sprintf(" and %d more", len(names)-mostNames)
		}
		kinds[k] = fmt.Errorf("%w (the same for %s%s)", err, strings.Join(names, ", "), more)
	}
	return errors.Join(kinds...)
}

// kept returns the cache, or nil if it keeps no objects.
func kept() *cache {
	state.Lock()
	defer state.Unlock()
	if state.cache == nil || state.bytes > state.options.CacheBytes || state.cache.broken.Load() {
		return nil
	}
	return state.cache
}

// note stores the size and the ETag of an object at its first use. At later uses, it returns the stored values.
func note(info objects.Info) objects.Info {
	state.Lock()
	defer state.Unlock()
	if state.known == nil {
		return info
	}
	if first, ok := state.known[info.Name]; ok {
		return first
	}
	state.known[info.Name] = info
	return info
}

func statObject(ctx context.Context, name objects.Name) (objects.Info, error) {
	state.Lock()
	info, ok := state.known[name]
	state.Unlock()
	if ok {
		return info, nil
	}
	client, err := objects.Shared()
	if err != nil {
		return objects.Info{}, err
	}
	if info, err = client.Stat(ctx, name); err != nil {
		return info, err
	}
	return note(info), nil
}

// objectInfo implements [os.FileInfo] for an object, or for a folder of objects.
type objectInfo struct {
	objects.Info
	dir bool
}

func (i objectInfo) Name() string       { return path.Base("/" + i.Info.Name.Key) }
func (i objectInfo) Size() int64        { return i.Info.Size }
func (i objectInfo) ModTime() time.Time { return i.Modified }
func (i objectInfo) IsDir() bool        { return i.dir }
func (i objectInfo) Sys() any           { return i.Info }

func (i objectInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o555
	}
	return 0o444
}

// Version returns a number that changes with the contents of a file: the modification time in ns, or, for an object, a
// hash of its ETag.
func Version(info os.FileInfo) int64 {
	if object, ok := info.Sys().(objects.Info); ok {
		sum := sha256.Sum256([]byte(object.ETag))
		return int64(binary.LittleEndian.Uint64(sum[:]))
	}
	return info.ModTime().UnixNano()
}

// Stat is [os.Stat] for files and objects. A name is that of a folder if other names start with it and a slash.
func Stat(name string) (os.FileInfo, error) {
	if !Remote(name) {
		return os.Stat(name)
	}
	n, err := objects.Parse(name)
	if err != nil {
		return nil, err
	}
	var missing error
	if n.Key != "" && !strings.HasSuffix(n.Key, "/") {
		info, err := statObject(whole(), n)
		if err == nil {
			return objectInfo{Info: info}, nil
		}
		if missing = err; !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	list, err := List(whole(), name)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		if missing == nil {
			missing = fmt.Errorf("%s: no object has this prefix: %w", name, fs.ErrNotExist)
		}
		return nil, missing
	}
	return objectInfo{objects.Info{Name: n}, true}, nil
}

// List returns the objects below a folder, sorted by name.
func List(ctx context.Context, folder string) ([]objects.Info, error) {
	n, err := objects.Parse(folder)
	if err != nil {
		return nil, err
	}
	if n.Key != "" && !strings.HasSuffix(n.Key, "/") {
		n.Key += "/"
	}
	client, err := objects.Shared()
	if err != nil {
		return nil, err
	}
	list, err := client.List(ctx, n)
	for k := range list {
		list[k] = note(list[k])
	}
	return list, err
}

// Open opens a regular file, or an object for reads in order.
func Open(name string) (File, os.FileInfo, error) { return open(name, true) }

// OpenRandom opens a regular file, or an object for reads of samples in any order.
func OpenRandom(name string) (File, os.FileInfo, error) { return open(name, false) }

func open(name string, ordered bool) (File, os.FileInfo, error) {
	if !Remote(name) {
		f, info, err := regular.Open(name)
		if err != nil {
			return nil, nil, err // a nil *os.File in the interface would not equal nil
		}
		return f, info, nil
	}
	n, err := objects.Parse(name)
	if err != nil {
		return nil, nil, err
	}
	info, err := statObject(whole(), n)
	if err != nil {
		return nil, nil, err
	}
	client, err := objects.Shared()
	if err != nil {
		return nil, nil, err
	}
	return newObject(client, info, ordered), objectInfo{Info: info}, nil
}

// Abs is [filepath.Abs] for files and objects.
func Abs(name string) (string, error) {
	if Remote(name) {
		return name, nil
	}
	return filepath.Abs(name)
}

// Clean is [filepath.Clean] for files and objects.
func Clean(name string) string {
	if rest, ok := strings.CutPrefix(name, objects.Scheme); ok {
		bucket, key, _ := strings.Cut(rest, "/")
		return objects.Scheme + strings.TrimSuffix(bucket+path.Clean("/"+key), "/") // .. does not leave the bucket
	}
	return filepath.Clean(name)
}

// Join is [filepath.Join] for files and objects. The elements may have slashes.
func Join(folder string, elements ...string) string {
	if Remote(folder) {
		return Clean(folder + "/" + path.Join(elements...))
	}
	for k, e := range elements {
		elements[k] = filepath.FromSlash(e)
	}
	return filepath.Join(append([]string{folder}, elements...)...)
}

// Dir is [filepath.Dir] for files and objects. The folder of a bucket is the bucket.
func Dir(name string) string {
	rest, ok := strings.CutPrefix(Clean(name), objects.Scheme)
	if !ok {
		return filepath.Dir(name)
	}
	if at := strings.LastIndexByte(rest, '/'); at >= 0 {
		rest = rest[:at]
	}
	return objects.Scheme + rest
}
