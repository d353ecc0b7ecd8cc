package data

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/data"
)

// badSample is an unreadable sample.
type badSample struct {
	Part  string `json:"part"`
	Index int    `json:"index"` // index of the sample in training
	Path  string `json:"path"`
	Error string `json:"error"`
}

// Verified is the output of command data verify.
type Verified struct {
	Dataset string      `json:"dataset"`
	Samples int         `json:"samples"`
	Bad     []badSample `json:"bad"`
	Seconds float64     `json:"seconds"`
	// damaged parts, whose samples were not read: data.corrupt = "skip" leaves them out
	LeftOut []leftOutPart `json:"left_out,omitempty"`
	// a part of the data that training does not use, and that was not read
	Unused string `json:"not_used,omitempty"`
}

func newDataVerify(a *cli.App) *cobra.Command {
	f := new(dataFlags)
	cmd := &cobra.Command{
		Use:   "verify [PATH]",
		Short: "Read and decode every sample, and list unreadable ones",
		Long: `Read and decode every sample of the training and evaluation parts at full size, and list each unreadable sample with its location.
The command also lists all damaged files and samples that data.corrupt = "skip" leaves out when it opens the data.

The exit code is 3 if anything is damaged or unreadable. Training ends with an error at such data, or leaves them out or replaces
them if data.corrupt is "skip".`,
		Example: `  hetero-train data verify /data/imagenet
  hetero-train data verify -c configs/resnet50.toml --json > bad.json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.workers < 0 {
				return exit.Usagef("--workers: got %d, want at least 0", f.workers)
			}
			if namesLabelled(a, args) {
				return showLabelled(cmd.Context(), a, args[0], f.json)
			}
			if namesTokens(cmd, args) {
				return verifyTokens(cmd.Context(), a, args[0], f.json)
			}
			return verifyData(cmd.Context(), a, args, f)
		},
	}
	addDataFlags(cmd, a, f)
	cmd.Flags().IntVar(&f.workers, "workers", 0, "number of goroutines that read; 0: one per CPU")
	return cmd
}

func verifyData(ctx context.Context, a *cli.App, args []string, f *dataFlags) error {
	set, _, err := openNamed(ctx, a, args, true)
	if err != nil {
		return exit.Classify(ctx, err)
	}
	defer set.Close() // no error: the data set was only read
	out := Verified{Dataset: set.Name, Bad: []badSample{}, LeftOut: leftOutOf(set)}
	_, out.Unused = set.EvalFrom()
	begun := time.Now()
	for _, part := range partsOf(set) {
		said := time.Now()
		progress := func(done int) {
			if time.Since(said) > 10*time.Second {
				said = time.Now()
				a.Progress(fmt.Sprintf("%s: %d of %d samples", part.name, done, part.ds.Len()))
			}
		}
		err := data.Verify(ctx, part.ds, f.readers(), progress, func(fault *data.Fault) {
			out.Bad = append(out.Bad, badSample{part.name, fault.Index, fault.Path, fault.Err.Error()})
		})
		if err != nil {
			return exit.Classify(ctx, err)
		}
		out.Samples += part.ds.Len()
	}
	slices.SortFunc(out.Bad, func(x, y badSample) int {
		return cmp.Or(strings.Compare(y.Part, x.Part), cmp.Compare(x.Index, y.Index)) // "train" precedes "eval"
	})
	out.Seconds = time.Since(begun).Seconds()
	if err := logVerified(a, out, f.json); err != nil {
		return err
	}
	if len(out.Bad)+len(out.LeftOut) > 0 {
		return exit.With(exit.Data, exit.AlreadyShown(fmt.Errorf("%d of %d samples cannot be read, %s",
			len(out.Bad), out.Samples, show.Count(len(out.LeftOut), "damaged part"))))
	}
	return nil
}

// readers returns the number of goroutines that read samples.
func (f *dataFlags) readers() int {
	if f.workers > 0 {
		return min(f.workers, 1024)
	}
	return runtime.GOMAXPROCS(0)
}

func logVerified(a *cli.App, out Verified, asJSON bool) error {
	if asJSON {
		return show.JSON(a.Env.Stdout, out)
	}
	for _, l := range out.LeftOut {
		fmt.Fprintln(a.Env.Stdout, l)
	}
	for _, b := range out.Bad {
		fmt.Fprintf(a.Env.Stdout, "bad %s %d %q: %s\n", b.Part, b.Index, b.Path, b.Error)
	}
	if out.Unused != "" {
		fmt.Fprintf(a.Env.Stdout, "not used and not read: %s\n", show.Foreign(out.Unused))
	}
	damaged := ""
	if n := len(out.LeftOut); n > 0 {
		damaged = fmt.Sprintf("; %s, whose samples were not read", show.Count(n, "damaged part"))
	}
	_, err := fmt.Fprintf(a.Env.Stdout, "%s: %d samples read in %.1f s, %d bad%s\n", out.Dataset, out.Samples,
		out.Seconds, len(out.Bad), damaged)
	return err
}
