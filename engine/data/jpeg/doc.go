// Package jpeg decodes JPEG images to RGB bytes.
//
// It uses libturbojpeg through libhetero_jpeg.so, which is built from src/ by CMake and opened at run time. Without
// this library, it uses image/jpeg of the standard library. image/jpeg is several times slower, cannot decode at
// reduced size, and rounds differently: values differ by up to 3 of 255 levels. Colours are interpolated as in
// libjpeg. It refuses some subsamplings of images with four inks (CMYK). InUse reports the library in use and the
// reason.
//
// If $HETERO_LIB_DIR is set, the package searches this folder for libhetero_jpeg.so. Otherwise it searches build/lib,
// lib and ../lib/hetero-train, relative to the folder of the executable.
//
// Only one goroutine at a time may use a Decoder. Decode allocates memory for the size that the header states. The
// caller must therefore first read the Header, and refuse images that are too large. Every error of this package
// means that the image is corrupt.
package jpeg
