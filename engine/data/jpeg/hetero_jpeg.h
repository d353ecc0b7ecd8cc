/* The C ABI of libhetero_jpeg.so: JPEG decoding through libturbojpeg.
 *
 * The library exports one function, hetero_jpeg_get_api. It returns a table of functions, or NULL for an unknown
 * version. Only one thread at a time may use a decoder; different decoders are independent. Functions return 0 on
 * success. Otherwise they write a NUL-terminated message to error. No exception leaves the library.
 */
#ifndef HETERO_JPEG_H
#define HETERO_JPEG_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HETERO_JPEG_VERSION 5

typedef struct hetero_jpeg_decoder hetero_jpeg_decoder;

/* Weights of one axis:
 *
 *     output[k] = (sum over i < num[k] of weight[k * width + i] * input[start[k] + i]) / 2^22, rounded
 *
 * There are count outputs. The weights of an output are not negative, and their sum is about 2^22. */
typedef struct hetero_taps {
  const int32_t *start, *num, *weight;
  int32_t count, width;
} hetero_taps;

typedef struct hetero_jpeg_api {
  uint32_t version; /* HETERO_JPEG_VERSION */

  /* Returns the path of the libturbojpeg in use, or its name if the path is unknown. */
  const char *(*library)(void);

  int32_t (*create)(hetero_jpeg_decoder **decoder, char *error, size_t error_bytes);
  void (*destroy)(hetero_jpeg_decoder *decoder);

  /* Decodes to 8-bit RGB, (height, width, 3) without padding. The width and the height are divided by denominator (1,
   * 2, 4 or 8) and rounded up. pixel_bytes must equal the size of the result.
   *
   * Every warning of libturbojpeg is an error, because libturbojpeg keeps only the text of the first warning. This
   * warning may be harmless, and hide a later error.
   *
   * After an error, the decoder must be destroyed: libturbojpeg would expect the rest of a damaged header in the next
   * image. The tables of an image remain in the decoder. If the next image has no tables, the decoder uses them again.
   */
  int32_t (*decode)(hetero_jpeg_decoder *decoder, const uint8_t *data, size_t data_bytes, int32_t denominator,
                    uint8_t *pixels, size_t pixel_bytes, char *error, size_t error_bytes);

  /* Resamples src (height, src_width, 3) along rows, then along columns, to dst (y->count, x->count, 3). src has
   * src_bytes bytes. The intermediate result is rounded to bytes, and stored in the buffer `rows` (number of input rows
   * that y reads, x->count, 3). */
  void (*resample)(uint8_t *dst, const uint8_t *src, size_t src_bytes, int32_t src_width, const hetero_taps *x,
                   const hetero_taps *y, uint8_t *rows);
} hetero_jpeg_api;

const hetero_jpeg_api *hetero_jpeg_get_api(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif
