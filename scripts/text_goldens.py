#!/usr/bin/env python3
"""Makes the golden runs of transformers in engine/models/testdata/text: training steps of PyTorch, which the tests repeat.

    python3 -m venv .venv && .venv/bin/pip install torch transformers numpy
    .venv/bin/python scripts/text_goldens.py                        # all cases, some minutes on two cores
    .venv/bin/python scripts/text_goldens.py --case gpt2-tiny

Run the script only to add a case or a field: the tests need neither PyTorch nor transformers. The models are those of the
library transformers, computed in f64. Every number comes from the generator of engine/nn/random (here counter_random.py)
with the seed of the file and the name of a stream. Element i of a tensor, in row-major order, has index i:

  parameters  The stream is named as the parameter (names of transformers). Values are normal with deviation `spread`,
              computed in f64 and rounded to f32; the mean is 1 for weights of LayerNorm and RMSNorm, else 0. Weights of linear layers
              are (outputs, inputs), even where transformers stores them transposed (Conv1D).
  batch of step t = 0, 1, 2 …; N samples, T positions
      tokens (N, T)    Bits(i) mod vocabulary, of "golden.tokens.<t>"
      lengths (N)      1 + Bits(n) mod T of "golden.lengths.<t>", and T for sample 0; only if `padded`
      segments (N, T)  1 for positions in the second half of the length, else 0; only for BERT
      labels           causal: token of the next position. masked: Bits(i) mod vocabulary of "golden.labels.<t>" where
                       Bits(i) mod 5 of "golden.masked.<t>" is 0. Both: -1 (ignored) for padding and the last position of
                       the sample. classes: Bits(n) mod classes of "golden.labels.<t>". pairs: as masked
      next (N)         Bits(n) mod 2 of "golden.next.<t>"; only for the target pairs

Training: the loss is the mean over the labels that are not ignored. For the target pairs (BertForPreTraining), the mean
over the samples of the loss of `next` is added; its scores at step 0 are `next_logits`. AdamW with weight decay on all
parameters. No dropout.

Fields: `loss` before each step's update, `valid` the number of labels in each step, `grad_norm` the L2 norm of each
parameter's gradient at step 0, `logits` the first COLUMNS logits of the rows `rows` at step 0.
"""

import argparse
import pathlib
import sys

sys.dont_write_bytecode = True
import numpy as np
import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.pytorch_utils import Conv1D

import golden_file
from counter_random import Stream, indices

TESTDATA = pathlib.Path(__file__).resolve().parent.parent / "engine" / "models" / "testdata" / "text"
COLUMNS = 64

ADAMW = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.1}
GPT2 = {"model": "gpt2", "target": "causal", "padded": False}
LLAMA = {"model": "llama", "target": "causal", "padded": False}
BERT = {"model": "bert", "segments": 2, "padded": True}
TINY = {"seed": 3, "spread": 0.1, "steps": 20, "optimizer": ADAMW, "batch_size": 4, "channels": 48, "heads": 4,
        "layers": 3}
CASES = {
    "gpt2-tiny": {**GPT2, **TINY, "vocabulary": 199, "positions": 32, "length": 23, "rows": [0, 1, 50, 91]},
    "gpt2-tiny-padded": {**GPT2, **TINY, "padded": True, "vocabulary": 199, "positions": 32, "length": 23,
                         "rows": [0, 1, 22, 23]},
    "llama-tiny": {**LLAMA, **TINY, "kv_heads": 2, "inner": 112, "norm_eps": 1e-5, "theta": 10000.0, "vocabulary": 199,
                   "positions": 32, "length": 23, "rows": [0, 1, 50, 91]},
    "bert-tiny": {**BERT, **TINY, "target": "masked", "vocabulary": 211, "positions": 24, "length": 19,
                  "rows": [0, 1, 18, 19]},
    "bert-tiny-pairs": {**BERT, **TINY, "target": "pairs", "vocabulary": 211, "positions": 24, "length": 19,
                        "rows": [0, 1, 18, 19]},
    "bert-tiny-classifier": {**BERT, **TINY, "target": "classes", "classes": 3, "vocabulary": 211, "positions": 24,
                             "length": 19, "rows": [0, 1, 2, 3]},
    # Other activation functions, sizes of the feed-forward layer and epsilons than those of the published models.
    "gpt2-tiny-relu": {**GPT2, **TINY, "inner": 80, "activation": "relu", "norm_eps": 1e-2, "vocabulary": 199,
                       "positions": 32, "length": 23, "rows": [0, 1, 50, 91]},
    "gpt2-tiny-gelu": {**GPT2, **TINY, "inner": 200, "activation": "gelu", "vocabulary": 199, "positions": 32,
                       "length": 23, "rows": [0, 1, 50, 91]},
    "bert-tiny-relu": {**BERT, **TINY, "target": "masked", "inner": 80, "activation": "relu", "norm_eps": 1e-2,
                       "segments": 3, "vocabulary": 211, "positions": 24,
                       "length": 19, "rows": [0, 1, 18, 19]},
    "bert-tiny-classifier-gelu-new": {**BERT, **TINY, "target": "classes", "classes": 3, "activation": "gelu_new",
                                      "norm_eps": 1e-5, "vocabulary": 211, "positions": 24,
                                      "length": 19, "rows": [0, 1, 2, 3]},
    # The published sizes, with short sequences.
    "gpt2-124m": {**GPT2, "seed": 5, "spread": 0.02, "steps": 20, "optimizer": ADAMW, "batch_size": 2, "channels": 768,
                  "heads": 12, "layers": 12,
                  "vocabulary": 50257, "positions": 1024, "length": 65, "rows": [0, 64, 129]},
    "bert-base": {**BERT, "target": "masked", "seed": 5, "spread": 0.02, "steps": 20, "optimizer": ADAMW,
                  "batch_size": 2, "channels": 768, "heads": 12,
                  "layers": 12, "vocabulary": 30522, "positions": 512, "length": 65, "rows": [0, 64, 65]},
}


def network(c):
    if c["model"] == "gpt2":
        config = transformers.GPT2Config(vocab_size=c["vocabulary"], n_positions=c["positions"], n_embd=c["channels"],
                                         n_layer=c["layers"], n_head=c["heads"],
                                         n_inner=c.get("inner"), activation_function=c.get("activation", "gelu_new"),
                                         layer_norm_epsilon=c.get("norm_eps", 1e-5),
                                         embd_pdrop=0, attn_pdrop=0, resid_pdrop=0, attn_implementation="eager")
        return transformers.GPT2LMHeadModel(config)
    if c["model"] == "llama":
        config = transformers.LlamaConfig(vocab_size=c["vocabulary"], max_position_embeddings=c["positions"],
                                          hidden_size=c["channels"], num_hidden_layers=c["layers"],
                                          num_attention_heads=c["heads"], num_key_value_heads=c["kv_heads"],
                                          intermediate_size=c["inner"], rms_norm_eps=c["norm_eps"],
                                          rope_parameters={"rope_type": "default", "rope_theta": c["theta"]},
                                          tie_word_embeddings=False, attention_dropout=0, attn_implementation="eager")
        return transformers.LlamaForCausalLM(config)
    config = transformers.BertConfig(vocab_size=c["vocabulary"], max_position_embeddings=c["positions"],
                                     type_vocab_size=c["segments"],
                                     hidden_size=c["channels"], num_hidden_layers=c["layers"],
                                     num_attention_heads=c["heads"],
                                     intermediate_size=c.get("inner", 4 * c["channels"]),
                                     hidden_act=c.get("activation", "gelu"), layer_norm_eps=c.get("norm_eps", 1e-12),
                                     hidden_dropout_prob=0, attention_probs_dropout_prob=0,
                                     num_labels=c.get("classes", 2), attn_implementation="eager")
    kinds = {"masked": transformers.BertForMaskedLM, "pairs": transformers.BertForPreTraining,
             "classes": transformers.BertForSequenceClassification}
    return kinds[c["target"]](config)


def build(c):
    model = network(c).double()
    transposed = {name + ".weight" for name, m in model.named_modules() if isinstance(m, Conv1D)}
    norms = {name + ".weight" for name, m in model.named_modules() if isinstance(m, (torch.nn.LayerNorm, LlamaRMSNorm))}
    with torch.no_grad():
        for name, p in model.named_parameters():
            shape = tuple(reversed(p.shape)) if name in transposed else tuple(p.shape)
            value = torch.from_numpy(Stream(c["seed"], name).fill_normal(shape, 1.0 if name in norms else 0.0,
                                                                         c["spread"]))
            p.copy_(value.T if name in transposed else value)
    return model.train()


def make_batch(c, step):
    """tokens (N, T), lengths (N), segments (N, T), labels."""
    n, t = c["batch_size"], c["length"]
    draw = lambda name, shape, below: (Stream(c["seed"], f"golden.{name}.{step}").bits(indices(shape)) % np.uint64(
        below)).astype(np.int64).reshape(shape)
    tokens, lengths = draw("tokens", (n, t), c["vocabulary"]), np.full(n, t)
    if c["padded"]:
        lengths = 1 + draw("lengths", (n,), t)
        lengths[0] = t
    position = np.arange(t)[None, :]
    segments = (2 * position >= lengths[:, None]).astype(np.int64)
    if c["target"] == "classes":
        return tokens, lengths, segments, draw("labels", (n,), c["classes"])
    if c["target"] == "causal":
        labels = np.roll(tokens, -1, axis=1)
    else:
        labels = np.where(draw("masked", (n, t), 5) == 0, draw("labels", (n, t), c["vocabulary"]), -1)
    batch = tokens, lengths, segments, np.where(position < lengths[:, None] - 1, labels, -1)
    return (*batch, draw("next", (n,), 2)) if c["target"] == "pairs" else batch


def forward(c, model, batch):
    tokens, lengths, segments, labels, *pairs = (torch.from_numpy(x) for x in batch)
    mask = (torch.arange(c["length"])[None, :] < lengths[:, None]).long()
    extra = {"use_cache": False} if c["target"] == "causal" else {"token_type_ids": segments}
    positions = torch.arange(c["length"])[None, :]
    out, next_logits = model(input_ids=tokens, attention_mask=mask, position_ids=positions, **extra), None
    logits = out.prediction_logits if pairs else out.logits
    logits = logits.reshape(-1, logits.shape[-1])
    loss = torch.nn.functional.cross_entropy(logits, labels.reshape(-1), ignore_index=-1)
    if pairs:
        next_logits = out.seq_relationship_logits
        loss = loss + torch.nn.functional.cross_entropy(next_logits, pairs[0])
        # The loss of the model itself must be the same; it ignores labels of -100.
        own = model(input_ids=tokens, attention_mask=mask, position_ids=positions,
                    labels=torch.where(labels < 0, -100, labels), next_sentence_label=pairs[0], **extra)
        assert abs(own.loss.item() - loss.item()) < 1e-12
    return logits, next_logits, loss, int((labels >= 0).sum())


def golden(c):
    model = build(c)
    o = c["optimizer"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"],
                                  weight_decay=o["weight_decay"])
    result = {"config": c, "made_with": f"torch {torch.__version__}, transformers {transformers.__version__}",
              "loss": [], "valid": []}
    for step in range(c["steps"]):
        logits, next_logits, loss, valid = forward(c, model, make_batch(c, step))
        optimizer.zero_grad()
        loss.backward()
        result["loss"].append(loss.item())
        result["valid"].append(valid)
        if step == 0:
            result["logits"] = logits[c["rows"], :COLUMNS].tolist()
            if next_logits is not None:
                result["next_logits"] = next_logits.tolist()
            result["grad_norm"] = {name: p.grad.norm().item() for name, p in model.named_parameters()
                                   if p.grad is not None}
        optimizer.step()
    return result


def main():
    parser = argparse.ArgumentParser(
        description="Makes the golden runs in engine/models/testdata/text; see the top of this file.")
    parser.add_argument("--case", action="append", choices=CASES, help="run only this case; repeatable (default: all)")
    arguments = parser.parse_args()
    TESTDATA.mkdir(parents=True, exist_ok=True)
    for name in arguments.case or CASES:
        run = golden(CASES[name])
        print(f"{name}: loss {run['loss'][0]:.4f} -> {run['loss'][-1]:.4f}, {run['valid'][0]} labels, {len(run['grad_norm'])} parameters")
        (TESTDATA / f"{name}.json").write_text(golden_file.text(run))


if __name__ == "__main__":
    main()
