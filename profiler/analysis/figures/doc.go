// Package figures draws what package analysis has found: one PNG and one SVG for each figure.
//
//	drawn, err := figures.Comparison(dir, comparison) // dir exists; files are dir/throughput.png, dir/throughput.svg, …
//	drawn, err := figures.Overview(dir, comparisons)
//
// It returns what it has drawn, with captions, for analysis.Study.Report. A figure for which nothing is known is left out.
//
// Colours are those of Okabe and Ito, which stay apart for readers who see fewer colours; lines differ in their dashes too, and bars carry their values, so that
// figures survive a black-and-white printer. Whiskers are the confidence intervals of the estimates. Fonts are built in.
package figures
