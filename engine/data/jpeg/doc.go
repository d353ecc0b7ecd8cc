// Package jpeg decodes JPEG images to RGB bytes.
//
// It uses libturbojpeg through libhetero_jpeg.so (src/, built by CMake, opened at run time), and image/jpeg of the
// standard library where that is missing: several times slower, without scaled decoding, and with pixels that may
// differ by a few steps of 255. Images with four inks (CMYK) and exotic subsampling always go through image/jpeg.
// InUse tells which one is in use and why.
//
// libhetero_jpeg.so is looked for in $HETERO_LIB_DIR, and in build/lib, lib and ../lib/hetero-train beside the program.
//
// A Decoder belongs to one goroutine. The caller reads the Header first and refuses images that are too large: Decode
// allocates what the header asks for. Errors are those of corrupt images.
package jpeg
