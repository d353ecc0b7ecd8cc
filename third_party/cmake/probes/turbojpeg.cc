// Checks that libturbojpeg has everything that engine/data/jpeg/src uses.
#include <turbojpeg.h>

int main() {
  tjhandle handle = tjInitDecompress();
  unsigned char data[4] = {}, pixels[4] = {};
  int width = 0, height = 0, subsampling = 0, colorspace = 0;
  const tjscalingfactor factor{1, 2};
  if (tjDecompressHeader3(handle, data, sizeof data, &width, &height, &subsampling, &colorspace) != 0 &&
      tjGetErrorCode(handle) == TJERR_FATAL)
    return tjGetErrorStr2(handle) != nullptr;
  const bool cmyk = colorspace == TJCS_CMYK || colorspace == TJCS_YCCK;
  const int status = tjDecompress2(handle, data, sizeof data, pixels, TJSCALED(width, factor), 3, height, TJPF_RGB,
                                   TJFLAG_ACCURATEDCT);
  return tjDestroy(handle) + status + cmyk;
}
