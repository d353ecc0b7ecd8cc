package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/images"
)

// Inspected is the output of command data inspect.
type Inspected struct {
	Dataset     string     `json:"dataset"`
	Path        string     `json:"path,omitempty"`
	Classes     int        `json:"classes"`
	MultiLabel  bool       `json:"multi_label,omitempty"` // a sample may belong to any number of classes
	Fingerprint string     `json:"fingerprint,omitempty"` // digest of the names, labels and sizes of the samples
	Parts       []dataPart `json:"parts"`
	// origin of the evaluation part; "" if it was split off from the training samples
	EvalFrom string `json:"evaluation_from,omitempty"`
	Unused   string `json:"not_used,omitempty"` // a part of the data that training does not use
	// damaged parts, which data.corrupt = "skip" leaves out
	LeftOut []leftOutPart `json:"left_out,omitempty"`
}

// dataPart describes the training or evaluation samples.
type dataPart struct {
	Part    string         `json:"part"`
	Samples int            `json:"samples"`
	ByClass map[string]int `json:"samples_by_class"`
	// The following fields describe the samples whose headers were read. Looked is their number.
	Looked     int    `json:"looked_at"`
	Width      Spread `json:"width_pixels"`
	Height     Spread `json:"height_pixels"`
	Bytes      Spread `json:"bytes"`
	TotalBytes int64  `json:"bytes_estimated,omitempty"` // estimated size of all samples
	// number of samples by format and color model: "jpeg rgb": 12
	Kinds        map[string]int `json:"kinds"`
	Orientations map[string]int `json:"exif_orientations,omitempty"`
	Unreadable   int            `json:"unreadable,omitempty"`
	FirstFault   string         `json:"first_fault,omitempty"`
}

func newDataInspect(a *cli.App) *cobra.Command {
	f := new(dataFlags)
	look := 0
	cmd := &cobra.Command{
		Use:   "inspect [PATH]",
		Short: "Show format, samples, classes and sizes of a data set",
		Long: `Show the contents of a data set: its parts, samples and classes, and the number of samples per class.

From each part, the command also reads the headers of some samples (--look gives the number) and shows image sizes, formats, colours
and EXIF orientations. The samples are a random choice that is the same every time. To read all samples in full, use data verify.`,
		Example: `  hetero-train data inspect /data/flowers
  hetero-train data inspect '/data/shards/train-{000000..000146}.tar' --look 10000 --json
  hetero-train data inspect --dataset cifar10
  hetero-train data inspect shakespeare/
  hetero-train data inspect other.bin --set data.token_bytes=4
  hetero-train data inspect reviews.tsv --set data.text_column=review --set data.vocab_file=vocab.txt`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if look < 1 {
				return exit.Usagef("--look: got %d, want at least 1", look)
			}
			if namesLabelled(a, args) {
				return showLabelled(cmd.Context(), a, args[0], f.json)
			}
			if namesTokens(cmd, args) {
				return inspectTokens(cmd.Context(), a, args[0], f.json)
			}
			return inspectData(cmd.Context(), a, args, f, look)
		},
	}
	addDataFlags(cmd, a, f)
	cmd.Flags().IntVar(&look, "look", 1000, "number of `samples` in each part whose headers the command reads")
	return cmd
}

func inspectData(ctx context.Context, a *cli.App, args []string, f *dataFlags, look int) error {
	set, cfg, err := openNamed(ctx, a, args, false)
	if err != nil {
		return exit.Classify(ctx, err)
	}
	defer set.Close() // no error: the file was only read
	out := Inspected{Dataset: set.Name, Path: cfg.Data.Path, Classes: len(set.Classes()), MultiLabel: set.Sets != nil,
		Fingerprint: set.Fingerprint, LeftOut: leftOutOf(set)}
	out.EvalFrom, out.Unused = set.EvalFrom()
	for _, part := range partsOf(set) {
		p, err := inspectPart(ctx, part.name, part.ds, set.Sets, look)
		if err != nil {
			return exit.Classify(ctx, err)
		}
		out.Parts = append(out.Parts, p)
	}
	if f.json {
		return show.JSON(a.Env.Stdout, out)
	}
	return showInspected(a.Env.Stdout, out)
}

// inspectPart counts the labels of a part and reads the headers of some samples. If samples can have several labels,
// sets contains the labels, otherwise it is nil.
func inspectPart(ctx context.Context, name string, ds data.Dataset, sets *data.LabelSets, look int) (dataPart, error) {
	p := dataPart{Part: name, Samples: ds.Len(), ByClass: map[string]int{}, Kinds: map[string]int{},
		Orientations: map[string]int{}}
	names := ds.Classes()
	if sets != nil {
		names = sets.Names
	}
	for _, class := range names {
		p.ByClass[class] = 0
	}
	for i := range ds.Len() {
		if err := ctx.Err(); err != nil && i%(1<<16) == 0 {
			return p, err
		}
		label := ds.Label(i)
		if sets == nil {
			p.ByClass[names[label]]++
			continue
		}
		for _, one := range sets.Sets[label] {
			p.ByClass[names[one]]++
		}
	}
	r, err := ds.NewReader()
	if err != nil {
		return p, err
	}
	defer r.Close() // no error: the file was only read
	chosen := someOf(ds.Len(), look)
	var widths, heights, sizes []int
	for _, i := range chosen {
		if err := ctx.Err(); err != nil {
			return p, err
		}
		d, bytes, err := headerOf(r, i)
		var fault *data.Fault
		if errors.As(err, &fault) {
			if p.Unreadable++; p.Unreadable == 1 {
				p.FirstFault = err.Error()
			}
			continue
		}
		if err != nil {
			return p, err
		}
		widths, heights, sizes = append(widths, d.Width), append(heights, d.Height), append(sizes, bytes)
		kind := strings.TrimSpace(d.Format + " " + d.Colour)
		if d.Bits > 8 {
			kind += fmt.Sprintf(" %d bits", d.Bits)
		}
		p.Kinds[kind]++
		if d.Orientation > images.Upright {
			p.Orientations[fmt.Sprint(d.Orientation)]++
		}
	}
	p.Looked = len(chosen)
	p.Width, p.Height, p.Bytes = spreadOf(widths), spreadOf(heights), spreadOf(sizes)
	if len(sizes) > 0 {
		sum := 0
		for _, n := range sizes {
			sum += n
		}
		p.TotalBytes = int64(float64(sum) / float64(len(sizes)) * float64(ds.Len()))
	}
	return p, nil
}

// someOf chooses min(n, limit) different numbers from 0 to n-1 and returns them in ascending order. The result depends
// only on n and limit.
func someOf(n, limit int) []int {
	// If n is at most few, someOf shuffles the numbers from 0 to n-1. For a larger n, this would need too much memory.
	// someOf then draws random numbers until it has enough different ones. If limit exceeds n/2, it takes the first
	// numbers instead.
	const few = 1 << 20
	random := rand.New(rand.NewPCG(0, 0))
	var chosen []int
	switch {
	case n <= few:
		chosen = random.Perm(n)[:min(limit, n)]
	case limit > n/2:
		for i := range min(limit, n) {
			chosen = append(chosen, i)
		}
	default:
		drawn := make(map[int]struct{}, limit)
		for len(drawn) < limit {
			drawn[random.IntN(n)] = struct{}{}
		}
		chosen = slices.Collect(maps.Keys(drawn))
	}
	slices.Sort(chosen) // ascending: the order in which the files contain the samples
	return chosen
}

// headerOf reads the header of a sample. If the sample is not a file, it reads the whole sample.
func headerOf(r data.Reader, i int) (images.Description, int, error) {
	if e, ok := r.(data.Encoded); ok {
		contents, err := e.Contents(i)
		if err == nil {
			d, err := images.Describe(contents)
			if err != nil {
				err = &data.Fault{Op: "read header of sample", Index: i, Err: err}
			}
			return d, len(contents), err
		}
		if !errors.Is(err, data.ErrNotEncoded) {
			return images.Description{}, 0, err
		}
	}
	var img data.Image
	err := r.Read(i, nil, &img)
	return images.Description{Format: "pixels", Width: img.FullWidth, Height: img.FullHeight, Colour: "rgb", Bits: 8},
		len(img.Pix), err
}

func showInspected(w io.Writer, in Inspected) error {
	several := ""
	if in.MultiLabel {
		several = ", any number of them per sample"
	}
	fmt.Fprintf(w, "%s %s: %d classes%s\n", in.Dataset, show.Foreign(in.Path), in.Classes, several)
	if in.EvalFrom != "" {
		fmt.Fprintf(w, "evaluation on %s\n", show.Foreign(in.EvalFrom))
	}
	if in.Unused != "" {
		fmt.Fprintf(w, "not used: %s\n", show.Foreign(in.Unused))
	}
	for _, l := range in.LeftOut {
		fmt.Fprintln(w, l)
	}
	for _, p := range in.Parts {
		counts := slices.Sorted(maps.Values(p.ByClass))
		fmt.Fprintf(w, "\n%s: %d samples, %d to %d per class, median %d\n", p.Part, p.Samples, counts[0],
			counts[len(counts)-1], counts[len(counts)/2])
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintf(t, "  of %d headers\tsmallest\tmedian\tlargest\n", p.Looked)
		for _, row := range []struct {
			name string
			s    Spread
		}{{"width, pixels", p.Width}, {"height, pixels", p.Height}, {"bytes", p.Bytes}} {
			fmt.Fprintf(t, "  %s\t%d\t%d\t%d\n", row.name, row.s.Min, row.s.Median, row.s.Max)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for _, kind := range slices.Sorted(maps.Keys(p.Kinds)) {
			fmt.Fprintf(w, "  %d %s\n", p.Kinds[kind], show.Foreign(kind))
		}
		for _, o := range slices.Sorted(maps.Keys(p.Orientations)) {
			fmt.Fprintf(w, "  %d with EXIF orientation %s (data.exif_orientation)\n", p.Orientations[o], o)
		}
		if p.Unreadable > 0 {
			fmt.Fprintf(w, "  %d headers cannot be read; the first: %s\n", p.Unreadable, show.Foreign(p.FirstFault))
		}
		fmt.Fprintf(w, "  about %.1f MB in total\n", float64(p.TotalBytes)/1e6)
	}
	return nil
}
