#!/usr/bin/env python3
"""Writes engine/data/images/testdata/formats: small images of every kind, each with the pixels that
Pillow decodes. NAME.rgb has the result of Image.convert("RGB"), NAME.turned.rgb the result after ImageOps.exif_transpose.
The script needs Pillow and numpy."""
import pathlib
import sys

import numpy as np
from PIL import Image, ImageOps, PngImagePlugin

out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "engine/data/images/testdata/formats")
out.mkdir(parents=True, exist_ok=True)
w, h = 19, 13
y, x = np.mgrid[0:h, 0:w]
# Colours change smoothly, so JPEG decoders differ only by single steps. All sides have different lengths.
rgb = np.stack([40 + x * 10, 30 + y * 14, 200 - x * 4 - y * 5], -1).clip(0, 255).astype(np.uint8)
img = Image.fromarray(rgb)
grey = img.convert("L")
cmyk = Image.fromarray(np.stack([x * 9, y * 12, 90 + x * 2, y * 5], -1).astype(np.uint8), "CMYK")


def save(name, image, **options):
    path = out / name
    image.save(path, **options)
    back = Image.open(path)
    (out / (name + ".rgb")).write_bytes(back.convert("RGB").tobytes())


save("rgb.png", img)
save("grey.png", grey)
save("palette.png", img.quantize(17))
save("bilevel.png", grey.convert("1"))
rgba = img.convert("RGBA")
rgba.putalpha(Image.fromarray((x * 12).astype(np.uint8)))
save("alpha.png", rgba)
grey_alpha = grey.convert("LA")
save("grey-alpha.png", grey_alpha)
transparent = img.quantize(9)
save("palette-transparent.png", transparent, transparency=3)
save("grey.jpg", grey, quality=95)
save("rgb.jpg", img, quality=95)
save("progressive.jpg", img, quality=95, progressive=True)
save("cmyk.jpg", cmyk, quality=95)
save("cmyk420.jpg", cmyk, quality=95, subsampling="4:2:0")  # factors 2x2, 1x1, 1x1, 1x1
adobe = (out / "cmyk.jpg").read_bytes()
at = adobe.index(b"Adobe") + 11  # Adobe's transform: 2 is YCCK
(out / "ycck.jpg").write_bytes(adobe[:at] + b"\2" + adobe[at + 1:])
(out / "ycck.jpg.rgb").write_bytes(Image.open(out / "ycck.jpg").convert("RGB").tobytes())
# For 16 bits, Pillow clips grey values instead of scaling them, and it cannot write colours. The expected values are
# therefore those of torchvision, v >> 8.
deep = (grey_alpha.getchannel("L").convert("I").point(lambda v: v * 257))
deep.convert("I;16").save(out / "grey16.png")
(out / "grey16.png.rgb").write_bytes(grey.convert("RGB").tobytes())
for o in range(1, 9):
    exif = Image.Exif()
    exif[0x0112] = o
    for name in (f"exif{o}.png", f"exif{o}.jpg"):
        save(name, img, exif=exif, **({"quality": 95} if name.endswith("jpg") else {}))
        turned = ImageOps.exif_transpose(Image.open(out / name))
        (out / (name + ".turned.rgb")).write_bytes(np.array([turned.width, turned.height], "<u4").tobytes() +
                                                   turned.convert("RGB").tobytes())


# Orientation 6 in the forms of ImageMagick (EXIF as hexadecimal text) and of programs that compress XMP.
def turned(name, info):
    save(name, img, pnginfo=info)
    up = ImageOps.exif_transpose(Image.open(out / name))
    (out / (name + ".turned.rgb")).write_bytes(np.array([up.width, up.height], "<u4").tobytes() +
                                               up.convert("RGB").tobytes())


exif = Image.Exif()
exif[0x0112] = 6
raw = exif.tobytes()
digits = raw.hex()
for name, zipped in (("raw-profile.png", False), ("raw-profile-zipped.png", True)):
    info = PngImagePlugin.PngInfo()
    info.add_text("Raw profile type exif", f"\nexif\n{len(raw):8d}\n" +
                  "\n".join(digits[i:i + 72] for i in range(0, len(digits), 72)) + "\n", zip=zipped)
    turned(name, info)
info = PngImagePlugin.PngInfo()
info.add_itxt("XML:com.adobe.xmp",
              '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6"/></x:xmpmeta>', zip=True)
turned("xmp-zipped.png", info)

# WebP, BMP, TIFF, GIF and Netpbm
noise = np.random.default_rng(1).integers(0, 256, (h, w, 3), np.uint8)
rough = Image.fromarray((rgb // 2 + noise // 2).astype(np.uint8))
even = rough.crop((0, 0, 18, 12))
for name, image in (("lossy.webp", rough), ("lossy-even.webp", even)):
    save(name, image, quality=80)
(out / "webp-named.jpg").write_bytes((out / "lossy.webp").read_bytes())
(out / "webp-named.jpg.rgb").write_bytes((out / "lossy.webp.rgb").read_bytes())
save("lossless.webp", rough, lossless=True)
save("alpha.webp", rgba, quality=80)
save("alpha-lossless.webp", rgba, lossless=True, exact=True)
save("animated.webp", rough, save_all=True, append_images=[img], quality=70)
small = Image.new("RGBA", (w, h))
small.paste(rough.crop((4, 2, 15, 11)), (4, 2))
save("animated-small.webp", small, save_all=True, append_images=[rgba], lossless=True)
for name, image in (("rgb.bmp", rough), ("grey.bmp", grey), ("palette.bmp", img.quantize(17)), ("alpha.bmp", rgba),
                    ("bilevel.bmp", grey.convert("1"))):
    save(name, image)
for name, compression in (("raw", None), ("lzw", "tiff_lzw"), ("deflate", "tiff_adobe_deflate"), ("packbits", "packbits")):
    save(f"{name}.tiff", rough, compression=compression)
for name, compression in (("lzw", "tiff_lzw"), ("deflate", "tiff_adobe_deflate")):  # predictor 2, strips of 4 rows
    save(f"{name}-strips.tiff", rough, compression=compression, tiffinfo={317: 2, 278: 4})
save("lzw-grey.tiff", grey, compression="tiff_lzw", tiffinfo={317: 2, 278: 4})
save("grey.tiff", grey)
save("bilevel.tiff", grey.convert("1"))
save("fax.tiff", grey.convert("1"), compression="group4")
save("fax-white-is-zero.tiff", grey.convert("1"), compression="group3", tiffinfo={262: 0})
save("palette.tiff", img.quantize(17))
save("alpha.tiff", rgba)
save("premultiplied.tiff", rgba, tiffinfo={338: 1})
for o in range(1, 9):
    save(f"turned{o}.tiff", rough, tiffinfo={274: o})
save("rgb.gif", img)
save("grey.gif", grey)
save("interlaced.gif", img.quantize(17), interlace=1)
save("transparent.gif", transparent, transparency=3)
save("animated.gif", img.quantize(17), save_all=True, append_images=[grey])
for name, options in (("small.gif", {}), ("small-transparent.gif", {"transparency": 3})):
    save(name, img.crop((0, 0, 9, 7)).quantize(8), **options)
    b = bytearray((out / name).read_bytes())
    b[6:10] = bytes([w, 0, h, 0])  # a larger screen
    at = b.index(b",\0\0\0\0")
    b[at + 1:at + 5] = bytes([3, 0, 2, 0])
    (out / name).write_bytes(b)
    (out / (name + ".rgb")).write_bytes(Image.open(out / name).convert("RGB").tobytes())
save("rgb.ppm", rough)
save("grey.pgm", grey)
save("bilevel.pbm", grey.convert("1"))
plain = " ".join(str(v) for v in (np.array(grey) // 3).ravel())
(out / "plain.pgm").write_text(f"P2\n# a comment\n{w} {h}\n85\n{plain}\n")
values = (rgb.astype(int) * 3).astype(">u2")
(out / "deep.ppm").write_bytes(f"P6 {w} {h} 767\n".encode() + values.tobytes())
(out / "scaled.pgm").write_bytes(f"P5 {w} {h} 85 ".encode() + (np.array(grey) // 3).tobytes())
bits = "".join("#!\n" if i == 40 else str(v) for i, v in enumerate(np.array(grey).ravel() // 128))
(out / "plain.pbm").write_text(f"P1 {w} {h}\n{bits}0\n")
(out / "plain.ppm").write_text(f"P3 {w} {h} 255 " + " ".join(str(v) for v in rgb.ravel()))
for name in ("plain.pgm", "deep.ppm", "scaled.pgm", "plain.pbm", "plain.ppm"):
    (out / (name + ".rgb")).write_bytes(Image.open(out / name).convert("RGB").tobytes())
(out / "grey16.pgm").write_bytes(f"P5 {w} {h} 65535\n".encode() + (np.array(grey).astype(">u2") * 257).tobytes())
(out / "grey16.pgm.rgb").write_bytes(grey.convert("RGB").tobytes())
turned = Image.Exif()
turned[0x0112] = 6
save("exif6.webp", rough, lossless=True, exif=turned)
back = ImageOps.exif_transpose(Image.open(out / "exif6.webp"))
(out / "exif6.webp.turned.rgb").write_bytes(np.array([back.width, back.height], "<u4").tobytes() +
                                            back.convert("RGB").tobytes())
# formats that the program refuses
img.save(out / "refused.avif", quality=60)
