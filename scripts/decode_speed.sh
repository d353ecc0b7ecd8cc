#!/bin/bash
# decode_speed.sh: compares JPEG decoding of the loader with a plain loop over libturbojpeg, in images per second of CPU
# time.
#
#     make && HETERO_LIB_DIR=$PWD/build/lib scripts/decode_speed.sh FOLDER [ROUNDS]
#
# Both decode the .jpg files in FOLDER from memory to RGB, with the accurate DCT, in full size. Runs alternate.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2; }
folder=$(realpath "$1") rounds=${2:-5}
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/loop.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <turbojpeg.h>

int main(int argc, char **argv) { /* loop PASSES FILE... */
  int passes = atoi(argv[1]), files = argc - 2;
  unsigned char **data = malloc(files * sizeof *data), *pixels = NULL;
  unsigned long *size = malloc(files * sizeof *size);
  for (int i = 0; i < files; i++) {
    FILE *in = fopen(argv[i + 2], "rb");
    fseek(in, 0, SEEK_END);
    size[i] = ftell(in);
    rewind(in);
    data[i] = malloc(size[i]);
    if (fread(data[i], 1, size[i], in) != size[i]) return 1;
    fclose(in);
  }
  tjhandle h = tjInitDecompress();
  clock_t before = clock();
  for (int pass = 0; pass <= passes; pass++) {
    if (pass == 1) before = clock(); /* the first one warms up */
    for (int i = 0; i < files; i++) {
      int w, height, subsampling, colorspace;
      if (tjDecompressHeader3(h, data[i], size[i], &w, &height, &subsampling, &colorspace)) return 1;
      pixels = realloc(pixels, 3UL * w * height);
      if (tjDecompress2(h, data[i], size[i], pixels, w, 3 * w, height, TJPF_RGB, TJFLAG_ACCURATEDCT)) return 1;
    }
  }
  printf("%.0f\n", (double)passes * files / ((double)(clock() - before) / CLOCKS_PER_SEC));
}
C
${CC:-cc} -O2 -o "$work/loop" "$work/loop.c" -lturbojpeg
go test -c -o "$work/jpeg.test" ./engine/data/jpeg
mapfile -d '' files < <(find "$folder" -name '*.jpg' -print0)
passes=$((1500 / ${#files[@]} + 1))
for ((i = 0; i < rounds; i++)); do
  own=$("$work/loop" $passes "${files[@]}")
  ours=$(HETERO_BENCH_IMAGES=$folder "$work/jpeg.test" -test.run xxx -test.bench Folder/libturbojpeg -test.benchtime 1500x | awk '/images\/cpu-s/ {for (i = 2; i < NF; i++) if ($(i+1) == "images/cpu-s") print $i}')
  [ -n "$ours" ] || { echo "hetero-train does not use the native library: set HETERO_LIB_DIR"; exit 1; }
  echo "images per CPU second: libturbojpeg alone $own, the loader's decoder $ours; ratio $(awk "BEGIN {printf \"%.3f\", $ours / $own}")"
done
