package assembly

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/cluster/rendezvous"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data/content"
	"github.com/hetero-train/hetero-train/engine/data/webp"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// compareData compares the data of the machines before training. It also prepares CompareRead, which compares the
// samples during training. If all ranks read the same files, it compares nothing.
func (r *Run) compareData(ctx context.Context) error {
	if r.Data.Content == nil {
		return nil
	}
	decoder := "" // "" for data sets that cannot contain WebP images
	if r.Data.DecodesImages() {
		decoder = webp.InUse().Name
	}
	own := r.Rank.Team.Group.Members()[r.Rank.Team.Place.Rank]
	team, err := content.Meet(ctx, content.Options{Content: r.Data.Content, Rank: r.Rank.Team.Place.Rank,
		Seed:  r.Process.Cfg.Experiment.Seed,
		Place: placeOf(r.Process.Cfg, own.Host), Host: own.Name, Path: r.Process.Cfg.Data.Path,
		ValPath: r.Process.Cfg.Data.ValPath, Decoder: decoder, Gather: r.Rank.Team.Group.Gather})
	if err != nil {
		return err
	}
	if r.Rank.Team.Leads() {
		warnOfDecoders(r.Process.Opts.LogOf(logs.ComponentData), team.Decoders())
	}
	if team.Alone() {
		return nil
	}
	compared, err := team.Compare(ctx)
	if err != nil {
		return err
	}
	log := r.Process.Opts.LogOf(logs.ComponentData)
	log.Info("the compared data of the machines are equal", "names_and_labels", r.Data.Content.Len(), "contents",
		compared)
	if r.ledger = team.Ledger(); r.ledger == nil {
		log.Warn(
			"the data have too many units for a comparison during the run: the machines compared them only at the start",
			"units", r.Data.Content.Len())
		return nil
	}
	r.Data.Watch.Send(r.ledger.Note)
	watched, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.ledger.Audit(watched)
	}()
	r.Process.Later(func() error {
		stop()
		select {
		case <-ended:
		case <-time.After(auditPatience):
			r.reading.Store(true)
		}
		return nil
	})
	return nil
}

// warnOfDecoders warns if some ranks decode WebP images with libwebp and others with Go. The parameter decoders has the
// name and version of each rank's decoder. The version has no effect, and "" stands for a rank without WebP images.
// JPEG decoders need no comparison: all give the same pixels and refuse the same images.
func warnOfDecoders(log *slog.Logger, decoders []string) {
	kind := func(name string) string { kind, _, _ := strings.Cut(name, " "); return kind }
	for rank, name := range decoders {
		if name == "" || decoders[0] == "" || kind(name) == kind(decoders[0]) {
			continue
		}
		log.Warn("the ranks decode WebP images, if the data has any, with different decoders: intact images have equal pixels, but damaged ones may differ, or be refused on some ranks only; install libwebp on all machines (libwebp7; not in Debian 11 and Ubuntu 20.04), or set "+
			webp.Variable+"=go on all", "rank_0", decoders[0], "other_rank", rank, "other", name)
		return
	}
}

// auditPatience is the time for which the end of a run waits for the background audit of the data. The audit exceeds
// this time only if the disk with the data does not answer. The process then ends without the result of the audit.
const auditPatience = 2 * time.Second

// CompareRead returns a function that compares the hashes of the samples that the ranks have read so far. It returns
// nil if there is nothing to compare, for example if all ranks read the same files. All ranks must call the function
// between the same two steps. If whole is true, they exchange all hashes; otherwise some may remain for the next call.
func (r *Run) CompareRead() func(ctx context.Context, whole bool) error {
	if r.ledger == nil {
		return nil
	}
	return func(ctx context.Context, whole bool) error {
		err := r.ledger.Compare(ctx, whole)
		if errors.As(err, new(*rendezvous.LostError)) {
			// No error: the next exchange of gradients reports the lost rank, and rank 0 then saves the last complete
			// step.
			return nil
		}
		return err
	}
}

// placeOf returns a text that identifies the files that a rank reads. It contains the machine, the root and the working
// folder of the process, the data paths, and the settings that name further files. Folders and single files are
// identified by device and inode.
func placeOf(c *config.Config, host string) string {
	place := []string{host, inodeOf("/")}   // two containers of a machine have different roots
	if dir, err := os.Getwd(); err == nil { // base of relative paths
		place = append(place, inodeOf(dir))
	}
	path := c.Data.Path
	if path == "" {
		path, _ = parts.CacheDir(c.Data.CacheDir) // OpenData has reported an error
	}
	place = append(place, inodeOf(path), inodeOf(c.Data.ValPath))
	for _, s := range c.Settings() {
		if s.Key == "data.class_names" || s.Key == "data.vocab_file" {
			place = append(place, s.Value)
		}
	}
	return strings.Join(place, "\n")
}

// inodeOf returns the device and inode of a path, or the path itself if it is a pattern or a list of paths.
func inodeOf(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return path
	}
	device, inode, ok := platform.FileID(info)
	if !ok {
		return path
	}
	return fmt.Sprintf("%d:%d", device, inode)
}
