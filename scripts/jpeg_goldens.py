#!/usr/bin/env python3
"""Writes engine/data/jpeg/testdata: small JPEG images with every usual subsampling, each with the pixels (NAME.rgb) that
Pillow, with libjpeg-turbo, decodes. The script needs Pillow and numpy."""
import pathlib
import sys

import numpy as np
from PIL import Image

out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "engine/data/jpeg/testdata")
out.mkdir(parents=True, exist_ok=True)
random = np.random.default_rng(1)


def picture(w, h):
    """Returns an image with edges and noise, so that every rounding of a decoder shows."""
    y, x = np.mgrid[0:h, 0:w]
    waves = np.stack([127 + 100 * np.sin(x / 7 + y / 11), 127 + 100 * np.cos(x / 5 - y / 9), (x * 3 + y * 5) % 256], -1)
    return Image.fromarray((waves + random.normal(0, 25, (h, w, 3))).clip(0, 255).astype(np.uint8))


def expect(name):
    (out / (name + ".rgb")).write_bytes(Image.open(out / name).convert("RGB").tobytes())


def write(name, image, **options):
    image.save(out / name, quality=85, **options)
    expect(name)


for w, h in ((37, 27), (16, 16), (5, 3), (3, 9), (1, 1)):
    for name, factors in (("444", 0), ("422", 1), ("420", 2)):
        write(f"{name}-{w}x{h}.jpg", picture(w, h), subsampling=factors)
    # Pillow does not write 4:4:0. The blocks of a 4:2:2 image are also those of a 4:4:0 image with the sides exchanged.
    stored = bytearray((out / f"422-{w}x{h}.jpg").read_bytes())
    at = stored.index(b"\xff\xc0") + 5
    stored[at:at + 4], stored[at + 6] = stored[at + 2:at + 4] + stored[at:at + 2], 0x12
    (out / f"440-{h}x{w}.jpg").write_bytes(stored)
    expect(f"440-{h}x{w}.jpg")
write("grey-37x27.jpg", picture(37, 27).convert("L"))
write("progressive-37x27.jpg", picture(37, 27), subsampling=2, progressive=True)
write("restart-37x27.jpg", picture(37, 27), subsampling=2, restart_marker_blocks=2)
inks = Image.merge("CMYK", (*picture(37, 27).split(), picture(37, 27).convert("L")))
write("cmyk-37x27.jpg", inks)
write("cmyk420-37x27.jpg", inks, subsampling=2)
adobe = (out / "cmyk-37x27.jpg").read_bytes()
at = adobe.index(b"Adobe") + 11  # Adobe's transform: 2 is YCCK
(out / "ycck-37x27.jpg").write_bytes(adobe[:at] + b"\2" + adobe[at + 1:])
expect("ycck-37x27.jpg")
