// Package webp decodes the first image of a WebP file to RGB bytes.
//
//	file, err := webp.Parse(contents)            // finds the parts of the file
//	width, height, err := file.Canvas()          // refuse images that are too large before decoding
//	err = decoder.Decode(&file, pix)             // RGB, width x height
//
// It uses libwebp, the library of Pillow, if the system has libwebp.so.7 from version 1.0 on. It opens this library at
// run time, so security fixes of the system's library apply. Without libwebp, or with HETERO_WEBP=go, it uses
// golang.org/x/image, at less than half the speed. InUse reports the decoder in use and the reason.
//
// Both decoders give the pixels of Pillow for the images of testdata: lossy with filters of cwebp's default kind,
// lossless, palettes and animations. No test covers the simple filter and near-lossless images. If libwebp fails, Go
// decodes the image, so no image is refused that Go accepts. The results of the decoders can differ for two kinds of
// damaged images, so ranks compare their decoders:
//
//   - If coefficients of a lossy image exceed 16 bits, the pixels of libwebp depend on the processor.
//   - libwebp accepts some lossless images that Go refuses, and decodes some others to different pixels. In such
//     images, the last pixel lacks bits, or Huffman codes or predictors have a form that encoders do not write.
//
// Both refuse a lossless image with more than 2,600 groups of Huffman codes, because libwebp may need up to 1.3 GB for
// them. Go therefore reads the start of each lossless image before libwebp does.
//
// The alpha channel is not decoded, because images become RGB. Only one goroutine at a time may use a Decoder.
package webp
