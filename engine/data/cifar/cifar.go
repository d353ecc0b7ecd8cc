package cifar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/archive"
	"github.com/hetero-train/hetero-train/engine/data/download"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// Variant is CIFAR-10 or CIFAR-100.
type Variant struct {
	Name          string
	URL           string
	SHA256        string // SHA-256 of the archive, hexadecimal
	labelBytes    int    // number of label bytes before the pixels of a record; the last label byte is the class
	classes       int
	trainFiles    []string
	testFile      string
	namesFile     string
	folder        string // name of the folder within the archive
	normalization data.Normalization
}

// The official archives.
var (
	Ten = Variant{
		Name:       "cifar10",
		URL:        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
		SHA256:     "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
		labelBytes: 1, classes: 10,
		trainFiles: []string{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
			"data_batch_5.bin"},
		testFile: "test_batch.bin", namesFile: "batches.meta.txt", folder: "cifar-10-batches-bin",
		normalization: data.NormalizeCIFAR10,
	}
	Hundred = Variant{
		Name:       "cifar100",
		URL:        "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
		SHA256:     "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
		labelBytes: 2, classes: 100, // a coarse and a fine label
		trainFiles: []string{"train.bin"},
		testFile:   "test.bin", namesFile: "fine_label_names.txt", folder: "cifar-100-binary",
		normalization: data.NormalizeCIFAR100,
	}
)

// maxArchiveBytes is larger than both archives (170 MB).
const maxArchiveBytes = 256 << 20

// Options describes where the data set is.
type Options struct {
	Variant Variant // Ten or Hundred; URL and SHA256 may be replaced by those of a mirror
	// Path is the archive, or a folder that contains the archive or the extracted files. If Path is empty, Open
	// downloads the archive.
	Path     string
	CacheDir string // folder for the downloaded archive; used if Path is empty

	StartTimeout time.Duration                // time limit for the first byte of a download; 0 means 10 s
	Progress     func(done, totalBytes int64) // called during a download; may be nil
}

// Open returns both parts of the data set. Data errors are *data.Fault.
func Open(ctx context.Context, o Options) (data.Splits, error) {
	path := o.Path
	if path == "" {
		var err error
		if path, err = o.fetch(ctx); err != nil {
			return data.Splits{}, err
		}
	} else if info, err := os.Stat(path); err != nil {
		return data.Splits{},
			o.fault("open", path, "set data.path to an existing file or folder, or leave it empty to download the data",
				err)
	} else if info.IsDir() {
		inside := filepath.Join(path, o.archiveName())
		if _, err := os.Stat(inside); err != nil {
			return o.openFolder(path)
		}
		path = inside
	}
	if err := download.Verify(path, o.Variant.SHA256); err != nil {
		return data.Splits{},
			o.fault("check", path, "download the archive again, or unpack it and set data.path to the folder", err)
	}
	return o.openArchive(ctx, path)
}

func (o Options) archiveName() string {
	return o.Variant.URL[strings.LastIndexByte(o.Variant.URL, '/')+1:]
}

// Download downloads the archive into the cache folder, unless the folder contains it already. It returns the path of
// the archive.
func Download(ctx context.Context, o Options) (string, error) { return o.fetch(ctx) }

// fetch downloads the archive into the cache folder.
func (o Options) fetch(ctx context.Context) (string, error) {
	path, err := download.Fetch(ctx, download.Request{
		URL: o.Variant.URL, SHA256: o.Variant.SHA256, MaxBytes: maxArchiveBytes,
		Dir: o.CacheDir, Name: o.archiveName(), StartTimeout: o.StartTimeout, Progress: o.Progress,
	})
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err == nil {
		return path, nil
	}
	advice := fmt.Sprintf("set data.cache_dir (now %s) to a writable folder with enough free space", o.CacheDir)
	if errors.Is(err, download.ErrUnavailable) || errors.Is(err, download.ErrMismatch) {
		advice = fmt.Sprintf("copy %s to this machine and set data.path to it", o.Variant.URL)
	}
	return "", o.fault("get "+o.Variant.Name, "", advice, err)
}

func (o Options) fault(op, path, advice string, err error) error {
	return &data.Fault{Op: op, Path: path, Index: -1, Advice: advice, Err: err}
}

// openArchive reads the tar.gz file.
func (o Options) openArchive(ctx context.Context, file string) (data.Splits, error) {
	f, _, err := regular.Open(file)
	if err != nil {
		return data.Splits{}, o.fault("open", file, "", err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return data.Splits{}, o.fault("read", file, "", err)
	}
	files := o.Variant.newFiles()
	err = archive.Walk(z, archive.Limits{Members: 1000}, func(m archive.Member, contents io.Reader) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if dir, name := path.Split(m.Name); strings.TrimSuffix(dir, "/") == o.Variant.folder {
			return files.read(name, contents)
		}
		return nil
	})
	if err == nil {
		// archive/tar stops at the end mark of the tar. Reading the rest makes the decompressor check its checksum.
		_, err = io.Copy(io.Discard, io.LimitReader(z, 1<<20))
	}
	return o.splits(ctx, files, file, err)
}

// openFolder reads extracted files from path, or from the folder of the archive within path.
func (o Options) openFolder(path string) (data.Splits, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return data.Splits{}, o.fault("open", path, "", err)
	}
	defer root.Close()
	prefix := ""
	if _, err := root.Stat(o.Variant.folder); err == nil {
		prefix = o.Variant.folder + "/"
	}
	files := o.Variant.newFiles()
	for _, name := range files.names() {
		f, _, err := regular.OpenIn(root, prefix+name)
		if errors.Is(err, os.ErrNotExist) {
			continue // splits reports missing files
		}
		if err == nil {
			err = files.read(name, f)
			f.Close() // read only
		}
		if err != nil {
			return data.Splits{}, o.fault("read", filepath.Join(path, prefix, name), "", err)
		}
	}
	return o.splits(context.Background(), files, path, nil)
}

// splits returns both parts of the data set from the files that were read.
func (o Options) splits(ctx context.Context, files *files, path string, err error) (data.Splits, error) {
	if ctx.Err() != nil {
		return data.Splits{}, ctx.Err()
	}
	if err == nil {
		err = files.complete()
	}
	if err != nil {
		return data.Splits{}, o.fault("read", path, fmt.Sprintf("want %s, or its unpacked files", o.archiveName()), err)
	}
	train := &dataset{classes: files.classes}
	for _, name := range o.Variant.trainFiles {
		train.blocks = append(train.blocks, files.blocks[name])
	}
	test := &dataset{classes: files.classes, blocks: []block{files.blocks[o.Variant.testFile]}}
	return data.Splits{Train: train, Eval: test, OwnEval: true, Normalization: o.Variant.normalization}, nil
}
