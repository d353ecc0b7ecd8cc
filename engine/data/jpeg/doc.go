// Package jpeg decodes JPEG images to RGB bytes.
//
// It uses libturbojpeg through libhetero_jpeg.so, which is built from src/ by CMake and opened at run time. Without
// this library, it decodes in Go, at about half the speed. Both give the same pixels, at full and at reduced size:
// those of Pillow with libjpeg-turbo 3. Only libturbojpeg reads images with arithmetic coding, and only libturbojpeg 3
// reads images with lossless coding. Otherwise, the error of such an image states this and implements Unavailable.
// InUse reports the decoder in use and the reason.
//
// Both decoders refuse the same damaged images, and give the same pixels for all other damaged images. Ranks with
// different decoders therefore train on the same samples. For this reason, Go also decodes the images for which
// libturbojpeg returns a warning or an error, and those for which frame.unequal returns true. It accepts damage for
// which libturbojpeg returns no warning. Images with coefficients that exceed 16 bits are an exception: Go gives the
// pixels of libturbojpeg on x86-64 with SSE2 or AVX2.
//
// Type picture is the decoder in Go: picture.go reads the segments, scan.go and progressive.go read the coefficients,
// inverse.go transforms these to samples, and upsample.go converts the samples to pixels.
//
// If $HETERO_LIB_DIR is set, the package searches this folder for libhetero_jpeg.so. Otherwise it searches build/lib,
// lib and ../lib/hetero-train, relative to the folder of the executable.
//
// Only one goroutine at a time may use a Decoder. Decode allocates memory for the size that the header states. The
// caller must therefore first read the Header, and refuse images that are too large. Every other error of this package
// means that the image is corrupt.
package jpeg
