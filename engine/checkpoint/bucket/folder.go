package bucket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/objects"
	"github.com/hetero-train/hetero-train/engine/platform"
)

const (
	manifestFile = "MANIFEST"
	latestFile   = "latest"
	bestFile     = "best"
	mostName     = 256 // bytes of latest and best
	mostManifest = 64 << 20
	readBytes    = 8 << 20
	readsAtOnce  = 8
)

// Folder is a folder of checkpoints in a bucket.
type Folder struct {
	client *objects.Client
	name   objects.Name
}

// Open returns the folder with a name such as s3://BUCKET/FOLDER. It sends no request.
func Open(path string) (*Folder, error) {
	name, err := objects.Parse(path)
	if err != nil {
		return nil, err
	}
	client, err := objects.Shared()
	if err != nil {
		return nil, err
	}
	name.Key = strings.Trim(name.Key, "/")
	return &Folder{client, name}, nil
}

// String returns the name of the folder.
func (f *Folder) String() string { return f.name.String() }

// complete lists the steps of the complete checkpoints, newest first, and the objects of all checkpoints by step.
func (f *Folder) complete(ctx context.Context) (steps []int64, all map[int64][]objects.Info, err error) {
	prefix := f.name.Join("x")
	prefix.Key = strings.TrimSuffix(prefix.Key, "x") + "step-"
	list, err := f.client.List(ctx, prefix)
	if err != nil {
		return nil, nil, err
	}
	all = map[int64][]objects.Info{}
	for _, o := range list {
		name, file, ok := strings.Cut(strings.TrimPrefix(o.Name.Key, strings.TrimSuffix(prefix.Key, "step-")), "/")
		step, isStep := checkpoint.StepOf(name)
		if !ok || !isStep {
			continue
		}
		all[step] = append(all[step], o)
		if file == manifestFile {
			steps = append(steps, step)
		}
	}
	slices.Sort(steps)
	slices.Reverse(steps)
	return steps, all, nil
}

// pointer returns the contents of `latest` or `best`, or "".
func (f *Folder) pointer(ctx context.Context, file string) (string, error) {
	text, err := f.client.Read(ctx, f.name.Join(file), mostName)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// Newest returns the step of the checkpoint that `latest` names. If it is not complete, Newest returns the newest
// complete checkpoint before it. ok is false if there is none.
func (f *Folder) Newest(ctx context.Context) (step int64, ok bool, err error) {
	steps, _, err := f.complete(ctx)
	if err != nil || len(steps) == 0 {
		return 0, false, err
	}
	latest, err := f.pointer(ctx, latestFile)
	if err != nil {
		return 0, false, err
	}
	if last, isStep := checkpoint.StepOf(latest); isStep {
		// Later steps are those of a run that was resumed from an earlier one.
		if k := slices.IndexFunc(steps, func(s int64) bool { return s <= last }); k >= 0 {
			return steps[k], true, nil
		}
	}
	return steps[0], true, nil
}

// Has reports whether the checkpoint of a step is complete.
func (f *Folder) Has(ctx context.Context, step int64) (bool, error) {
	steps, _, err := f.complete(ctx)
	return slices.Contains(steps, step), err
}

// Download downloads the checkpoint of a step to a folder of checkpoints, and returns its path. The checkpoint appears
// in the folder only when all its bytes are there and have the hashes of its manifest. It replaces an existing
// checkpoint of the step.
func (f *Folder) Download(ctx context.Context, step int64, dir string) (path string, err error) {
	_, all, err := f.complete(ctx)
	if err != nil {
		return "", err
	}
	name := checkpoint.StepName(step)
	from := f.name.Join(name)
	if len(all[step]) == 0 {
		return "", fmt.Errorf("%s: %w", from, checkpoint.ErrNone)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	hidden := filepath.Join(dir, checkpoint.Unfinished(name))
	if err := os.RemoveAll(hidden); err != nil {
		return "", err
	}
	if err := os.Mkdir(hidden, 0o755); err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(hidden))
		}
	}()
	root, err := os.OpenRoot(hidden)
	if err != nil {
		return "", err
	}
	defer root.Close()
	for _, o := range all[step] {
		file := strings.TrimPrefix(o.Name.Key, from.Key+"/")
		if strings.ContainsAny(file, `/\`) || !filepath.IsLocal(file) {
			return "", fmt.Errorf("%s: got an object %.100q, want the files of a checkpoint only", from, file)
		}
		if err := f.download(ctx, o, root, file); err != nil {
			return "", err
		}
	}
	checked, err := checkpoint.Load(hidden) // compares the hashes
	if err != nil {
		return "", err
	}
	if err := checked.Close(); err != nil {
		return "", err
	}
	path = filepath.Join(dir, name)
	if err := os.RemoveAll(path); err != nil {
		return "", err
	}
	if err := errors.Join(platform.SyncFolder(hidden), os.Rename(hidden, path)); err != nil {
		return "", err
	}
	return path, platform.SyncFolder(dir)
}

func (f *Folder) download(ctx context.Context, o objects.Info, root *os.Root, name string) (err error) {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := f.client.ReadAll(ctx, o, readBytes, readsAtOnce, file); err != nil {
		return err
	}
	return file.Sync()
}

// upload stores an open checkpoint.
func (f *Folder) upload(ctx context.Context, c *opened) error {
	to := f.name.Join(checkpoint.StepName(c.step))
	// An older checkpoint of the same step is not complete from now on.
	if err := f.client.Delete(ctx, to.Join(manifestFile)); err != nil {
		return err
	}
	for _, name := range c.names() { // MANIFEST is the last one
		file := c.files[name]
		info, err := file.Stat()
		if err != nil {
			return err
		}
		if err := f.client.Put(ctx, to.Join(name), file, info.Size()); err != nil {
			return err
		}
	}
	if err := f.client.PutBytes(ctx, f.name.Join(latestFile), []byte(checkpoint.StepName(c.step)+"\n")); err != nil {
		return err
	}
	if c.best {
		return f.client.PutBytes(ctx, f.name.Join(bestFile), []byte(checkpoint.StepName(c.step)+"\n"))
	}
	return nil
}

// Hide makes the checkpoint of a step incomplete, because its values may be wrong. Its other objects stay.
func (f *Folder) Hide(ctx context.Context, step int64) error {
	name := f.name.Join(checkpoint.StepName(step), manifestFile)
	text, err := f.client.Read(ctx, name, mostManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = f.client.PutBytes(ctx, objects.Name{Bucket: name.Bucket, Key: name.Key + ".quarantined"}, text)
	}
	if err != nil {
		return err
	}
	return f.client.Delete(ctx, name)
}

// retain removes old checkpoints: it keeps the newest keep of the steps up to newest, and the best one. Checkpoints of
// later steps belong to a run that was resumed from an earlier step; they are kept until the run passes their steps.
func (f *Folder) retain(ctx context.Context, newest int64, keep int) error {
	steps, all, err := f.complete(ctx)
	if err != nil {
		return err
	}
	best, err := f.pointer(ctx, bestFile)
	if err != nil {
		return err
	}
	kept := map[int64]bool{newest: true}
	for _, step := range steps {
		if step < newest && len(kept) < keep {
			kept[step] = true
		}
	}
	if step, ok := checkpoint.StepOf(best); ok {
		kept[step] = true
	}
	for step, files := range all {
		if kept[step] || step > newest {
			continue
		}
		// The first removal makes the checkpoint incomplete.
		slices.SortFunc(files, func(a, b objects.Info) int {
			return rank(a) - rank(b)
		})
		for _, o := range files {
			if err := f.client.Delete(ctx, o.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

func rank(o objects.Info) int {
	if strings.HasSuffix(o.Name.Key, "/"+manifestFile) {
		return 0
	}
	return 1
}

// opened is a checkpoint whose files are open.
type opened struct {
	step  int64
	best  bool
	files map[string]*os.File
}

// openFiles opens the files of a checkpoint.
func openFiles(path string) (c *opened, err error) {
	step, ok := checkpoint.StepOf(filepath.Base(path))
	if !ok {
		return nil, fmt.Errorf("%s: the name is not that of a checkpoint", path)
	}
	c = &opened{step: step, files: map[string]*os.File{}}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if c.files[e.Name()], err = os.Open(filepath.Join(path, e.Name())); err != nil {
			delete(c.files, e.Name())
			return c, err
		}
	}
	if c.files[manifestFile] == nil {
		return c, fmt.Errorf("%s has no %s", path, manifestFile)
	}
	best, err := os.ReadFile(filepath.Join(filepath.Dir(path), bestFile))
	c.best = err == nil && strings.TrimSpace(string(best)) == filepath.Base(path)
	return c, nil
}

// names returns the names of the files, with MANIFEST at the end.
func (c *opened) names() (names []string) {
	for name := range c.files {
		if name != manifestFile {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return append(names, manifestFile)
}

func (c *opened) close() {
	for _, f := range c.files {
		f.Close() // read only
	}
}
