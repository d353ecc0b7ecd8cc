package drawing

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"image/png"
	"io"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/hetero-train/hetero-train/engine/experiment"
)

const (
	// Width and Height are the usual size of one plot.
	Width, Height = 14 * vg.Centimeter, 9 * vg.Centimeter
	dotsPerInch   = 200
)

// Palette contains the colours of Okabe and Ito, ordered such that neighbours differ strongly.
var Palette = []color.RGBA{
	{0xE6, 0x9F, 0x00, 0xFF}, // orange
	{0x56, 0xB4, 0xE9, 0xFF}, // sky blue
	{0x00, 0x9E, 0x73, 0xFF}, // bluish green
	{0xCC, 0x79, 0xA7, 0xFF}, // reddish purple
	{0x00, 0x72, 0xB2, 0xFF}, // blue
	{0xD5, 0x5E, 0x00, 0xFF}, // vermilion
	{0xF0, 0xE4, 0x42, 0xFF}, // yellow
	{0x00, 0x00, 0x00, 0xFF}, // black
}

// NewPlot returns a plot with the common frame of all figures.
func NewPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	for _, t := range []struct {
		style  *text.Style
		points float64
	}{{&p.Title.TextStyle, 12}, {&p.X.Label.TextStyle, 11}, {&p.Y.Label.TextStyle, 11}, {&p.X.Tick.Label, 10},
		{&p.Y.Tick.Label, 10}, {&p.Legend.TextStyle, 10}} {
		t.style.Font.Variant, t.style.Font.Size = "Sans", vg.Points(t.points)
	}
	p.Title.Padding, p.Legend.ThumbnailWidth, p.Legend.Padding = vg.Points(8), vg.Points(30), vg.Points(2)
	p.X.Tick.Marker, p.Y.Tick.Marker = roundTicks{}, roundTicks{}
	p.Legend.Top = true
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color = color.Gray{0xDD}
	p.Add(grid)
	return p
}

// Save draws a column of plots with aligned axes into dir/name.png and dir/name.svg.
func Save(dir, name string, w, h vg.Length, plots ...*plot.Plot) error {
	if err := File(filepath.Join(dir, name+".png"), w, h, plots...); err != nil {
		return err
	}
	return File(filepath.Join(dir, name+".svg"), w, h, plots...)
}

// ErrFormat is the cause of an error about a file that is neither PNG nor SVG.
var ErrFormat = errors.New("unknown format of a figure")

// CheckFile returns an error if [File] cannot write to path because of its extension.
func CheckFile(path string) error {
	if ext := strings.ToLower(filepath.Ext(path)); ext != ".png" && ext != ".svg" {
		return fmt.Errorf("%w: got %q, want a name that ends in .png or .svg", ErrFormat, path)
	}
	return nil
}

// File draws a column of plots with aligned axes into a PNG or SVG file. The extension of the path determines the
// format.
func File(path string, w, h vg.Length, plots ...*plot.Plot) error {
	if err := CheckFile(path); err != nil {
		return err
	}
	if strings.EqualFold(filepath.Ext(path), ".png") {
		return write(path, PNG(w, h, plots...))
	}
	svg := vgsvg.NewWith(vgsvg.UseWH(w, h), vgsvg.EmbedFonts(true))
	drawColumn(svg, plots)
	return write(path, svg)
}

// Picture is a drawing for a PNG file.
type Picture struct{ *vgimg.Canvas }

// WriteTo encodes the drawing. A higher level of compression would take 50 % more CPU time, for files that are only 1
// to 4 % smaller.
func (p Picture) WriteTo(w io.Writer) (int64, error) {
	var encoded bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&encoded, p.Image()); err != nil {
		return 0, err
	}
	return encoded.WriteTo(w)
}

// PNG draws a column of plots for a PNG file.
func PNG(w, h vg.Length, plots ...*plot.Plot) Picture {
	p := Picture{vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(dotsPerInch))}
	drawColumn(p, plots)
	return p
}

func drawColumn(canvas vg.CanvasSizer, plots []*plot.Plot) {
	rows := make([][]*plot.Plot, len(plots))
	for i, p := range plots {
		rows[i] = []*plot.Plot{p}
	}
	tiles := draw.Tiles{Rows: len(plots), Cols: 1, PadY: vg.Points(10), PadTop: vg.Points(6), PadBottom: vg.Points(4),
		PadLeft: vg.Points(4), PadRight: vg.Points(12)}
	for i, row := range plot.Align(rows, tiles, draw.New(canvas)) {
		plots[i].Draw(row[0])
	}
}

// write replaces the file at path by a drawing.
func write(path string, canvas vg.CanvasWriterTo) error {
	err := experiment.Replace(path, func(w io.Writer) error {
		_, err := canvas.WriteTo(w)
		return err
	})
	if err != nil {
		return fmt.Errorf("draw %s: %w", filepath.Base(path), err)
	}
	return nil
}
