// Package figures draws the results of package analysis: one PNG and one SVG per figure.
//
//	drawn, err := figures.Comparison(dir, comparison) // dir exists; files are dir/throughput.png, dir/throughput.svg, …
//	drawn, err := figures.Overview(dir, comparisons)
//
// Both return the figures with captions, for analysis.Study.Report. They omit figures without known values. Errors are
// those of drawing and writing files.
//
// The colours are those of Okabe and Ito, which colour-blind readers can distinguish. Lines also differ in their
// dashes, and bars show their values, so figures are readable in black and white. Whiskers are the confidence intervals
// of the estimates. Fonts are built in.
package figures
