#!/usr/bin/env python3
"""Installs a CUDA 13.0 toolkit with cuBLAS, cuDNN, CUPTI and NCCL for x86-64 Linux in .cuda of third_party or HETERO_FETCHED
(see wheels.py).

The result has the layout of the site-packages of a Python with PyTorch:

  nvidia/cu13/{bin/nvcc,include,lib,nvvm}   nvidia/{cudnn,nccl}/{include,lib}

nvidia/licences has the licence of each wheel. With --arm64, the script also installs the CUDA run-time library for arm64, in
.cuda-arm64: with it and a cross compiler, nvcc of this toolkit makes libraries for arm64.

A second run does nothing. The script removes the wheels (1.2 GB) after it has unpacked them.
"""
import os
import sys

import wheels

PINS = os.path.join(wheels.HERE, "cuda.sha256")
PINS_ARM64 = os.path.join(wheels.HERE, "cuda_arm64.sha256")


def place(parts):
    if parts[0].endswith(".dist-info"):
        return ["nvidia", "licences", parts[0].split("-")[0], parts[-1]] if parts[-1].lower().startswith(
            "license") else None
    return parts if parts[0] == "nvidia" and parts[-1] != "__init__.py" else None


def make_programs_executable(tree):
    for folder, _, names in os.walk(tree):
        if os.path.basename(folder) == "bin":
            for name in names:
                os.chmod(os.path.join(folder, name), 0o755)


def make_arm64():
    return wheels.make_tree(PINS_ARM64, os.path.join(wheels.FETCHED, ".cuda-arm64"),
                            "the CUDA run-time library for arm64", "2 MB", place,
                            lambda tree: None, "aarch64")


def make():
    if not wheels.make_tree(PINS, os.path.join(wheels.FETCHED, ".cuda"), "the CUDA toolkit", "1.2 GB, 1.9 GB unpacked",
                            place, make_programs_executable):
        return False
    for _, wheel in wheels.read_pins(PINS):
        os.remove(wheels.place_of(wheel))
    return True


if __name__ == "__main__":
    status = wheels.run(make, f"the CUDA toolkit is in {wheels.FETCHED}/.cuda")
    if "--arm64" in sys.argv[1:] and not status:
        status = wheels.run(make_arm64, f"the CUDA run-time library for arm64 is in {wheels.FETCHED}/.cuda-arm64")
    sys.exit(status)
