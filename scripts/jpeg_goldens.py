#!/usr/bin/env python3
"""Writes engine/data/jpeg/testdata: small JPEG images with every usual subsampling, and the pixels that Pillow, with
libjpeg-turbo, decodes (NAME.rgb). For some images, it also writes the pixels at 1/2, 1/4 and 1/8 of the size
(NAME.2.rgb). The script needs Pillow 12 or newer, and numpy. $CJPEG is the path of cjpeg of libjpeg-turbo 3. Without
it, the script keeps the existing images with arithmetic and with lossless coding."""
import os
import pathlib
import subprocess
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


def write(name, image, quality=85, **options):
    image.save(out / name, quality=quality, **options)
    expect(name)


def reduced(name):
    """Records the pixels that the decoder gives at reduced size."""
    for divisor in (2, 4, 8):
        image = Image.open(out / name)
        full = image.size
        image.draft("RGB", (full[0] // divisor, full[1] // divisor))
        assert image.size == (-(-full[0] // divisor), -(-full[1] // divisor)), name
        (out / f"{name}.{divisor}.rgb").write_bytes(image.convert("RGB").tobytes())


def segments(encoded):
    """Yields the position, the marker and the end of each segment; the bits of a scan belong to it."""
    at = 2
    while at < len(encoded):
        marker, begun = encoded[at + 1], at
        at += 2 if marker == 0xD9 else 2 + int.from_bytes(encoded[at + 2:at + 4], "big")
        while marker == 0xDA and (encoded[at] != 0xFF or encoded[at + 1] == 0 or 0xD0 <= encoded[at + 1] <= 0xD7):
            at += 1
        yield begun, marker, at


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

for quality in (1, 30, 100):  # coefficients with the largest and the smallest quantization factors
    write(f"q{quality}-37x27.jpg", picture(37, 27), quality, subsampling=2)
write("rgb-37x27.jpg", picture(37, 27), keep_rgb=True, subsampling=0)
write("progressive444-37x27.jpg", picture(37, 27), subsampling=0, progressive=True, restart_marker_blocks=3)
for name in ("444-37x27.jpg", "422-37x27.jpg", "420-37x27.jpg", "440-27x37.jpg", "grey-37x27.jpg", "cmyk420-37x27.jpg",
             "progressive-37x27.jpg"):
    reduced(name)
# The blocks of a 4:2:0 image are also those of a 4:1:1 image with units of another form.
stored = bytearray((out / "420-37x27.jpg").read_bytes())
at = stored.index(b"\xff\xc0") + 5
stored[at:at + 4], stored[at + 6] = bytes((0, 13, 0, 75)), 0x41
(out / "411-75x13.jpg").write_bytes(stored)
expect("411-75x13.jpg")
reduced("411-75x13.jpg")
# Motion JPEG omits the usual Huffman tables.
stored = (out / "420-37x27.jpg").read_bytes()
kept = b"".join(stored[begun:end] for begun, marker, end in segments(stored) if marker != 0xC4)
(out / "motion-37x27.jpg").write_bytes(stored[:2] + kept)
expect("motion-37x27.jpg")
# Progressive images without their last scans, whose blocks are smoothed.
stored = (out / "progressive-37x27.jpg").read_bytes()
scans = [end for _, marker, end in segments(stored) if marker == 0xDA]
for count in (1, 2, 5):
    (out / f"first{count}-37x27.jpg").write_bytes(stored[:scans[count - 1]] + b"\xff\xd9")
    expect(f"first{count}-37x27.jpg")
if "CJPEG" in os.environ:  # Pillow reads these images, but does not write them
    image = picture(37, 27)
    pixels = b"P6 37 27 255\n" + image.tobytes()
    for name, options in (("arithmetic", ["-arithmetic"]), ("arithmetic2", ["-arithmetic", "-progressive"]),
                          ("lossless", ["-lossless", "1"])):
        encoded = subprocess.run([os.environ["CJPEG"], *options], input=pixels, capture_output=True, check=True).stdout
        (out / f"{name}-37x27.jpg").write_bytes(encoded)
        expect(f"{name}-37x27.jpg")
    assert (out / "lossless-37x27.jpg.rgb").read_bytes() == image.tobytes()
