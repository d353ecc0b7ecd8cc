#!/usr/bin/env bash
# Measures the five figures of four unequal workers with every policy, and prints them next to the expected values.
#
#   make && sudo scripts/five_figures.sh --into BENCHMARKS.md
#
# The script trains with scripts/run_benchmark.sh (scenario four-unequal) and evaluates the runs with `hetero-train
# analyze`. The same command, run again, continues an interrupted measurement; --fresh starts again.
#
# stdout: the table as Markdown, with machine, commit and date
#
# exit: 0 measured; 1 a run failed; 2 bad arguments, or a tool is missing; 130 interrupted
set -euo pipefail

usage() {
	cat <<-'TEXT'
		usage: scripts/five_figures.sh [options] [-- OPTION...]
		  --output-dir DIR  folder of the runs and of their analysis        (experiments/five_figures)
		  --fresh           delete the runs of an earlier measurement first
		  --into FILE       replace the text between <!-- five figures --> and <!-- end of five figures --> in FILE
		  --binary PATH                                                     (./hetero-train)
		Options after -- go to scripts/run_benchmark.sh, for example -- --models resnet50 --seeds 1,2,3,4,5
	TEXT
}

fail() { # exit code, message
	echo "five_figures: $2" >&2
	exit "$1"
}

cd "$(dirname "$0")/.."
output=experiments/five_figures into='' binary=./hetero-train fresh=no
while (($#)); do
	case $1 in
	-h | --help) usage && exit 0 ;;
	--fresh) fresh=yes && shift && continue ;;
	--) shift && break ;;
	esac
	(($# > 1)) || fail 2 "$1: want a value"
	case $1 in
	--output-dir) output=$2 ;;
	--into) into=$2 ;;
	--binary) binary=$2 ;;
	*) usage >&2 && fail 2 "unknown option: got '$1'; options of scripts/run_benchmark.sh come after --" ;;
	esac
	shift 2
done
[[ -x $binary ]] || fail 2 "$binary not found: run make first"
command -v python3 >/dev/null || fail 2 "python3 not found: install it"
begin='<!-- five figures -->' end='<!-- end of five figures -->'
if [[ -n $into ]]; then
	grep -qxF "$begin" "$into" && grep -qxF "$end" "$into" || fail 2 "--into: $into has no lines '$begin' and '$end': add them where the table belongs"
fi
[[ $fresh == no ]] || rm -rf "$output/runs" "$output/analysis"
scripts/run_benchmark.sh --scenarios four-unequal --output-dir "$output/runs" --binary "$binary" "$@" >&2
"$binary" analyze --input-dir "$output/runs" --output-dir "$output/analysis" >&2
[[ -s $output/analysis/five_figures.md ]] || fail 1 "$output/runs has no comparison of four unequal ranks with policy none"
commit=$(git rev-parse --short=8 HEAD 2>/dev/null || echo unknown)
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
{
	cat "$output/analysis/five_figures.md"
	# scripts/headlines.sh --check reads this line.
	echo "Measured at $commit, $(date -u +%F) (code of \`five_figures\`), with \`scripts/five_figures.sh${*:+ -- $*}\`; $(nproc) CPUs, $cpu; load $(cut -d' ' -f1 /proc/loadavg) at the end."
} >"$output/table.md"
cat "$output/table.md"
[[ -n $into ]] || exit 0
python3 - "$into" "$output/table.md" "$begin" "$end" <<'PYTHON'
import sys

path, table, begin, end = sys.argv[1:]
text = open(path).read()
head, _, rest = text.partition(begin + "\n")
_, _, tail = rest.partition(end + "\n")
open(path, "w").write(f"{head}{begin}\n\n{open(table).read()}\n{end}\n{tail}")
PYTHON
