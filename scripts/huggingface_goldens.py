#!/usr/bin/env python3
"""Writes engine/data/huggingface/testdata: small data sets in the forms of Hugging Face's library datasets, and rows.json
with the rows that the library reads from them. The script needs datasets, Pillow and numpy:

    python3 scripts/huggingface_goldens.py [FOLDER]"""
import hashlib
import io
import json
import pathlib
import shutil
import sys

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image, Sequence, Value
from PIL import Image as Pillow

out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "engine/data/huggingface/testdata")
shutil.rmtree(out, ignore_errors=True)
out.mkdir(parents=True)
datasets.disable_progress_bars()
random = np.random.default_rng(0)
kinds = ["JPEG", "PNG", "WEBP"]
classes = ["rose", "daisy", "tulip"]  # not in alphabetical order


def encoded(k):
    buffer = io.BytesIO()
    base = np.full((9, 11, 3), 40 + 70 * (k % 3), np.uint8) + random.integers(0, 30, (9, 11, 3), np.uint8)
    Pillow.fromarray(base).save(buffer, kinds[k % 3])
    return buffer.getvalue()


def images(n, first=0):
    return Dataset.from_dict(
        {"image": [{"bytes": encoded(k), "path": f"{k}.img"} for k in range(first, first + n)],
         "label": [k % 3 for k in range(first, first + n)]},
        features=Features({"image": Image(), "label": ClassLabel(names=classes)}))


def texts(n):
    words = ["the", "good", "bad", "film", "was", "very", "long", "and", "short", "nice"]
    return Dataset.from_dict(
        {"text": [" ".join(words[(k * k + 3 * j) % 10] for j in range(3 + k % 9)) + ("\n“ü”" if k % 5 == 0 else "")
                  for k in range(n)],
         "label": [k % 2 for k in range(n)]},
        features=Features({"text": Value("string"), "label": ClassLabel(names=["positive", "negative"])}))


rows = {}


def remember(name, dataset):
    kept = []
    if "image" in dataset.column_names:
        dataset = dataset.cast_column("image", Image(decode=False))
    for row in dataset:
        if "image" in row:
            row = dict(row, image=hashlib.sha256(row["image"]["bytes"]).hexdigest())
        kept.append(row)
    rows[name] = kept


train, test = images(30), images(6, 30)
both = DatasetDict({"train": train, "test": test})
both.save_to_disk(str(out / "images_disk"), num_shards={"train": 2, "test": 1})
remember("images_disk/train", train)
remember("images_disk/test", test)
# several labels per image: a list of ClassLabels, and a vector with 0 or 1 for each label
several = [[2, 0], [1], [], [0, 2], [0, 1, 2], [1]]
pictures = images(6).remove_columns("label")
multi = pictures.add_column("labels", several).cast(
    Features({"image": Image(), "labels": Sequence(ClassLabel(names=classes))}))
multi.save_to_disk(str(out / "several_disk"))
multi.to_parquet(str(out / "several.parquet"))
pictures.add_column("labels", [[int(k in row) for k in range(3)] for row in several]).to_parquet(
    str(out / "vectors.parquet"))
# a cache, as load_dataset leaves it: NAME/CONFIG/VERSION/FINGERPRINT
cache = out / "cache/flowers/default/0.0.0/0123456789abcdef"
cache.mkdir(parents=True)
for split, dataset in both.items():
    with pa.OSFile(str(cache / f"flowers-{split}.arrow"), "wb") as f, \
            pa.ipc.new_stream(f, dataset.data.schema) as w:
        for batch in dataset.data.to_batches(max_chunksize=7):
            w.write_batch(batch)
info = train.info
info.splits = datasets.SplitDict()
for split, dataset in both.items():
    info.splits[split] = datasets.SplitInfo(name=split, num_examples=len(dataset), dataset_name="flowers")
info.dataset_name, info.builder_name, info.config_name = "flowers", "parquet", "default"
info.write_to_directory(str(cache))
(cache / "cache-0123456789abcdef.arrow").write_bytes(b"the result of a map, which is not read")
# Parquet, as push_to_hub writes it
folder = out / "images_parquet/data"
folder.mkdir(parents=True)
for k in range(2):
    train.shard(2, k, contiguous=True).to_parquet(str(folder / f"train-0000{k}-of-00002.parquet"))
test.to_parquet(str(folder / "test-00000-of-00001.parquet"))
# older versions compress the images, and use dictionaries
pq.write_table(train.data.table, out / "images_snappy.parquet", compression="snappy", row_group_size=8)
texts(40).save_to_disk(str(out / "texts_disk"))
remember("texts_disk", texts(40))
folder = out / "texts_parquet"
folder.mkdir()
texts(40).to_parquet(str(folder / "train.parquet"))
texts(12).to_parquet(str(folder / "validation.parquet"))
tokens = Dataset.from_dict({"input_ids": [[(7 * k + j) % 50 for j in range(k % 13)] for k in range(60)]},
                           features=Features({"input_ids": Sequence(Value("int32"))}))
DatasetDict({"train": tokens, "validation": tokens.select(range(20))}).save_to_disk(str(out / "tokens_disk"))
remember("tokens_disk/train", tokens)
tokens.to_parquet(str(out / "tokens.parquet"))
# all kinds of values
table = pa.table({
    "i8": pa.array([1, None, -3], pa.int8()), "u16": pa.array([1, 65535, None], pa.uint16()),
    "i64": pa.array([-2**62, 0, 7]), "f32": pa.array([0.5, None, -2], pa.float32()), "f64": pa.array([0.25, 1e300, None]),
    "b": pa.array([True, False, None]), "s": pa.array(["a", None, "ü\n"]), "ls": pa.array(["x", "", None], pa.large_string()),
    "bin": pa.array([b"\0\1", None, b""]), "list": pa.array([[1, 2], [], None], pa.list_(pa.int64())),
    "large": pa.array([[5], None, [6, 7, 8]], pa.large_list(pa.int16())),
    "fixed": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2)),
    "struct": pa.array([{"n": 1, "t": "x"}, None, {"n": None, "t": "y"}], pa.struct([("n", pa.int32()), ("t", pa.string())])),
    "time": pa.array([1, 2, 3], pa.timestamp("s")), "nested": pa.array([[["a"]], None, []], pa.list_(pa.list_(pa.string()))),
    "null": pa.nulls(3), "last": pa.array([7, 8, 9])})
with pa.OSFile(str(out / "kinds.arrow"), "wb") as f, pa.ipc.new_file(f, table.schema) as w:
    w.write_table(table)
pq.write_table(table.drop(["null"]), out / "kinds.parquet")
with pa.OSFile(str(out / "compressed.arrow"), "wb") as f, \
        pa.ipc.new_stream(f, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as w:
    w.write_table(table)
(out / "rows.json").write_text(json.dumps(rows, ensure_ascii=False, indent=0) + "\n")
