package bucket

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/objects"
)

// upload stores an open checkpoint in the bucket. If newest is true, it also updates `latest`.
func (f *Folder) upload(ctx context.Context, c *opened, newest bool) error {
	if err := f.check(ctx); err != nil {
		return err
	}
	there, err := f.stored(ctx, c)
	if err == nil && !there {
		err = f.uploadFiles(ctx, c)
	}
	if err != nil {
		return err
	}
	if err := f.check(ctx); err != nil { // an upload may take long
		return err
	}
	if newest {
		if err := f.point(ctx, latestFile, c.step); err != nil {
			return err
		}
	}
	return f.pointBest(ctx, c)
}

// stored reports whether the folder already has the checkpoint c.
func (f *Folder) stored(ctx context.Context, c *opened) (bool, error) {
	there, err := f.Manifest(ctx, c.step)
	if err != nil || there == nil || !bytes.Equal(there, c.manifest) {
		return false, err
	}
	_, all, err := f.complete(ctx)
	if err != nil {
		return false, err
	}
	sizes := map[string]int64{}
	for _, o := range all[c.step] {
		sizes[o.Name.Key] = o.Size
	}
	for name, file := range c.files {
		info, err := file.Stat()
		if err != nil {
			return false, err
		}
		if size, ok := sizes[f.name.Join(checkpoint.StepName(c.step), name).Key]; !ok || size != info.Size() {
			return false, nil
		}
	}
	return true, nil
}

func (f *Folder) uploadFiles(ctx context.Context, c *opened) error {
	to := f.name.Join(checkpoint.StepName(c.step))
	// This makes an older checkpoint of the same step incomplete.
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
	return nil
}

// point stores the name of a checkpoint in `latest` or `best`.
func (f *Folder) point(ctx context.Context, file string, step int64) error {
	return f.client.PutBytes(ctx, f.name.Join(file), []byte(checkpoint.StepName(step)+"\n"))
}

// pointBest reads which checkpoint is now the best one in the local folder of c. If this checkpoint is in the bucket,
// pointBest stores its name in `best`.
func (f *Folder) pointBest(ctx context.Context, c *opened) error {
	best, ok := localBest(c.path)
	if !ok {
		return nil
	}
	now, err := f.pointer(ctx, bestFile)
	if err != nil || now == checkpoint.StepName(best) {
		return err
	}
	if best != c.step {
		if has, err := f.Has(ctx, best); err != nil || !has {
			return err
		}
	}
	return f.point(ctx, bestFile, best)
}

// localBest returns the step of the best checkpoint in the local folder that contains the checkpoint at path.
func localBest(path string) (step int64, ok bool) {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(path), bestFile))
	if err != nil {
		return 0, false
	}
	return checkpoint.StepOf(strings.TrimSpace(string(text)))
}

// retain removes old checkpoints. Among the checkpoints up to the step newest, it keeps the best one and the last ones,
// as many as the parameter keep states. Later checkpoints are hidden, because the run resumed from an earlier step.
// They remain until the run passes their steps.
func (f *Folder) retain(ctx context.Context, newest int64, keep int) error {
	steps, all, err := f.complete(ctx)
	if err != nil {
		return err
	}
	best, err := f.pointer(ctx, bestFile)
	if err != nil {
		return err
	}
	if err := f.check(ctx); err != nil {
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

// opened is a checkpoint with open files.
type opened struct {
	path     string
	step     int64
	best     bool // `best` names it
	manifest []byte
	files    map[string]*os.File
}

// openFiles opens the files of a checkpoint.
func openFiles(path string) (_ *opened, err error) {
	step, ok := checkpoint.StepOf(filepath.Base(path))
	if !ok {
		return nil, fmt.Errorf("%s: the name is not that of a checkpoint", path)
	}
	c := &opened{path: path, step: step, files: map[string]*os.File{}}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(path, e.Name()))
		if err != nil {
			c.close()
			return nil, err
		}
		c.files[e.Name()] = f
	}
	m := c.files[manifestFile]
	if m == nil {
		c.close()
		return nil, fmt.Errorf("%s has no %s", path, manifestFile)
	}
	if c.manifest, err = io.ReadAll(io.NewSectionReader(m, 0, mostManifest)); err != nil {
		c.close()
		return nil, err
	}
	best, ok := localBest(path)
	c.best = ok && best == step
	return c, nil
}

// names returns the names of the files. MANIFEST is the last one.
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
