"""Writes pillow_resize.json, the golden file of TestResamplingEqualsPillow: results of Pillow for a computed image.

    pip install pillow && python3 pillow_resize.py > pillow_resize.json

Each case crops a box of a (height, width) image, as torchvision's resized_crop does, and resizes it bilinearly.
"""
import json
import zlib

from PIL import Image


def picture(width, height):
    data = bytes((x * 37 + y * 59 + c * 101 + x * y * 7) & 255
                 for y in range(height) for x in range(width) for c in range(3))
    return Image.frombytes("RGB", (width, height), data)


cases = []
for width, height, box, size in [
    (13, 9, (0, 0, 13, 9), (5, 4)),       # smaller, both axes by unlike factors
    (13, 9, (2, 1, 9, 8), (6, 6)),        # a crop: nothing outside of it may show
    (5, 4, (0, 0, 5, 4), (11, 9)),        # larger
    (7, 7, (1, 2, 6, 7), (5, 5)),         # a copy
    (1, 6, (0, 0, 1, 6), (3, 2)),         # one column
    (300, 211, (0, 0, 300, 211), (96, 64)),
    (300, 211, (17, 33, 290, 200), (224, 224)),
    (640, 480, (0, 0, 640, 480), (7, 5)),
]:
    out = picture(width, height).crop(box).resize(size, Image.BILINEAR).tobytes()
    case = {"width": width, "height": height, "box": box, "size": size, "crc32": zlib.crc32(out)}
    if len(out) <= 400:
        case["pixels"] = list(out)
    cases.append(case)
print("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]")
