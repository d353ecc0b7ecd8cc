"""Prints the expected values of TestResizedCropHasTorchvisionsDistribution: means over many draws of the sampling
scheme that torchvision documents for RandomResizedCrop, vectorised with numpy.

    pip install numpy && python3 resized_crop.py
"""
import numpy

W, H, DRAWS = 500, 375, 40_000_000
random = numpy.random.default_rng(0)
shares, ratios, n = 0.0, 0.0, 0
while n < DRAWS:
    # Draws that do not fit are repeated; ten consecutive failures do not happen on this image.
    target = W * H * random.uniform(0.08, 1, 1_000_000)
    ratio = numpy.exp(random.uniform(numpy.log(3 / 4), numpy.log(4 / 3), 1_000_000))
    w, h = numpy.rint(numpy.sqrt(target * ratio)), numpy.rint(numpy.sqrt(target / ratio))
    fits = (w <= W) & (h <= H)
    w, h = w[fits], h[fits]
    shares, ratios, n = shares + (w * h).sum() / (W * H), ratios + numpy.log(w / h).sum(), n + len(w)
print(f"share {shares / n:.5f} log ratio {ratios / n:.5f}")
