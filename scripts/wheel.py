#!/usr/bin/env python3
"""Packs the files of a release as a Python wheel, so that `pip install` puts hetero-train into PATH.

    scripts/wheel.py TREE VERSION PLATFORM FOLDER     PLATFORM: manylinux_2_28_x86_64

TREE has bin/, lib/ and share/. pip installs these folders below the prefix of the environment, where the program finds
its libraries in ../lib/hetero-train. The wheel also has the Python package hetero_train of deploy/pytorch, which needs torch.
VERSION is the output of third_party/version.sh. Two calls with the same files give the same bytes; SOURCE_DATE_EPOCH sets
the time of all entries.
"""
import base64
import hashlib
import os
import re
import stat
import sys
import time
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = "hetero_train"
# which the program opens at run time
GPU_LIBRARIES = ("nvidia_cublas", "nvidia_cudnn_cu13", "nvidia_cuda_cupti", "nvidia_nccl_cu13")
PACKAGE = os.path.join(HERE, "..", "deploy", "pytorch", NAME)  # for PyTorch scripts


def check_version(version):
    """Ends the program unless a wheel can have this version."""
    if not re.fullmatch(r"\d+(\.\d+)*(\+[a-z0-9]+(\.[a-z0-9]+)*)?", version):
        sys.exit(f"wheel: VERSION: got {version!r}, want the output of third_party/version.sh: 0.1.0 or 0.1.0+g1234567")


def read_file(path):
    with open(path, "rb") as file:
        return file.read()


def gpu_packages(tree):
    """Returns the lines of METADATA for `pip install hetero-train[cuda]`, which also installs the libraries that GPUs
    need."""
    if not os.path.exists(os.path.join(tree, "lib/hetero-train/libhetero_cuda.so")):
        return ""
    lines = ["Provides-Extra: cuda"]
    with open(os.path.join(HERE, "../third_party/cuda.sha256"), encoding="ascii") as pins:
        for wheel in (line.split()[1] for line in pins if line.strip()):
            name, version = wheel.split("-")[:2]
            if name in GPU_LIBRARIES:
                major = int(version.split(".")[0])
                lines.append(f"Requires-Dist: {name.replace('_', '-')}>={version},<{major + 1}; extra == 'cuda'")
    return "".join(line + "\n" for line in lines)


def contents(tree, info, version, platform):
    """Returns [(path in the wheel, executable, bytes)]. The files of bin/ become scripts, all others data."""
    data = info.replace(".dist-info", ".data")
    files = []
    for folder, _, names in os.walk(tree):
        for name in names:
            path = os.path.join(folder, name)
            inside = os.path.relpath(path, tree)
            if os.path.islink(path) or os.sep not in inside:
                continue  # README.md of the archive; a wheel holds no links
            place = "scripts" + inside[len("bin"):] if inside.startswith("bin" + os.sep) else "data/" + inside
            files.append((f"{data}/{place}", bool(os.stat(path).st_mode & stat.S_IXUSR), read_file(path)))
    for name in sorted(os.listdir(PACKAGE)):
        if name.endswith((".py", ".typed")):
            files.append((f"{NAME}/{name}", False, read_file(os.path.join(PACKAGE, name))))
    metadata = f"""Metadata-Version: 2.1
Name: {NAME.replace('_', '-')}
Version: {version}
Summary: Data-parallel deep-learning training on workers of unequal speed
License: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.6
{gpu_packages(tree)}Description-Content-Type: text/markdown

"""
    files.append((f"{info}/METADATA", False, metadata.encode() + read_file(os.path.join(tree, "README.md"))))
    files.append((f"{info}/LICENSE", False, read_file(os.path.join(tree, "share/doc/hetero-train/licences/LICENSE"))))
    wheel = f"Wheel-Version: 1.0\nGenerator: hetero-train\nRoot-Is-Purelib: false\nTag: py3-none-{platform}\n"
    files.append((f"{info}/WHEEL", False, wheel.encode()))
    return sorted(files)


def record(files, info):
    """Returns the text of RECORD: path, hash and size of each file."""
    lines = []
    for path, _, content in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(content)}\n")
    return "".join(lines) + f"{info}/RECORD,,\n"


def main(tree, version, platform, folder):
    check_version(version)
    version = version.replace("+", ".dev0+")  # pip sorts a commit before the release that VERSION names
    info = f"{NAME}-{version}.dist-info"
    files = contents(tree, info, version, platform)
    if not any(path.endswith(".data/scripts/hetero-train") and executable for path, executable, _ in files):
        sys.exit(f"wheel: {tree} has no executable bin/hetero-train")
    files.append((f"{info}/RECORD", False, record(files, info).encode()))
    when = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800))[:6]  # zip files begin in 1980
    target = os.path.join(folder, f"{NAME}-{version}-py3-none-{platform}.whl")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for path, executable, content in files:
            entry = zipfile.ZipInfo(path, when)
            entry.create_system = 3  # Unix, so that the mode counts
            entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
