package figures

import (
	"fmt"
	"image/color"
	"io"
	"path/filepath"

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
	width, height = 14 * vg.Centimeter, 9 * vg.Centimeter
	dotsPerInch   = 200
)

// palette contains the colours of Okabe and Ito, ordered such that neighbours differ strongly.
var palette = []color.RGBA{
	{0xE6, 0x9F, 0x00, 0xFF}, // orange
	{0x56, 0xB4, 0xE9, 0xFF}, // sky blue
	{0x00, 0x9E, 0x73, 0xFF}, // bluish green
	{0xCC, 0x79, 0xA7, 0xFF}, // reddish purple
	{0x00, 0x72, 0xB2, 0xFF}, // blue
	{0xD5, 0x5E, 0x00, 0xFF}, // vermilion
	{0xF0, 0xE4, 0x42, 0xFF}, // yellow
	{0x00, 0x00, 0x00, 0xFF}, // black
}

// policyStyle contains the style of each policy, which is the same in all figures.
var policyStyle = map[string]struct {
	color  color.RGBA
	dashes []vg.Length
}{
	"none":         {color.RGBA{0x99, 0x99, 0x99, 0xFF}, nil},
	"proportional": {palette[0], []vg.Length{8, 3}},
	"dynamic":      {palette[1], []vg.Length{2, 2}},
	"hybrid":       {palette[2], []vg.Length{8, 3, 2, 3}},
}

func colorOf(policy string) color.RGBA {
	if s, ok := policyStyle[policy]; ok {
		return s.color
	}
	return palette[3]
}

func lineOf(policy string) draw.LineStyle {
	return draw.LineStyle{Color: colorOf(policy), Width: vg.Points(1.6), Dashes: policyStyle[policy].dashes}
}

// rankLine returns the line style of a rank.
func rankLine(rank int) draw.LineStyle {
	dashes := [][]vg.Length{nil, {8, 3}, {2, 2}, {8, 3, 2, 3}}
	return draw.LineStyle{Color: palette[rank%len(palette)], Width: vg.Points(1.6), Dashes: dashes[rank%len(dashes)]}
}

// newPlot returns a plot with the common frame of all figures.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	for _, t := range []struct {
		style  *text.Style
		points float64
	}{{&p.Title.TextStyle, 12}, {&p.X.Label.TextStyle, 11}, {&p.Y.Label.TextStyle, 11}, {&p.X.Tick.Label, 10}, {&p.Y.Tick.Label, 10}, {&p.Legend.TextStyle, 10}} {
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

// save draws a column of plots with aligned axes into dir/name.png and dir/name.svg.
func save(dir, name string, w, h vg.Length, plots ...*plot.Plot) error {
	svg := vgsvg.NewWith(vgsvg.UseWH(w, h), vgsvg.EmbedFonts(true))
	drawColumn(svg, plots)
	if err := write(filepath.Join(dir, name+".png"), pngOf(w, h, plots...)); err != nil {
		return err
	}
	return write(filepath.Join(dir, name+".svg"), svg)
}

// pngOf draws a column of plots for a PNG file.
func pngOf(w, h vg.Length, plots ...*plot.Plot) vgimg.PngCanvas {
	png := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(dotsPerInch))}
	drawColumn(png, plots)
	return png
}

func drawColumn(canvas vg.CanvasSizer, plots []*plot.Plot) {
	rows := make([][]*plot.Plot, len(plots))
	for i, p := range plots {
		rows[i] = []*plot.Plot{p}
	}
	tiles := draw.Tiles{Rows: len(plots), Cols: 1, PadY: vg.Points(10), PadTop: vg.Points(6), PadBottom: vg.Points(4), PadLeft: vg.Points(4), PadRight: vg.Points(12)}
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
