#!/usr/bin/env python3
"""Compiles every CUDA kernel and prints its registers, spills and shared memory, and the number of lines of each file.

  scripts/ptxas_table.py                     # sm_80, sm_90: summary, and the ten kernels with the most registers
  scripts/ptxas_table.py --arch 75 --all     # every kernel

The output is Markdown tables for docs/benchmarks/gpu.md.
A kernel that spills registers to memory is an error: exit code 1.
The script uses the nvcc of CUDA_HOME, otherwise of PATH, otherwise of third_party/.cuda.
"""
import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCES = os.path.join(ROOT, "cuda", "src")
INCLUDES = [SOURCES, os.path.join(ROOT, "engine", "device", "native"),
            os.path.join(ROOT, "engine", "device", "native", "src")]
KERNEL = re.compile(r"Compiling entry function '(\S+)' for")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def find_nvcc():
    home = os.environ.get("CUDA_HOME", "")
    for path in [os.path.join(home, "bin", "nvcc") if home else None, shutil.which("nvcc"),
                 os.path.join(ROOT, "third_party", ".cuda", "nvidia", "cu13", "bin", "nvcc")]:
        if path and os.access(path, os.X_OK):
            return path
    sys.exit("ptxas_table: no nvcc in CUDA_HOME, PATH or third_party/.cuda; run: make cuda-toolchain")


def short(name):
    """The name of a kernel in its file, without namespaces and parameters."""
    name = re.sub(r"hetero::|\(anonymous namespace\)::|^void ", "", name)
    name = name.replace("__nv_bfloat16", "bf16").replace("__half", "f16")
    depth = 0
    for i, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            return name[:i]
    return name


def compiled(nvcc, file, arch):
    """The kernels of a file: (arch, file, name, registers, spilled bytes, shared bytes)."""
    command = [nvcc, "-std=c++17", "-O3", "--fmad=false", f"-arch=sm_{arch}", "-cubin", "-Xptxas", "-v", "-o",
               os.devnull]
    command += [part for folder in INCLUDES for part in ("-I", folder)] + [os.path.join(SOURCES, file)]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"ptxas_table: {file} for sm_{arch}:\n{run.stderr}")
    kernels, name, spilled = [], None, 0
    for line in run.stderr.splitlines():
        if found := KERNEL.search(line):
            name, spilled = found[1], 0
        elif name and (found := SPILLS.search(line)):
            spilled = int(found[2]) + int(found[3])
        elif name and (found := USED.search(line)):
            shared = SHARED.search(line)
            kernels.append((arch, file, name, int(found[1]), spilled, int(shared[1]) if shared else 0))
            name = None
    return kernels


def demangled(kernels):
    names = subprocess.run(["c++filt"], input="\n".join(k[2] for k in kernels), capture_output=True, text=True,
                           check=True).stdout.splitlines()
    return [k[:2] + (short(n),) + k[3:] for k, n in zip(kernels, names)]


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", action="append",
                        help="compute capability without the point; repeatable (default 80 and 90)")
    parser.add_argument("--all", action="store_true", help="every kernel instead of the ten with the most registers")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    nvcc, files = find_nvcc(), sorted(f for f in os.listdir(SOURCES) if f.endswith(".cu"))
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        work = [pool.submit(compiled, nvcc, f, a) for a in args.arch or ["80", "90"] for f in files]
        kernels = demangled([k for w in work for k in w.result()])

    archs = sorted({k[0] for k in kernels})
    rows = []
    for arch in archs:
        mine = [k for k in kernels if k[0] == arch]
        rows.append((f"sm_{arch}", len(mine), max(k[3] for k in mine), sum(k[4] > 0 for k in mine),
                     max(k[5] for k in mine)))
    table(["architecture", "kernels", "most registers", "kernels that spill", "most shared memory (bytes)"], rows)
    heaviest = sorted((k for k in kernels if k[0] == archs[-1]), key=lambda k: (-k[3], k[1], k[2]))
    table([f"kernel (sm_{archs[-1]})", "file", "registers", "spilled (bytes)", "shared memory (bytes)"],
          [(f"`{k[2]}`", k[1], k[3], k[4], k[5]) for k in (heaviest if args.all else heaviest[:10])])
    lines = {f: sum(1 for _ in open(os.path.join(SOURCES, f))) for f in files}
    print(f"Lines of CUDA, {sum(lines.values())} in all: " + ", ".join(f"{f} {n}" for f, n in lines.items()) + ".")
    spilling = [f"{k[2]} of {k[1]} for sm_{k[0]}: {k[4]} bytes" for k in kernels if k[4]]
    if spilling:
        sys.exit("ptxas_table: kernels spill registers: " + "; ".join(spilling))


if __name__ == "__main__":
    main()
