#!/usr/bin/env python3
"""Moves weights between torchvision and this program, and compares the outputs of both.

    python3 -m venv .venv && .venv/bin/pip install torch torchvision numpy pillow
    .venv/bin/python scripts/check_torchvision.py check --model resnet50 --images FOLDER
    .venv/bin/python scripts/check_torchvision.py check --checkpoint experiments/run --images FOLDER
    .venv/bin/python scripts/check_torchvision.py make  --model resnet18 --classes 10 --output theirs.safetensors
    .venv/bin/python scripts/check_torchvision.py make  --model resnet18 --classes 10 --output theirs.safetensors --train cifar10-jpeg.tar.gz --seconds 90

check
  1. torchvision -> hetero-train -> torchvision (without --checkpoint): the script writes a model of torchvision with random
     weights and running statistics as safetensors, imports and exports it, and compares every tensor bit by bit.
  2. hetero-train -> torchvision: load_state_dict(strict=True) loads the export, in f32, bf16 and fp16.
  3. The script compares the log-probabilities of `predict` for the images in FOLDER with those of torchvision for the same
     pixels, both in f32. It crops the centre of each image to --size pixels and does not scale, so only the networks can
     differ. The reference is the error of f32 itself: the distance of torchvision's f32 result from its f64 result. The
     error of hetero-train may be --factor times as large.
  Exit code 1 if any comparison fails.

make writes weights of torchvision as a safetensors file. They are random, or come from a short training by torch on a
tar of train/<class>/*.jpg of 32 x 32 pixels. Use them in place of pretrained weights if no download is possible.
"""

import argparse
import io
import json
import math
import pathlib
import struct
import subprocess
import sys
import tarfile
import tempfile
import time

import numpy
import torch
import torchvision
from PIL import Image

# the constants of ImageNet, which data.dataset = "images" uses
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
WIRE = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}
NAME = {dtype: wire for wire, dtype in WIRE.items()}


def save(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    chunks, at = [], 0
    for name, t in tensors.items():
        data = t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": NAME[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + len(data)]}
        chunks.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(chunks))


def load(path):
    raw = pathlib.Path(path).read_bytes()
    (n,) = struct.unpack("<Q", raw[:8])
    out = {}
    for name, t in json.loads(raw[8 : 8 + n]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + n + offset for offset in t["data_offsets"])
        out[name] = torch.frombuffer(bytearray(raw[begin:end]), dtype=WIRE[t["dtype"]]).reshape(t["shape"])
    return out


def random_model(name, classes, seed):
    torch.manual_seed(seed)
    model = getattr(torchvision.models, name)(num_classes=classes)
    for m in model.modules():
        if isinstance(m, torch.nn.BatchNorm2d):  # with only 0 and 1, the comparison would not find a swap
            torch.nn.init.uniform_(m.weight, 0.5, 1.0)
            torch.nn.init.uniform_(m.bias, -0.1, 0.1)
            m.running_mean.uniform_(-0.1, 0.1)
            m.running_var.uniform_(0.5, 1.5)
    return model.eval()


def normalized(pixels):
    """From (N, H, W, 3) bytes to (N, 3, H, W), in f64."""
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2).double() / 255
    return (x - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


def middle(path, size):
    image = Image.open(path).convert("RGB")
    left, top = (image.width - size) // 2, (image.height - size) // 2
    return image.crop((left, top, left + size, top + size))


def run(program, *args):
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(map(str, args))}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def check(args):
    with tempfile.TemporaryDirectory(prefix="check_torchvision_") as work:
        return check_in(pathlib.Path(work), args)


def check_in(work, args):
    source, faults = args.checkpoint, 0
    if source is None:
        theirs = random_model(args.model, args.classes, args.seed)
        save(work / "theirs.safetensors", theirs.state_dict())
        source = work / "imported"
        run(args.program, "checkpoint", "import", work / "theirs.safetensors", "--model", args.model, "--output",
            source)
    told = json.loads(run(args.program, "checkpoint", "inspect", source, "--json"))
    name, classes = told["model"]["name"], told["model"]["num_classes"]
    f32 = None
    for dtype in ("f32", "bf16", "fp16"):
        out = work / f"{dtype}.safetensors"
        run(args.program, "checkpoint", "export", source, "--output", out, "--dtype", dtype)
        tensors = load(out)
        model = getattr(torchvision.models, name)(num_classes=classes)
        model.load_state_dict(tensors, strict=True)
        f32 = f32 or tensors
        want = {k: v.to(tensors[k].dtype) for k, v in f32.items()}
        if dtype == "f32" and args.checkpoint is None:
            want = theirs.state_dict()
        other = [k for k in want if not torch.equal(want[k], tensors[k])]
        faults += len(other)
        print(f"{dtype}: load_state_dict(strict=True) loaded {len(tensors)} tensors, "
              f"{len(other)} of them differ {other[:3] if other else ''}".rstrip())
    return faults + compare(args, work, source, name, classes, f32)


def compare(args, work, source, name, classes, tensors):
    model = getattr(torchvision.models, name)(num_classes=classes)
    model.load_state_dict(tensors, strict=True)
    model.eval()
    files = sorted(p for p in pathlib.Path(args.images).rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png"))[
        : args.count]
    images = [middle(p, args.size) for p in files]
    pixels = numpy.stack([numpy.asarray(i) for i in images])
    (work / "images").mkdir()
    for i, image in enumerate(images):
        image.save(work / "images" / f"{i:05}.png")  # PNG, because decoders of JPEG may differ
    told = run(args.program, "predict", source, work / "images", "--top", classes, "--json", "--precision", "f32",
               "--device", args.device,
               "--set", 'data.dataset="images"', "--set", f'data.path="{work}"', "--set",
               f"data.image_size={args.size}", "--set", "data.random_resized_crop=false")
    ours = numpy.full((len(images), classes), math.nan)
    for i, line in enumerate(told.splitlines()):
        for guess in json.loads(line)["top"]:
            ours[i, guess["label"]] = math.log(guess["probability"])
    ours = torch.from_numpy(ours)
    with torch.no_grad():
        x = normalized(pixels)
        theirs = torch.log_softmax(model(x.float()).double(), 1)
        exact = torch.log_softmax(model.double()(x), 1)
    error, own = (ours - exact).abs().max().item(), (theirs - exact).abs().max().item()
    same = (ours.argmax(1) == theirs.argmax(1)).sum().item()
    print(f"{name}, {len(images)} images of {args.size} pixels, {classes} classes: log-probabilities from {exact.min():.2f} to {exact.max():.2f}")
    print(f"largest difference to torchvision's f32: {(ours - theirs).abs().max().item():.3g}; to its f64: {error:.3g}, where torchvision's f32 differs by {own:.3g}")
    print(f"the same most likely class: {same} of {len(images)}")
    bad = not error <= args.factor * max(own, 1e-6)
    print("FAILED" if bad else "ok")
    return int(bad)


def make(args):
    model = random_model(args.model, args.classes, args.seed)
    if args.train:
        train(model, args)
    save(args.output, model.state_dict())
    print(f"{args.output}: {args.model}, {args.classes} classes")


def read_archive(path, part):
    pixels, classes = [], []
    with tarfile.open(path) as tar:
        for member in tar:
            parts = member.name.split("/")
            if member.isfile() and parts[-3:-2] == [part] and member.name.endswith(".jpg"):
                pixels.append(numpy.asarray(Image.open(io.BytesIO(tar.extractfile(member).read())).convert("RGB")))
                classes.append(parts[-2])
    names = sorted(set(classes))
    return numpy.stack(pixels), torch.tensor([names.index(c) for c in classes])


def train(model, args):
    pixels, labels = read_archive(args.train, "train")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    model.train()
    end, steps = time.monotonic() + args.seconds, 0
    while time.monotonic() < end:
        at = torch.randint(len(labels), (128,))
        x = normalized(pixels[at.numpy()]).float()
        if torch.rand(()) < 0.5:
            x = x.flip(3)
        loss = torch.nn.functional.cross_entropy(model(x), labels[at])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    pixels, labels = read_archive(args.train, "test")
    model.eval()
    with torch.no_grad():
        right = sum((model(normalized(pixels[i : i + 500]).float()).argmax(1) == labels[i : i + 500]).sum().item()
                    for i in range(0, len(labels), 500))
    print(f"torch: {steps} steps of 128 samples, loss {loss.item():.4f}, top-1 {100 * right / len(labels):.2f} % of {len(labels)} test images")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    p = commands.add_parser("check")
    p.set_defaults(run=check)
    p.add_argument("--program", default="./hetero-train")
    p.add_argument("--checkpoint", help="of this program; without it random weights of torchvision are imported first")
    p.add_argument("--images", required=True)
    p.add_argument("--size", type=int, default=224)
    p.add_argument("--count", type=int, default=16)
    p.add_argument("--device", default="auto")
    p.add_argument("--factor", type=float, default=3)
    m = commands.add_parser("make")
    m.set_defaults(run=make)
    m.add_argument("--output", required=True)
    m.add_argument("--train")
    m.add_argument("--seconds", type=float, default=90)
    for q in (p, m):
        q.add_argument("--model", default="resnet50")
        q.add_argument("--classes", type=int, default=1000)
        q.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    sys.exit(args.run(args))


if __name__ == "__main__":
    main()
