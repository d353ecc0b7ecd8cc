// Package drawing contains what all figures of this module share: frame, fonts, colours, axis labels, and files in PNG
// and SVG that replace former ones as a whole.
//
// The colours are the palette of Okabe and Ito, which colour-blind readers can distinguish.
package drawing
