// jpeg.cc: JPEG decoding for libhetero_jpeg.so; hetero_jpeg.h describes its interface. It uses the TurboJPEG API 2,
// which versions 2 and 3 of libjpeg-turbo provide.
#include "hetero_jpeg.h"
#include "resample.h"

#include <dlfcn.h>
#include <turbojpeg.h>

#include <cstdio>
#include <new>
#include <vector>

struct hetero_jpeg_decoder {
  tjhandle handle;
};

namespace {

int32_t fail(char *error, size_t error_bytes, const char *text) {
  if (error != nullptr && error_bytes > 0) {
    std::snprintf(error, error_bytes, "%s", text);
  }
  return 1;
}

// Pixels in memory. A pixel has three bytes for RGB, or four for inks (CMYK).
struct surface {
  uint8_t *pixels;
  int width, height, format; // a TJPF
  int pitch() const { return width * tjPixelSize[format]; }
};

// Converts inks to RGB with Pillow's arithmetic. Like Pillow, it treats the bytes as inverted: 255 means no ink.
void rgb_of_inks(uint8_t *rgb, const uint8_t *inks, size_t pixels) {
  for (size_t i = 0; i < pixels; i++, rgb += 3, inks += 4) {
    int light = inks[3];
    for (int c = 0; c < 3; c++) {
      int product = (255 - inks[c]) * light + 128;
      rgb[c] = static_cast<uint8_t>(light - (((product >> 8) + product) >> 8)); // product / 255, rounded
    }
  }
}

const char *library() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void *>(&tjInitDecompress), &info) != 0 && info.dli_fname != nullptr) {
    return info.dli_fname;
  }
  return "libturbojpeg";
}

int32_t create(hetero_jpeg_decoder **decoder, char *error, size_t error_bytes) {
  tjhandle handle = tjInitDecompress();
  if (handle == nullptr) {
    return fail(error, error_bytes, tjGetErrorStr2(nullptr));
  }
  *decoder = new (std::nothrow) hetero_jpeg_decoder{handle};
  if (*decoder == nullptr) {
    tjDestroy(handle);
    return fail(error, error_bytes, "out of memory");
  }
  return 0;
}

void destroy(hetero_jpeg_decoder *decoder) {
  if (decoder != nullptr) {
    tjDestroy(decoder->handle);
    delete decoder;
  }
}

// Size of an image.
struct shape {
  int width, height; // pixels
  bool inks;         // the image has four inks (CMYK, YCCK)
};

int32_t header(hetero_jpeg_decoder *d, const uint8_t *data, size_t data_bytes, shape *shape, char *error,
               size_t error_bytes) {
  int width = 0, height = 0, subsampling = -1, colorspace = -1;
  int status = tjDecompressHeader3(d->handle, data, data_bytes, &width, &height, &subsampling, &colorspace);
  // This API has no name for some kinds of subsampling, but decodes them. It sets the size in spite of the error.
  bool unnamed = width > 0 && height > 0 && subsampling < 0;
  if (status != 0 && tjGetErrorCode(d->handle) == TJERR_FATAL && !unnamed) {
    return fail(error, error_bytes, tjGetErrorStr2(d->handle));
  }
  if (width < 1 || height < 1) {
    return fail(error, error_bytes, "the image has no pixels");
  }
  *shape = {width, height, colorspace == TJCS_CMYK || colorspace == TJCS_YCCK};
  return 0;
}

int32_t decode_to(tjhandle handle, const uint8_t *data, size_t data_bytes, const surface &to, char *error,
                  size_t error_bytes) {
  if (tjDecompress2(handle, data, data_bytes, to.pixels, to.width, to.pitch(), to.height, to.format,
                    TJFLAG_ACCURATEDCT) == 0) {
    return 0;
  }
  return fail(error, error_bytes, tjGetErrorStr2(handle));
}

int32_t decode(hetero_jpeg_decoder *d, const uint8_t *data, size_t data_bytes, int32_t denominator, uint8_t *pixels,
               size_t pixel_bytes, char *error, size_t error_bytes) {
  shape h{};
  if (int32_t status = header(d, data, data_bytes, &h, error, error_bytes)) {
    return status;
  }
  if (denominator != 1 && denominator != 2 && denominator != 4 && denominator != 8) {
    return fail(error, error_bytes, "denominator: want 1, 2, 4 or 8");
  }
  tjscalingfactor factor{1, denominator};
  int width = TJSCALED(h.width, factor), height = TJSCALED(h.height, factor);
  size_t area = static_cast<size_t>(width) * static_cast<size_t>(height);
  if (pixel_bytes != 3 * area) {
    return fail(error, error_bytes, "wrong size of the pixel buffer");
  }
  if (!h.inks) {
    return decode_to(d->handle, data, data_bytes, {pixels, width, height, TJPF_RGB}, error, error_bytes);
  }
  std::vector<uint8_t> inks;
  try {
    inks.resize(4 * area);
  } catch (const std::bad_alloc &) {
    return fail(error, error_bytes, "out of memory");
  }
  surface to{inks.data(), width, height, TJPF_CMYK};
  int32_t status = decode_to(d->handle, data, data_bytes, to, error, error_bytes);
  if (status == 0) {
    rgb_of_inks(pixels, inks.data(), area);
  }
  return status;
}

} // namespace

extern "C" __attribute__((visibility("default"))) const hetero_jpeg_api *hetero_jpeg_get_api(uint32_t version) {
  static const hetero_jpeg_api api = {HETERO_JPEG_VERSION, library, create, destroy, decode, hetero::resample};
  return version == HETERO_JPEG_VERSION ? &api : nullptr;
}
