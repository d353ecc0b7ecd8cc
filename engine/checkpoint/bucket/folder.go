package bucket

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/objects"
)

const (
	manifestFile = "MANIFEST"
	latestFile   = "latest"
	bestFile     = "best"
	ownerFile    = "owner"
	mostName     = 1 << 10 // largest size of the objects latest, best and owner, bytes
	mostManifest = 64 << 20
)

// Folder is a folder of checkpoints in a bucket.
type Folder struct {
	client *objects.Client
	name   objects.Name
	claim  []byte // contents of `owner` that this process has written; nil: not written
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
	return &Folder{client: client, name: name}, nil
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

// pointer returns the contents of `latest` or `best`, or "" if the object does not exist.
func (f *Folder) pointer(ctx context.Context, file string) (string, error) {
	text, err := f.client.Read(ctx, f.name.Join(file), mostName)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// Steps returns the steps of the complete checkpoints, newest first. It leaves out steps after the one that `latest`
// names, because the run has since resumed from an earlier step.
func (f *Folder) Steps(ctx context.Context) ([]int64, error) {
	steps, _, err := f.complete(ctx)
	if err != nil || len(steps) == 0 {
		return nil, err
	}
	latest, err := f.pointer(ctx, latestFile)
	if last, ok := checkpoint.StepOf(latest); ok {
		steps = slices.DeleteFunc(steps, func(s int64) bool { return s > last })
	}
	return steps, err
}

// Newest returns the first of Steps. The result ok is false if there is no complete checkpoint.
func (f *Folder) Newest(ctx context.Context) (step int64, ok bool, err error) {
	steps, err := f.Steps(ctx)
	if err != nil || len(steps) == 0 {
		return 0, false, err
	}
	return steps[0], true, nil
}

// Any reports whether the folder has a complete checkpoint of any step.
func (f *Folder) Any(ctx context.Context) (bool, error) {
	steps, _, err := f.complete(ctx)
	return len(steps) > 0, err
}

// Manifest returns the manifest of the checkpoint of a step, or nil if the checkpoint is not complete. The manifest
// identifies the contents of the checkpoint.
func (f *Folder) Manifest(ctx context.Context, step int64) ([]byte, error) {
	text, err := f.client.Read(ctx, f.name.Join(checkpoint.StepName(step), manifestFile), mostManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// Has reports whether the checkpoint of a step is complete.
func (f *Folder) Has(ctx context.Context, step int64) (bool, error) {
	steps, _, err := f.complete(ctx)
	return slices.Contains(steps, step), err
}
