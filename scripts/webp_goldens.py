#!/usr/bin/env python3
"""Writes engine/data/webp/testdata: small WebP images of every usual kind, each with the pixels that Pillow decodes
(NAME.rgb: the result of Image.convert("RGB")). The script needs Pillow and numpy. $CWEBP is the path of cwebp of libwebp;
without it, the script writes no images with simple filters and no near-lossless ones. The tests have none of these."""
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from PIL import Image

out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "engine/data/webp/testdata")
out.mkdir(parents=True, exist_ok=True)


def photograph(width, height, noise=24):
    """Smooth colours with noise and a sharp edge."""
    random = np.random.default_rng(width * height)
    small = Image.fromarray(random.integers(0, 256, (4, 5, 3), np.uint8)).resize((width, height), Image.BICUBIC)
    pixels = np.asarray(small) + random.normal(0, noise, (height, width, 3))
    pixels[height // 3:, width // 2:] = 255 - pixels[height // 3:, width // 2:]
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def record(name):
    (out / (name + ".rgb")).write_bytes(Image.open(out / name).convert("RGB").tobytes())


def save(name, image, **options):
    image.save(out / name, **options)
    record(name)


odd = photograph(61, 47)
alpha = odd.convert("RGBA")
alpha.putalpha(Image.fromarray((np.arange(61 * 47) * 5 % 256).astype(np.uint8).reshape(47, 61)))
for quality in (0, 50, 100):
    for method in (0, 6):
        save(f"lossy-{quality}-{method}.webp", odd, quality=quality, method=method)
save("lossy-alpha.webp", alpha, quality=70, alpha_quality=40)
save("lossless-6.webp", photograph(131, 97, 8), lossless=True, quality=100, method=6)
save("lossless-0.webp", odd, lossless=True, quality=0, method=0)
save("lossless-alpha.webp", alpha, lossless=True, exact=True)
save("lossless-grey.webp", odd.convert("L"), lossless=True)
for colours in (2, 4, 16, 200):
    save(f"palette-{colours}.webp", odd.quantize(colours).convert("RGB"), lossless=True, quality=100, method=6)
for width, height in ((1, 1), (2, 1), (1, 2), (3, 3), (16, 16), (17, 33)):
    image = photograph(width, height)
    save(f"lossy-{width}x{height}.webp", image, quality=80)
    save(f"lossless-{width}x{height}.webp", image, lossless=True)
save("animated-lossy.webp", odd, save_all=True, append_images=[photograph(61, 47, 3)], quality=60)
corner = Image.new("RGBA", odd.size)
corner.paste(odd.crop((10, 8, 41, 35)), (10, 8))
for kind, options in (("lossy", {"quality": 60}), ("lossless", {"lossless": True})):
    save(f"animated-corner-{kind}.webp", corner, save_all=True, append_images=[alpha], **options)
if "CWEBP" in os.environ:
    with tempfile.TemporaryDirectory() as work:
        source = pathlib.Path(work) / "odd.ppm"
        odd.save(source)
        for name, options in (("simple-filter", ["-nostrong", "-f", "60", "-sharpness", "3"]),
                              ("strong-filter", ["-strong", "-f", "100", "-sharpness", "7", "-segments", "4"]),
                              ("near-lossless", ["-near_lossless", "40"])):
            subprocess.run([os.environ["CWEBP"], "-quiet", "-q", "30", *options, source, "-o", out / (name + ".webp")],
                           check=True)
            record(name + ".webp")
