"""The examples of the program's help, with their marks (docs_commands.py)."""
import re
import subprocess
import sys

from docs_blocks import ROOT, Block, blocks

# Makes the files that examples read, in a folder that each example gets a copy of.
PREPARE = r"""
scripts/docs_commands.py --images photos cat,dog,c2,c3,c4,c5,c6,c7,c8,c9 8
mkdir -p data && cp -r photos data/flowers && cp -r photos data/other && cp photos/cat/001.jpg cat.jpg && cp photos/dog/001.jpg dog.png
mkdir samples data/shards && for i in {001..008}; do cp photos/cat/$i.jpg samples/ && echo 0 > samples/$i.cls; done
for i in 0 1; do tar --sort=name -cf data/shards/train-00000$i.tar -C samples .; done
cat README.md docs/*.md > tinyshakespeare.txt
mkdir corpus && cp tinyshakespeare.txt corpus/a.txt && cp tinyshakespeare.txt corpus/b.txt
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' {a..z} {0..9} '##'{a..z} '##'{0..9} > vocab.txt
{ printf 'review\tlabel\n'; for i in {1..80}; do printf "a moving film $i\tpositive\ntwo hours $i\tnegative\n"; done; } > reviews.tsv
sed 's/review/text/' reviews.tsv > test.tsv && printf 'a moving film\ntwo hours\n' > reviews.txt
printf '0,1,0.01\n0,256,2.56\n1,1,0.02\n1,256,5.12\n2,1,0.03\n2,256,7.68\n' > curves.csv
hetero-train -c configs/resnet50.toml --set data.dataset=images --set data.path=photos --set data.batch_size=8 --set train.steps=2 --set ema.decay=0.9 --set tracking.mlflow=mlruns
ln -s step-00000002 experiments/resnet50/checkpoints/step-00000780
for model in resnet18 resnet50; do
    hetero-train train --experiment-name $model-run --model $model --dataset synthetic_image --num-samples 8 --batch-size 4 --set data.image_size=32 --set train.steps=1 --set ema.decay=0.9 --set optimizer.lr=0.001
    hetero-train checkpoint export $model-run --output $model-weights.safetensors
done
mv experiments/resnet50-run experiments/run && mv resnet50-weights.safetensors theirs.safetensors
python3 - <<'END'
import json, re, struct
def rename(source, target, rule, more=()):
    data = open(source, "rb").read()
    size, = struct.unpack("<Q", data[:8])
    head, tensors = json.loads(data[8:8 + size]), data[8 + size:]
    head.pop("__metadata__", None)
    head = {rule(name): value for name, value in head.items()}
    for name in more:
        head[name] = {"dtype": "F32", "shape": [1], "data_offsets": [len(tensors), len(tensors) + 4]}
        tensors += bytes(4)
    head = json.dumps(head).encode()
    head += b" " * (-len(head) % 8)
    open(target, "wb").write(struct.pack("<Q", len(head)) + head + tensors)
rename("resnet18-weights.safetensors", "lightning.safetensors", lambda name: "backbone." + re.sub(r"^fc\.", "classifier.1.", name))
rename("theirs.safetensors", "moco.safetensors", lambda name: "encoder_q." + name, ["encoder_k.fc.bias", "queue", "queue_ptr"])
END
hetero-train data tokenize tinyshakespeare.txt -o tokens --val-fraction 0.1
small="--set train.steps=2 --set data.batch_size=4 --set model.layers=1 --set model.heads=2 --set model.embedding_size=32"
hetero-train train --experiment-name gpt2 --set model.name=gpt2 --set data.dataset=text --set data.path=tokens --set data.sequence_length=32 $small
hetero-train checkpoint export gpt2 --format hf --output gpt2-folder
for name in bert bert_classify; do
    hetero-train -c configs/bert_classify.toml --set model.init_from= --set experiment.name=$name --set data.path=test.tsv --set data.vocab_file=vocab.txt --set data.sequence_length=32 $small
done
"""
SMALL = "--set train.steps=2 --set data.batch_size=8 --set data.dataset=images --set data.path=photos"
GAVEL = [f"before scripts/docs_commands.py --data gavel/{source} {target}" for source, target in
         (("simulation_throughputs.json",) * 2, ("traces/6c71a0-seed0.trace", "a.trace"),
          ("traces/6c71a0-seed1.trace", "b.trace"))]
# Marks of the examples that begin with a text, without the name of the program. add adds arguments to each
# hetero-train.
MARKED = {
    "-c configs/resnet50.toml": [f"add {SMALL} --set train.eval_interval=0 --set experiment.name=mine"],
    "analyze": ["before cp -r experiments/resnet50 experiments/a && cp -r experiments/resnet50 experiments/b",
                "before hetero-train train --model simple_cnn --dataset synthetic_image --num-samples 640 --batch-size 8 --set data.image_size=8 --set train.steps=80 --set experiment.output_dir=experiments/benchmarks"],
    "analyze --compare experiments/a experiments/b": ["before mkdir -p mlruns/1 && ln -s ../$(cd mlruns && ls -d */*/metrics | sed s,/metrics,,) mlruns/1/0123456789abcdef0123456789abcdef"],
    'analyze --compare experiments/a "http': ["skip it needs an MLflow server"],
    "scripts/lab.sh": ["replace data.batch_size=256 => data.batch_size=32",
                       "add --policies none,hybrid --rounds 3 --block 3"],
    "balance simulate --curves -": ["replace --json => --json < curves.csv"],
    "bench data": ["add --seconds 0.2 --batch-size 8"],
    "bench data --path": ["replace ~/flowers => data/flowers"],
    "bench ops": ["add --steps 1 --warmup 1 --batch-size 2 --image-size 32"],
    "bench sweep --model resnet50": ["replace resnet50 => simple_cnn", "add --seconds 0.05 --rounds 1 --most-batch 2"],
    "bench sweep --model gpt2": ["skip it searches the largest batch that fits, which takes minutes"],
    "bench sweep --model simple_cnn": ["add --seconds 0.05 --rounds 1 --most-batch 4"],
    "bench train --model resnet50": ["add --steps 1 --warmup 1 --batch-size 2 --image-size 32 --trace-steps 1"],
    "bench train --model gpt2": ["add --steps 1 --warmup 1 --batch-size 2 --seq-len 16 --vocabulary 1000"],
    "bench train --model bert_base": ["add --steps 1 --warmup 1 --batch-size 2 --seq-len 16 --vocabulary 1000"],
    "bridge": ["needs jq", "exit 2"],
    "checkpoint export experiments/gpt2": ["before rm -r gpt2-folder"],
    "checkpoint inspect resnet50.safetensors": ["before cp theirs.safetensors resnet50.safetensors"],
    "checkpoint verify resnet50.safetensors": ["before cp theirs.safetensors resnet50.safetensors"],
    "checkpoint import theirs.safetensors --model resnet18": ["before mv lightning.safetensors theirs.safetensors"],
    "completion bash > ~/": ["before mkdir -p ~/.local/share/bash-completion/completions"],
    "completion fish": ["needs fish", "before mkdir -p ~/.config/fish/completions"],
    "completion powershell": ["replace | Out-String | Invoke-Expression => > powershell.ps1"],
    "source <(completion zsh)": ["needs zsh", "replace source <(hetero-train completion zsh) => zsh -c 'autoload -U compinit && compinit && source <(hetero-train completion zsh)'"],
    "completion zsh": ['replace "${fpath[1]}/_hetero-train" => _hetero-train'],
    "config docs | less": ["needs less"],
    "dashboard": ["before cp -r experiments experiments2 && mv experiments2 experiments/benchmarks", "stop 4"],
    "dashboard --address": ["before (umask 077 && echo 0123456789abcdef0123456789abcdef > ~/.hetero-token)"],
    "ssh": ["skip it needs another machine"],
    "data download": ["skip it needs the internet"],
    "data inspect --dataset cifar10": ["skip it needs the internet"],
    "data inspect /data/flowers": ["replace /data/ => data/"],
    "data inspect /data/imagenet": ["replace /data/imagenet => data/flowers"],
    "data inspect '/data": ["replace /data/ => data/", "replace 000146 => 000001"],
    "data inspect shakespeare": ["before mv tokens shakespeare"],
    "data inspect other.bin": [
        "before python3 -c 'import array; array.array(\"I\", range(4000)).tofile(open(\"other.bin\", \"wb\"))'"],
    "data verify /data": ["replace /data/imagenet => data/flowers"],
    "data verify -c": ["replace --json => --set data.dataset=images --set data.path=photos --json"],
    "data repack": ["before tar --zstd -cf train-000000.tar.zst photos && mkdir seekable"],
    "data tokenize web": ["needs zstd",
                          "before for i in {1..500}; do echo '{\"content\": \"text '$i'\"}'; done | zstd -q > web.jsonl.zst"],
    "data verify '/data": ["replace /data/ => data/", "replace 000146 => 000001"],
    "doctor --nproc-per-node 1 --nnodes 2": ["skip it needs another machine"],
    "srun --nodes 4 --ntasks-per-node 1 doctor": ["skip it needs a cluster of Slurm"],
    "eval -c": ["add --set data.dataset=images --set data.path=photos"],
    "eval experiments/resnet50 --set": ["replace /data/ => data/"],
    "generate imported": ["before hetero-train checkpoint import gpt2-folder --output imported"],
    "nccl": ["needs nvidia-smi"],
    "plan": ["add --samples 1"],
    "predict experiments/resnet50 --best": ["needs jq"],
    "profile": ["add --quick"],
    "profile --watch": ["add", "stop 4"],
    "train -c configs/resnet50.toml --gpu-profiles": ["before DOCS_HELP= hetero-train profile --quick -c configs/resnet50.toml --nproc-per-node 2 --output-dir profiles"],
    "runs --json": ["needs jq"],
    "schedule advise": ["skip it needs a cluster with a queue; TestScheduleAdvisesARealSlurm starts one"],
    "schedule compare": ["add --jobs 30"],
    "schedule compare --policy fcfs": ["replace --seeds 50 => --seeds 2"],
    "schedule compare --speeds": [*GAVEL, "add --policy fcfs"],
    "schedule ingest cluster.toml jobs=monday.csv": ["before cp jobs.csv monday.csv"],
    "schedule ingest --speeds": GAVEL,
    "schedule ingest --alibaba": [f"before scripts/docs_commands.py --data alibaba/{name} {name}"
                                  for name in ("job_1_norm.csv", "job_2_norm.csv")],
    "schedule ingest --live": ["needs nvidia-smi"],
    "schedule train": ["add --episodes 40"],
    "schedule train --speeds": GAVEL,
    "selftest": ["add --device reference --run reference/values/conv2d"],
    "HETERO_REQUIRE=cuda": ["needs nvidia-smi"],
    "HETERO_REQUIRE=cpu": ["replace selftest => selftest --run cpu/values/conv2d --device cpu,shm"],
    "status experiments": ["needs jq"],
    "tracking sync": ["replace experiments/resnet50 => experiments/resnet50 --mlflow mlruns"],
    "tracking sync experiments/resnet50 --mlflow": ["skip it needs an MLflow server"],
    "train": [f"add {SMALL} --experiment-name other"],
}


def lines_of(text):
    """Returns the lines of the examples of a help. It joins continued lines, and removes explanations: they follow two
    spaces."""
    part = re.split(r"^(?:Available Commands|Flags|Global Flags):$", text.partition("Examples:\n")[2], maxsplit=1,
                    flags=re.M)[0]
    lines = re.sub(r"\\\n\s*", "", part).splitlines()
    return [line.strip().partition("  ")[0] for line in lines if re.match(r"^  \S", line)]


def commands(*words):
    """Yields each command with the lines of its examples, the commands below it first."""
    text = subprocess.run([ROOT / "hetero-train", *words, "--help"], capture_output=True, text=True, check=True).stdout
    below = text.partition("Available Commands:\n")[2].partition("\n\n")[0]
    for line in below.splitlines():
        if line.split()[0] != "help":
            yield from commands(*words, line.split()[0])
    yield " ".join(words), lines_of(text)


def files():
    """Returns the texts of the files that examples read."""
    return blocks("docs/scheduling.md")[1]


def marks_of(line):
    """Returns the texts of MARKED with which an example begins, and their marks. The longest text gives the arguments
    to add."""
    prefixes = [prefix for prefix in MARKED
                if line.replace("hetero-train ", "", 1).replace("./", "", 1).startswith(prefix)]
    marks, adds = [], []
    for prefix in sorted(prefixes, key=len):
        for value in MARKED[prefix]:
            key, _, text = value.partition(" ")
            if key == "add":
                adds = [(key, text)]
            else:
                marks.append((key, text))
    return prefixes, marks + adds


def examples(only):
    """Yields the name of each command, or of one command, with its examples; a family of commands does not repeat
    theirs."""
    seen, used = set(), set()
    for name, lines in commands():
        lines = [line for line in lines if line not in seen]
        seen.update(lines)
        found = []
        for line in lines:
            prefixes, marks = marks_of(line)
            used.update(prefixes)
            found.append(Block(f"help {name}".strip(), 0, line, marks))
        if lines and only in ("", name):
            yield f"help {name}".strip(), found
    if unused := set(MARKED) - used:
        sys.exit(f"docs_commands: docs_help.py: no example begins with {sorted(unused)[0]!r}")
