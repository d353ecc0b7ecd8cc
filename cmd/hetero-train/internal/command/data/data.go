package data

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/data/archive"
	"github.com/hetero-train/hetero-train/engine/data/cifar"
	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/engine/regular"
)

const dataLong = `Inspect, verify, download, repack or tokenize data before training.

inspect and verify read the data set of -c FILE and --set. PATH replaces data.path. With PATH and without --dataset, the files at
PATH determine the data set: webdataset for shards, huggingface for Arrow and Parquet files and for lists of images, images for
class folders.`

// New returns the command that downloads, inspects, verifies and repacks data sets.
func New(a *cli.App) *cobra.Command {
	parent := &cobra.Command{
		Use:   "data",
		Short: "Inspect, verify, download, repack or tokenize data sets",
		Long:  dataLong,
		Example: `  hetero-train data inspect /data/imagenet
  hetero-train data verify '/data/shards/train-{000000..000146}.tar'
  hetero-train data download cifar10
  hetero-train data tokenize tinyshakespeare.txt -o shakespeare --val-fraction 0.1`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	parent.AddCommand(cli.WithConfig(newDataInspect(a)), cli.WithConfig(newDataVerify(a)),
		cli.WithConfig(newDataDownload(a)), newDataRepack(a), newDataTokenize(a))
	return parent
}

func newDataDownload(a *cli.App) *cobra.Command {
	variants := map[string]cifar.Variant{"cifar10": cifar.Ten, "cifar100": cifar.Hundred}
	cmd := &cobra.Command{
		Use:   "download cifar10|cifar100",
		Short: "Download a data set and check its SHA-256",
		Long: `Download the official archive of a data set into the cache folder (data.cache_dir), where training finds it.

An interrupted download resumes. The command compares the SHA-256 of the archive with the official one, and deletes a file that
differs. ImageNet needs an account, so this command cannot download it; docs/data.md describes the steps.`,
		Example: `  hetero-train data download cifar10
  hetero-train data download cifar100 --set data.cache_dir=/data/cache`,
		Args:      cli.Exactly("cifar10 or cifar100"),
		ValidArgs: []string{"cifar10", "cifar100"},
		RunE: func(cmd *cobra.Command, args []string) error {
			v, known := variants[args[0]]
			if !known {
				return exit.Usagef("data download: unknown data set (got %q, want cifar10 or cifar100; ImageNet needs an account, see docs/data.md)",
					args[0])
			}
			cfg, err := a.Load()
			if err != nil {
				return err
			}
			cache, err := parts.CacheDir(cfg.Data.CacheDir)
			if err != nil {
				return err
			}
			log, err := logs.New(a.Env.Stderr, logs.NewScreen(io.Discard), a.LogOptions(a.LogLevel))
			if err != nil {
				return err
			}
			path, err := cifar.Download(cmd.Context(),
				cifar.Options{Variant: v, CacheDir: cache, Progress: parts.ProgressLog(log, "downloading "+v.Name)})
			if err != nil {
				return exit.Classify(cmd.Context(), err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s (SHA-256 %s)\n", v.Name, path, v.SHA256)
			return err
		},
	}
	return cmd
}

func newDataRepack(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "repack SHARD OUT.tar.zst",
		Short: "Rewrite a shard as a .tar.zst file with random access",
		Long: `Rewrite a shard as a .tar.zst file that allows random access.

SHARD is a tar file, plain or compressed with gzip or zstd. The tar data stay the same, byte for byte; only the compression changes
to zstd frames of about 1 MiB. An ordinary .tar.zst file has a single frame, so a reader must decompress all data before a sample
to reach that sample. All zstd tools read the result.`,
		Example: `  hetero-train data repack train-000000.tar.zst seekable/train-000000.tar.zst`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return exit.Usagef("%s: got %d arguments %q, want a shard and the file to write", cmd.CommandPath(),
					len(args), args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := logs.New(a.Env.Stderr, logs.NewScreen(io.Discard), a.LogOptions(a.LogLevel))
			if err != nil {
				return err
			}
			return repack(cmd.Context(), args[0], args[1], cmd.OutOrStdout(), log)
		},
	}
}

// repack converts a data set. It writes a temporary file in the folder of the result, and then renames it. The result
// is therefore complete or missing.
func repack(ctx context.Context, from, to string, out io.Writer, log *slog.Logger) (err error) {
	in, info, err := regular.Open(from)
	if err != nil {
		return exit.With(exit.Data, err)
	}
	defer in.Close() // no error: the file was only read
	taken := exit.Usagef("data repack: %s exists: delete it, or choose another name", to)
	if _, err := os.Lstat(to); err == nil {
		return taken
	}
	folder := filepath.Dir(to)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return exit.With(exit.FolderCode(err), fmt.Errorf("data repack: make the folder of %s: %w", to, err))
	}
	f, err := os.CreateTemp(folder, ".repack-*")
	if err != nil {
		return exit.With(exit.FolderCode(err), fmt.Errorf("data repack: write in folder %s: %w", folder, err))
	}
	defer func() {
		f.Close()           // ignore an error: after Sync, no data can be lost
		os.Remove(f.Name()) // ignore an error: the first error is reported
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	size, err := archive.Repack(ctx, in, info.Size(), w, parts.ProgressLog(log, "repacking "+from))
	if errors.Is(err, archive.ErrWrite) {
		return exit.With(exit.IO, fmt.Errorf("repack %s into %s: %w", from, to, err))
	}
	if err != nil {
		return exit.With(exit.Data, fmt.Errorf("repack %s: %w", from, err))
	}
	for _, step := range []func() error{w.Flush, f.Sync, func() error { return f.Chmod(0o644) },
		func() error { return nameAnew(f.Name(), to) }, func() error { return platform.SyncFolder(filepath.Dir(to)) }} {
		if err := step(); errors.Is(err, fs.ErrExist) {
			return taken
		} else if err != nil {
			return exit.With(exit.IO, err)
		}
	}
	packed, err := os.Stat(to)
	if err != nil {
		return exit.With(exit.IO, err)
	}
	_, err = fmt.Fprintf(out, "%s: a tar of %d bytes in %d\n", to, size, packed.Size())
	return err
}

// nameAnew gives a file an additional name, which must not exist yet. If the file system has no hard links, nameAnew
// renames the file.
func nameAnew(from, to string) error {
	err := os.Link(from, to)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) {
		return os.Rename(from, to)
	}
	return err
}
