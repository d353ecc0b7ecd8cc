package data

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/huggingface"
	"github.com/hetero-train/hetero-train/engine/data/tokens"
	"github.com/hetero-train/hetero-train/engine/data/webdataset"
)

// dataFlags are the flags that inspect and verify share.
type dataFlags struct {
	json    bool
	workers int
}

// addDataFlags adds the flags of f and the flags that set keys.
func addDataFlags(cmd *cobra.Command, a *cli.App, f *dataFlags) {
	cmd.Args = cobra.MaximumNArgs(1)
	for _, k := range []struct{ flag, key, kind, usage string }{
		{"dataset", "data.dataset", "string", "name of the data set (data.dataset)"},
		{"num-samples", "data.num_samples", "int", "number of training samples to use; 0: all (data.num_samples)"},
	} {
		cmd.Flags().Var(&cli.KeyFlag{App: a, Flag: k.flag, Key: k.key, Kind: k.kind}, k.flag, k.usage)
	}
	cmd.Flags().BoolVar(&f.json, "json", false, "print one JSON object")
}

// namesTokens reports whether the arguments name token shards, and no flag selects another data set.
func namesTokens(cmd *cobra.Command, args []string) bool {
	return len(args) == 1 && !cmd.Flags().Changed("dataset") && isTokens(args[0])
}

// isTokens reports whether path is a token shard, or a folder of token shards.
func isTokens(path string) bool {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return false
	case !info.IsDir():
		return strings.HasSuffix(path, ".bin")
	}
	_, err = tokens.Find(path, true)
	return err == nil || errors.Is(err, tokens.ErrIncomplete)
}

// openNamed opens the data set that the arguments name. Without arguments, it opens the data set of the configuration.
// If skip is true, it leaves out damaged parts for any value of data.corrupt.
func openNamed(ctx context.Context, a *cli.App, args []string, skip bool) (*parts.Opened, *config.Config, error) {
	log, err := logs.New(a.Env.Stderr, logs.NewScreen(io.Discard), a.LogOptions(a.LogLevel))
	if err != nil {
		return nil, nil, err
	}
	parts.LogRequests(log)
	if len(args) == 1 {
		first := []config.Override{{Origin: "PATH", Key: "data.path", Value: args[0]},
			{Origin: "PATH", Key: "data.dataset", Value: guessDataset(ctx, args[0])}}
		a.Overrides = append(first, a.Overrides...)
	}
	cfg, err := a.Load()
	if err != nil {
		return nil, nil, err
	}
	if skip {
		cfg.Data.Corrupt = "skip"
	}
	set, err := parts.OpenStored(ctx, cfg, log)
	return set, cfg, err
}

// loadText reads the configuration of a command that works on the texts at path. If there is no configuration file, the
// configuration has the given model.
func loadText(a *cli.App, path, dataset, model string) (*config.Config, error) {
	own := []config.Override{{Origin: "PATH", Key: "data.path", Value: path},
		{Origin: "PATH", Key: "data.dataset", Value: dataset}}
	if a.File == "" {
		own = append(own, config.Override{Origin: "PATH", Key: "model.name", Value: model})
	}
	a.Overrides = append(own, a.Overrides...)
	return a.Load()
}

// guessDataset returns the type of the data set at path: a data set of Hugging Face (also one list of images), shards
// or class folders. Shards are several archives, or one archive in which members have the same base name as a label.
// guessDataset does not report an unreadable path, because the later open reports it.
func guessDataset(ctx context.Context, path string) string {
	if filepath.Ext(path) == ".txt" { // a list of files, which may be a named pipe: only the data set may read it
		return "webdataset"
	}
	if huggingface.Recognise(path) || huggingface.RecogniseList(path) || huggingface.RecogniseListFile(path) {
		return parts.HuggingFace
	}
	shards, err := webdataset.Expand(ctx, path, true)
	if err != nil {
		return "images"
	}
	if len(shards) > 1 && !strings.HasPrefix(filepath.Base(shards[0]), "ILSVRC") {
		return "webdataset"
	}
	labelled, err := webdataset.Labelled(shards[0])
	if err == nil && !labelled {
		return "images"
	}
	return "webdataset"
}

// part is a part of a data set with at least one sample.
type part struct {
	name string
	ds   data.Dataset
}

// partsOf returns the parts of a data set of images.
func partsOf(set *parts.Opened) (list []part) {
	for _, p := range []part{{"train", set.Train}, {"eval", set.Eval}} {
		if p.ds != nil {
			list = append(list, p)
		}
	}
	return list
}
