// Package drawing contains the common style of all figures of this module: frame, fonts, colours and axis labels. It
// writes figures to PNG and SVG files, which replace existing files atomically.
//
// The colours are the palette of Okabe and Ito, which colour-blind readers can distinguish.
package drawing
