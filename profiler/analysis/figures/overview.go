package figures

import (
	"fmt"
	"slices"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/hetero-train/hetero-train/profiler/analysis"
	"github.com/hetero-train/hetero-train/profiler/drawing"
)

// Overview draws the known speed-ups of all comparisons into dir/speedups, with one group of bars per comparison. If
// there is only one comparison, it draws nothing, because the figures of that comparison show the same values.
func Overview(dir string, all []*analysis.Comparison) ([]analysis.Figure, error) {
	var groups []*analysis.Comparison
	for _, c := range all {
		if len(c.Policies) > 1 && c.Policies[1].Speedup.Known() {
			groups = append(groups, c)
		}
	}
	if len(groups) < 2 {
		return nil, nil
	}
	const barWidth = 0.2 // width of a bar; the distance between groups is 1, so four policies leave a gap
	p := drawing.NewPlot("Speed-up over none", "", "speed-up (ratio)")
	whole := max(drawing.Width, vg.Length(len(groups))*4*vg.Centimeter)
	names, top, policies := make([]string, len(groups)), 1.0, []string(nil)
	for i, c := range groups {
		names[i] = fmt.Sprintf("%s\n%s\nbatch %d", c.Model, c.Scenario, c.BatchSize)
		for j, policy := range c.Policies {
			if !policy.Speedup.Known() {
				continue
			}
			x := float64(i) + (float64(j)-float64(len(c.Policies)-1)/2)*barWidth
			if err := addBar(p, bar{policy: policy.Policy, estimate: policy.Speedup}, x,
				whole*barWidth*0.6/vg.Length(len(groups)), vg.Points(8), "%.2f"); err != nil {
				return nil, fmt.Errorf("draw speed-ups: %w", err)
			}
			top = max(top, policy.Speedup.High)
			if !slices.Contains(policies, policy.Policy) {
				policies = append(policies, policy.Policy)
			}
		}
	}
	for _, policy := range analysis.OrderPolicies(policies) {
		p.Legend.Add(policy, swatch{policy})
	}
	p.NominalX(names...)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -0.6, float64(len(groups))-0.4, 0, 1.35*top
	p.Legend.Left, p.Legend.ThumbnailWidth = true, vg.Points(14)
	if err := drawing.Save(dir, "speedups", whole, drawing.Height, p); err != nil {
		return nil, err
	}
	return []analysis.Figure{
		{Title: "Speed-up over equal shares", Caption: "Each group is one comparison.", Path: "speedups.png"}}, nil
}

// swatch shows the colour of a policy in a legend.
type swatch struct{ policy string }

// Thumbnail implements plot.Thumbnailer.
func (s swatch) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(colorOf(s.policy), []vg.Point{{X: c.Min.X, Y: c.Min.Y}, {X: c.Min.X, Y: c.Max.Y},
		{X: c.Max.X, Y: c.Max.Y}, {X: c.Max.X, Y: c.Min.Y}})
}
