// Package jpeg decodes JPEG images to RGB bytes.
//
// It uses libturbojpeg through libhetero_jpeg.so (src/, built by CMake, opened at run time). Without this library it
// uses image/jpeg of the standard library, which is several times slower, cannot decode at reduced size, and gives
// pixels that may differ by a few of 255 steps. Images with four inks (CMYK) or unusual subsampling are always decoded
// by image/jpeg. InUse reports the library in use and the reason.
//
// libhetero_jpeg.so is searched in $HETERO_LIB_DIR, and in build/lib, lib and ../lib/hetero-train relative to the
// folder of the executable.
//
// Only one goroutine at a time may use a Decoder. The caller must first read the Header and refuse images that are too
// large, because Decode allocates the size in the header. Errors mean corrupt images.
package jpeg
