package checkpoint

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/regular"
)

// IndexSuffix is the suffix of the file name of an index. An index is a JSON file that lists the safetensors files of a
// model and their tensors. The library transformers writes it for large models.
const IndexSuffix = ".safetensors.index.json"

const (
	maxIndexBytes = 64 << 20
	maxIndexFiles = 4096
)

// openIndex opens the files that the index at path lists, and provides the tensors of all files. The index must list
// each file by its name in the folder of the index. An untrusted index therefore cannot make the program read other
// files.
func openIndex(path string) (*File, error) {
	text, err := regular.Read(path, maxIndexBytes)
	if errors.As(err, new(*regular.Error)) {
		return nil, corrupt(path, "%v", err)
	} else if err != nil {
		return nil, ioError("read", path, err)
	}
	var list struct {
		Files map[string]string `json:"weight_map"` // maps the name of a tensor to its file
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, corrupt(path, "want an index of safetensors files: %v", err)
	}
	names := slices.Compact(slices.Sorted(maps.Values(list.Files)))
	if len(names) == 0 || len(names) > maxIndexFiles {
		return nil, corrupt(path, "weight_map lists %d files, want 1 to %d", len(names), maxIndexFiles)
	}
	whole := &File{path: path, index: map[string]int{}, parts: map[string]*File{}}
	for _, name := range names {
		if err = whole.add(name); err != nil {
			return nil, errors.Join(err, whole.Close())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(list.Files)) {
		if part := whole.parts[name]; part == nil || filepath.Base(part.path) != list.Files[name] {
			return nil, errors.Join(corrupt(path, "weight_map names tensor %q in %s, but the file has no such tensor",
				name, list.Files[name]), whole.Close())
		}
	}
	return whole, nil
}

// files returns the files of an index, or f if f is a single file.
func (f *File) files() []*File {
	if f.parts == nil {
		return []*File{f}
	}
	var all []*File
	for _, t := range f.tensors { // the tensors of a file are adjacent
		if part := f.parts[t.Name]; len(all) == 0 || all[len(all)-1] != part {
			all = append(all, part)
		}
	}
	return all
}

// add opens one file of an index and adds its tensors.
func (f *File) add(name string) error {
	if name != filepath.Base(name) || !strings.HasSuffix(name, ".safetensors") {
		return corrupt(f.path,
			"weight_map lists the file %.100q, want the name of a .safetensors file in the folder of the index", name)
	}
	part, err := OpenFile(filepath.Join(filepath.Dir(f.path), name))
	if errors.Is(err, fs.ErrNotExist) {
		return corrupt(f.path, "weight_map lists the file %s, but the folder has no such file", name)
	} else if err != nil {
		return err
	}
	f.closers = append(f.closers, part)
	if f.metadata == nil {
		f.metadata = part.metadata
	}
	for _, t := range part.tensors {
		if other := f.parts[t.Name]; other != nil {
			return corrupt(f.path, "tensor %q is in %s and in %s, want one file", t.Name, filepath.Base(other.path),
				name)
		}
		f.parts[t.Name], f.index[t.Name] = part, len(f.tensors)
		f.tensors = append(f.tensors, t)
	}
	return nil
}
