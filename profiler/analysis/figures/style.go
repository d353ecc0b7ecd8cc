package figures

import (
	"image/color"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/hetero-train/hetero-train/profiler/drawing"
)

// policyStyle contains the style of each policy, which is the same in all figures.
var policyStyle = map[string]struct {
	color  color.RGBA
	dashes []vg.Length
}{
	"none":         {color.RGBA{0x99, 0x99, 0x99, 0xFF}, nil},
	"proportional": {drawing.Palette[0], []vg.Length{8, 3}},
	"dynamic":      {drawing.Palette[1], []vg.Length{2, 2}},
	"hybrid":       {drawing.Palette[2], []vg.Length{8, 3, 2, 3}},
}

func colorOf(policy string) color.RGBA {
	if s, ok := policyStyle[policy]; ok {
		return s.color
	}
	return drawing.Palette[3]
}

func lineOf(policy string) draw.LineStyle {
	return draw.LineStyle{Color: colorOf(policy), Width: vg.Points(1.6), Dashes: policyStyle[policy].dashes}
}

// rankLine returns the line style of a rank or a run. Up to 32 lines differ in colour or dashes.
func rankLine(rank int) draw.LineStyle {
	dashes := [][]vg.Length{nil, {8, 3}, {2, 2}, {8, 3, 2, 3}}
	colours := len(drawing.Palette)
	return draw.LineStyle{Color: drawing.Palette[rank%colours], Width: vg.Points(1.6),
		Dashes: dashes[(rank+rank/colours)%len(dashes)]}
}
