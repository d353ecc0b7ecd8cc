#!/usr/bin/env python3
"""Makes engine/data/pixels/testdata/goldens.json: results of torchvision's operations on a few small Pillow images.

    python3 -m venv .venv && .venv/bin/pip install torch torchvision pillow numpy
    .venv/bin/python scripts/augment_goldens.py [--photo PHOTO.jpg …]

Run the script only to add an operation: the tests need neither Python nor Pillow. Each case is (image, operation, value).
The value is the argument of torchvision's functional transform; for geometry, the argument that its RandAugment passes.
"""

import argparse
import base64
import json
import pathlib

import numpy as np
import PIL
import torchvision
import torchvision.transforms.functional as F
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.autoaugment import _apply_op

WIDTH, HEIGHT = 15, 11


def images(photos):
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    rng = np.random.default_rng(1)
    waves = np.stack([128 + 120 * np.sin(x / 3 + c) * np.cos(y / (2 + c)) for c in range(3)], -1)
    yield "waves", np.clip(waves + rng.normal(0, 6, waves.shape), 0, 255).astype(np.uint8)
    yield "noise", rng.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    dull = np.stack([100 + (x + y) // 3, 60 + x // 2, np.full_like(x, 77)], -1)  # little contrast, one flat channel
    yield "dull", dull.astype(np.uint8)
    for path in photos:
        yield pathlib.Path(path).stem, np.asarray(Image.open(path).convert("RGB").resize((WIDTH, HEIGHT)))


def operations():
    for v in (0.0, 0.37, 1.0, 1.21, 1.9):
        yield "brightness", v, lambda i, v: F.adjust_brightness(i, v)
        yield "contrast", v, lambda i, v: F.adjust_contrast(i, v)
        yield "saturation", v, lambda i, v: F.adjust_saturation(i, v)
        yield "sharpness", v, lambda i, v: F.adjust_sharpness(i, v)
    for v in (-0.5, -0.13, 0.0, 0.1, 0.4):
        yield "hue", v, lambda i, v: F.adjust_hue(i, v)
    for v in (1, 4, 7, 8):
        yield "posterize", v, lambda i, v: F.posterize(i, v)
    for v in (0.0, 100.5, 178.0, 255.0):
        yield "solarize", v, lambda i, v: F.solarize(i, v)
    yield "autocontrast", 0, lambda i, v: F.autocontrast(i)
    yield "equalize", 0, lambda i, v: F.equalize(i)
    near = InterpolationMode.NEAREST
    for name, values in (("ShearX", (-0.3, 0.09, 0.21)), ("ShearY", (-0.17, 0.3)), ("TranslateX", (-5.7, 3.9)),
                         ("TranslateY", (-2.0, 6.1)), ("Rotate", (-30.0, 9.0, 17.3))):
        for v in values:
            yield name, v, lambda i, v, name=name: _apply_op(i, name, v, near, None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photo", nargs="*", default=[], help="photographs, scaled down")
    out = pathlib.Path(__file__).resolve().parent.parent / "engine/data/pixels/testdata/goldens.json"
    args = parser.parse_args()
    encode = lambda a: base64.b64encode(np.ascontiguousarray(a).tobytes()).decode()
    record = {"made_with": f"torchvision {torchvision.__version__}, Pillow {PIL.__version__}", "width": WIDTH,
              "height": HEIGHT,
              "images": {}, "cases": []}
    for name, array in images(args.photo):
        record["images"][name] = encode(array)
        for op, value, apply in operations():
            record["cases"].append({"image": name, "op": op, "value": value,
                                    "want": encode(np.asarray(apply(Image.fromarray(array), value)))})
    out.parent.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(c) for c in record.pop("cases"))
    head = json.dumps(record, indent=1)[:-2]
    out.write_text(f'{head},\n "cases": [\n{lines}\n]}}\n')
    print(f"{out}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
