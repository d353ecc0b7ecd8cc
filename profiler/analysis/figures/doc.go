// Package figures draws the results of package analysis: one PNG and one SVG per figure.
//
//	drawn, err := figures.Comparison(dir, comparison) // dir must exist; writes dir/throughput.png, dir/throughput.svg, …
//	drawn, err := figures.Overview(dir, comparisons)
//
// Both functions return the figures with captions, for analysis.Study.Report. They leave out figures without known
// values. They return errors of drawing and of writing files.
//
// The colours are the palette of Okabe and Ito, which colour-blind readers can distinguish. Lines also differ in
// their dashes, and bars show their values, so the figures are readable in black and white. Whiskers show confidence
// intervals. Fonts are built in.
package figures
