#!/usr/bin/env python3
"""Moves GPT-2 and BERT between Hugging Face's transformers and this program, and compares the outputs of both.

    python3 -m venv .venv && .venv/bin/pip install torch transformers safetensors numpy
    .venv/bin/python scripts/check_hf.py [--program ./hetero-train] [--device cpu]

 1. hetero-train -> transformers: the script trains a small GPT-2 for some steps and exports it with --format hf.
    from_pretrained must load the folder without missing or unexpected names. The loss of transformers for the
    evaluation samples must be that of hetero-train's last evaluation.
 2. transformers -> hetero-train: the script saves a GPT-2 with random weights and large biases by save_pretrained, as
    GPT2LMHeadModel and as GPT2Model. The program imports and exports it. All weights must be equal bit by bit, and the
    loss of an evaluation of the imported weights must be that of transformers.

The samples of the evaluation are a token file that the script writes, so both programs read the same tokens.

BERT goes both ways as BertForMaskedLM, BertForPreTraining (with model.next_sentence, and as a source without it) and
BertForSequenceClassification. The
comparison is of the predictions of hetero-train for texts with [MASK], and of the probabilities of classes of texts
and pairs of texts.

The script repeats this with models of other activation functions, sizes of feed-forward layers, epsilons and numbers of
segments than the published ones, and with weights in several files. AutoTokenizer must load the tokenizer of each
export, and must give the tokens of `data tokenize`. Greedy generation (the most likely token each time) must give the
same text in both programs.
Exit code 1 if a comparison fails.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers
from safetensors.torch import load_file

VOCABULARY, LENGTH = 97, 24
failed = False


def check(what, good, detail):
    global failed
    failed |= not good
    print(f"{'ok    ' if good else 'FAILED'} {what}: {detail}")


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def write_tokens(folder):
    """Writes token files without header, as nanoGPT does: a noisy cycle, so that a model can learn something."""
    folder.mkdir()
    random = numpy.random.default_rng(1)
    for name, count in (("train.bin", 4_000), ("val.bin", 1 + LENGTH * 40)):
        steps = random.choice([1, 2, 5], size=count)
        (numpy.cumsum(steps) % VOCABULARY).astype("<u2").tofile(folder / name)


def loss_of(model, folder):
    tokens = torch.from_numpy(numpy.fromfile(folder / "val.bin", "<u2").astype(numpy.int64))
    x, y = tokens[:-1].view(-1, LENGTH), tokens[1:].view(-1, LENGTH)
    with torch.no_grad():
        logits = model.eval()(x).logits
    return torch.nn.functional.cross_entropy(logits.double().view(-1, VOCABULARY), y.reshape(-1)).item()


def train(args, output, data, *extra):
    run(args.program, "train", "--set", f"device.kind={args.device}", "--set", "model.name=gpt2", "--set",
        "model.layers=3",
        "--set", "model.heads=4", "--set", "model.embedding_size=48", "--set", "data.dataset=text", "--set",
        f"data.path={data}",
        "--set", f"data.vocabulary={VOCABULARY}", "--set", f"data.sequence_length={LENGTH}", "--set",
        "data.batch_size=16",
        "--set", "train.precision=f32", "--set", "train.epochs=1", "--set", "optimizer.name=adamw", "--set",
        f"experiment.output_dir={output}",
        "--set", "experiment.name=run", *extra)
    result = json.loads((output / "run" / "results" / "result.json").read_text())
    return result


def evaluation(result):
    """Returns the loss of the evaluation at the end of the run."""
    if result["best_eval_metric"] != "perplexity":
        sys.exit(f"the run has no perplexity: {result}")
    return math.log(result["best_eval"])


def close(what, ours, theirs):
    error = abs(ours - theirs) / abs(theirs)
    check(what, error < 1e-5, f"loss {ours:.7f} here, {theirs:.7f} in transformers, relative difference {error:.1e}")


def load(folder):
    model, info = transformers.GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
    problems = {k: sorted(v) for k, v in info.items() if v}
    check("from_pretrained", not problems, problems or "no missing, unexpected or mismatched names")
    return model


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + "the a cat dog saw sat on mat and ran big small .".split()
TEXTS = ["the cat sat on the [MASK] .", "a [MASK] dog saw the cat and the [MASK] ran", "the [MASK]"]
CLASSES = ["bad", "good", "neither"]


def write_vocabulary(folder):
    path = folder / "vocab.txt"
    path.write_text("\n".join(WORDS) + "\n")
    return path


def bert_config(**extra):
    return transformers.BertConfig(vocab_size=len(WORDS), hidden_size=48, num_hidden_layers=3, num_attention_heads=4,
                                   intermediate_size=80, max_position_embeddings=24, **extra)


def shaken(model):
    """Adds noise to all parameters, so that biases and the weights of LayerNorm can show a mistake."""
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.2)
    return model.eval()


def predictions(args, checkpoint, vocab, folder, texts, top):
    path = folder / "texts.txt"
    path.write_text("\n".join(texts) + "\n")
    out = run(args.program, "predict", checkpoint, path, "--vocab", vocab, "--json", "--top", top, "--device",
              args.device, "--precision", "f32")
    return [json.loads(line) for line in out.splitlines()]


def probabilities(guesses):
    return torch.tensor([g["probability"] for g in sorted(guesses, key=lambda g: g["id"] if "id" in g else g["label"])],
                        dtype=torch.float64)


def encode(text, second=None):
    """Returns tokens and segments of texts that consist of words of the vocabulary."""
    ids = [WORDS.index(w) for w in text.split()]
    tokens = [2] + ids + [3]
    segments = [0] * len(tokens)
    if second is not None:
        more = [WORDS.index(w) for w in second.split()] + [3]
        tokens, segments = tokens + more, segments + [1] * len(more)
    return torch.tensor([tokens]), torch.tensor([segments])


def compare_masked(args, what, checkpoint, vocab, folder, model):
    worst = 0.0
    for line in predictions(args, checkpoint, vocab, folder, TEXTS, len(WORDS)):
        tokens, segments = encode(TEXTS[line["line"] - 1])
        with torch.no_grad():
            logits = model(input_ids=tokens, token_type_ids=segments)[0][0]
        places = (tokens[0] == WORDS.index("[MASK]")).nonzero().flatten().tolist()
        for at, guesses in zip(places, line["masks"], strict=True):
            worst = max(worst, (probabilities(guesses) - logits[at].double().softmax(0)).abs().max().item())
    check(what, worst < 1e-5, f"probabilities of masked tokens differ by at most {worst:.1e}")


def compare_classes(args, what, checkpoint, vocab, folder, model, pairs):
    texts = ["the cat sat", "a big dog ran and the small cat saw", "the mat ."]
    seconds = ["a dog", "the mat", "the cat and a dog"] if pairs else [None] * 3
    lines = [t if s is None else t + "\t" + s for t, s in zip(texts, seconds)]
    worst = 0.0
    for line in predictions(args, checkpoint, vocab, folder, lines, len(CLASSES)):
        tokens, segments = encode(texts[line["line"] - 1], seconds[line["line"] - 1])
        with torch.no_grad():
            logits = model(input_ids=tokens, token_type_ids=segments).logits[0]
        worst = max(worst, (probabilities(line["top"]) - logits.double().softmax(0)).abs().max().item())
    check(what, worst < 1e-5, f"probabilities of classes differ by at most {worst:.1e}")


def equal_weights(what, got, want):
    differ = [n for n in set(got) | set(want) if n not in got or n not in want or not torch.equal(got[n], want[n])]
    check(what, not differ, differ or f"{len(got)} tensors equal bit by bit")


def loads(kind, folder):
    model, info = kind.from_pretrained(folder, output_loading_info=True)
    problems = {k: sorted(v) for k, v in info.items() if v}
    check(f"{kind.__name__}.from_pretrained", not problems, problems or "no missing, unexpected or mismatched names")
    return model.eval()


def check_bert(args, folder):
    vocab = write_vocabulary(folder)
    torch.manual_seed(2)
    masked = shaken(transformers.BertForMaskedLM(bert_config()))
    pre = shaken(transformers.BertForPreTraining(bert_config()))
    tied = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
    for model in (masked, pre):
        kind = type(model).__name__
        theirs, imported, back = folder / kind, folder / (kind + ".imported"), folder / (kind + ".back")
        model.save_pretrained(theirs)
        run(args.program, "checkpoint", "import", theirs, "--format", "hf", "--output", imported)
        run(args.program, "checkpoint", "export", imported, "--format", "hf", "--output", back)
        want = {n: t for n, t in model.state_dict().items() if n not in tied
                and not n.startswith(("bert.pooler", "cls.seq_relationship"))}
        equal_weights(f"{kind} -> hetero-train -> transformers", load_file(back / "model.safetensors"), want)
        compare_masked(args, f"{kind} -> hetero-train", imported, vocab, folder, model)
        compare_masked(args, f"hetero-train -> BertForMaskedLM, from {kind}", imported, vocab, folder,
                       loads(transformers.BertForMaskedLM, back))

    theirs, imported, back = folder / "BertForPreTraining", folder / "pairs.imported", folder / "pairs.back"
    run(args.program, "checkpoint", "import", theirs, "--format", "hf", "--set", "model.next_sentence=true", "--output",
        imported)
    run(args.program, "checkpoint", "export", imported, "--format", "hf", "--output", back)
    want = {n: t for n, t in pre.state_dict().items() if n not in tied}
    equal_weights("BertForPreTraining -> hetero-train with next_sentence -> transformers",
                  load_file(back / "model.safetensors"), want)
    compare_masked(args, "hetero-train -> BertForPreTraining", imported, vocab, folder,
                   loads(transformers.BertForPreTraining, back))

    classifier = shaken(transformers.BertForSequenceClassification(
        bert_config(id2label=dict(enumerate(CLASSES)), label2id={c: i for i, c in enumerate(CLASSES)})))
    theirs, imported, back = folder / "classifier", folder / "classifier.imported", folder / "classifier.back"
    classifier.save_pretrained(theirs)
    run(args.program, "checkpoint", "import", theirs, "--output", imported)
    run(args.program, "checkpoint", "export", imported, "--format", "hf", "--output", back)
    equal_weights("BertForSequenceClassification -> hetero-train -> transformers",
                  load_file(back / "model.safetensors"), classifier.state_dict())
    compare_classes(args, "BertForSequenceClassification -> hetero-train", imported, vocab, folder, classifier, False)

    # hetero-train fine-tunes the masked model on pairs of texts, and transformers reads the result.
    rows = [("the cat sat", "a dog ran", "good"), ("the dog", "the mat", "bad"), ("a cat", "a cat", "neither")] * 20
    data = folder / "pairs.tsv"
    data.write_text("first\tsecond\tlabel\n" + "".join("\t".join(r) + "\n" for r in rows))
    run(args.program, "train", "--set", f"device.kind={args.device}", "--set", "model.name=bert_base", "--set",
        "model.layers=3", "--set", "model.heads=4",
        "--set", "model.embedding_size=48", "--set", "model.inner_size=80", "--set", "model.positions=24", "--set",
        f"model.init_from={folder / 'BertForPreTraining'}",
        "--set", "data.dataset=labelled_text", "--set", f"data.path={data}", "--set", f"data.vocab_file={vocab}",
        "--set", "data.sequence_length=20",
        "--set", "data.text_column=first", "--set", "data.second_column=second", "--set", "data.batch_size=8", "--set",
        "train.precision=f32",
        "--set", "train.epochs=2", "--set", "optimizer.name=adamw", "--set", f"experiment.output_dir={folder}", "--set",
        "experiment.name=tuned")
    run(args.program, "checkpoint", "export", folder / "tuned", "--format", "hf", "--output", folder / "tuned.hf")
    tuned = loads(transformers.BertForSequenceClassification, folder / "tuned.hf")
    check("names of classes", [tuned.config.id2label[i] for i in range(3)] == CLASSES, tuned.config.id2label)
    compare_classes(args, "fine-tuned by hetero-train -> BertForSequenceClassification", folder / "tuned", vocab,
                    folder, tuned, True)


def check_other_sizes(args, folder, data):
    """GPT-2 and BERT with settings that the published models do not have, in one file and in several."""
    for at, (activation, inner, eps, shard) in enumerate([("relu", 80, 1e-3, "5GB"), ("gelu", None, 1e-5, "20KB")]):
        torch.manual_seed(3)
        config = transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=48, n_layer=3, n_head=4,
                                         n_inner=inner, activation_function=activation,
                                         layer_norm_epsilon=eps, bos_token_id=None, eos_token_id=None)
        model = shaken(transformers.GPT2LMHeadModel(config))
        theirs, imported, back = folder / f"gpt2.{at}", folder / f"gpt2.{at}.imported", folder / f"gpt2.{at}.back"
        model.save_pretrained(theirs, max_shard_size=shard)
        run(args.program, "checkpoint", "import", theirs, "--format", "hf", "--output", imported)
        run(args.program, "checkpoint", "export", imported, "--format", "hf", "--output", back)
        close(f"GPT-2 with {activation} -> hetero-train -> transformers", loss_of(load(back), data),
              loss_of(model, data))
        out = json.loads(run(args.program, "eval", imported, "--json", "--device", args.device, "--precision", "f32",
                             "--set", "data.dataset=text", "--set", f"data.path={data}",
                             "--set", f"data.vocabulary={VOCABULARY}", "--set", f"data.sequence_length={LENGTH}"))
        close(f"GPT-2 with {activation} -> hetero-train", out["loss"], loss_of(model, data))

    vocab = write_vocabulary(folder)
    for at, (activation, segments) in enumerate([("relu", 1), ("gelu_new", 3)]):
        torch.manual_seed(4)
        model = shaken(transformers.BertForMaskedLM(bert_config(hidden_act=activation, layer_norm_eps=1e-3,
                                                                type_vocab_size=segments)))
        theirs, imported = folder / f"bert.{at}", folder / f"bert.{at}.imported"
        model.save_pretrained(theirs)
        run(args.program, "checkpoint", "import", theirs, "--format", "hf", "--output", imported)
        compare_masked(args, f"BERT with {activation} and {segments} segments -> hetero-train", imported, vocab, folder,
                       model)


TEXT = "It's the cat's MAT, don't you   see?\n\tNaïve café: 12,345 dogs — 猫が好き… 😀🙈 http://x.y/z_1 the a dog sat"


def check_tokenizers(args, folder):
    """AutoTokenizer reads the tokens that hetero-train trains on."""
    vocab, text = write_vocabulary(folder), folder / "text.txt"
    text.write_text((TEXT + "\n") * 40)
    one = folder / "one.txt"
    one.write_text(TEXT)
    sizes = ["--set", "model.layers=1", "--set", "model.heads=2", "--set", "model.embedding_size=16", "--set",
             "data.sequence_length=24", "--set", "data.batch_size=4",
             "--set", "train.steps=1", "--set", "train.precision=f32", "--set", f"experiment.output_dir={folder}"]
    for name in ("bytes", "gpt2", "wordpiece", "wordpiece-cased"):
        words = name.startswith("wordpiece")
        how = ["--tokenizer", name] + (["--vocab", vocab] if words else [])
        run(args.program, "data", "tokenize", text, "-o", folder / name, "--val-fraction", "0.2", "--separator", "\\n",
            *how)
        run(args.program, "data", "tokenize", one, "-o", folder / f"{name}.one", *how)
        run(args.program, "train", "--set", f"device.kind={args.device}", "--set",
            f"model.name={'bert_base' if words else 'gpt2'}", "--set", "data.dataset=text",
            "--set", f"data.path={folder / name}", "--set", f"experiment.name={name}.run", *sizes)
        run(args.program, "checkpoint", "export", folder / f"{name}.run", "--format", "hf", "--output",
            folder / f"{name}.hf")
        shard = next((folder / f"{name}.one").glob("*.bin"))
        want = numpy.frombuffer(shard.read_bytes()[256:], "<u2").tolist()[:-1]  # without the token that ends the text
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder / f"{name}.hf")
        got = tokenizer(TEXT, add_special_tokens=False).input_ids
        check(f"AutoTokenizer of {name}", got == want, f"{type(tokenizer).__name__}, {len(got)} tokens")
        framed = tokenizer(TEXT).input_ids
        check(f"special tokens of {name}", framed == ([2] + want + [3] if words else want),
              f"{len(framed) - len(got)} more")
        if not words:
            check(f"text of {name}", tokenizer.decode(got) == TEXT, repr(tokenizer.decode(got))[:40])
            check_greedy(args, name, folder, tokenizer)


def check_greedy(args, name, folder, tokenizer):
    """generate of both libraries gives the same text from the same prompt."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / f"{name}.hf").eval()
    end = tokenizer.eos_token_id
    check(f"end of text of {name}", model.generation_config.eos_token_id == end == len(tokenizer) - 1, end)
    ours = json.loads(run(args.program, "generate", folder / f"{name}.run", "--device", args.device, "--precision",
                          "f32", "--prompt", "the cat",
                          "--tokens", 12, "--temperature", 0, "--json"))
    prompt = tokenizer("the cat", return_tensors="pt")
    with torch.no_grad():
        theirs = model.generate(**prompt, max_new_tokens=12, do_sample=False, pad_token_id=end)[
            0, prompt.input_ids.shape[1]:].tolist()
    check(f"greedy text of {name}", [t for t in theirs if t != end] == ours["tokens"], f"{len(theirs)} tokens")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="./hetero-train")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    print(
        f"torch {torch.__version__}, transformers {transformers.__version__}, {run(args.program, '--version').strip()}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        data = folder / "data"
        write_tokens(data)

        result = train(args, folder / "trained", data)
        run(args.program, "checkpoint", "export", folder / "trained" / "run", "--format", "hf", "--output",
            folder / "exported")
        close("hetero-train -> transformers", evaluation(result), loss_of(load(folder / "exported"), data))

        torch.manual_seed(1)
        config = transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=48, n_layer=3, n_head=4,
                                         bos_token_id=None, eos_token_id=None)
        model = transformers.GPT2LMHeadModel(config)
        with torch.no_grad():
            for p in model.parameters():
                # changes biases and weights of LayerNorm, so that the comparison finds mistakes in them
                p.add_(torch.randn_like(p) * 0.2)
        for kind, saved in (("GPT2LMHeadModel", model), ("GPT2Model", model.transformer)):
            theirs, imported, back = folder / kind, folder / (kind + ".imported"), folder / (kind + ".back")
            saved.save_pretrained(theirs)
            run(args.program, "checkpoint", "import", theirs, "--format", "hf", "--output", imported)
            run(args.program, "checkpoint", "export", imported, "--format", "hf", "--output", back)
            got, want = load_file(back / "model.safetensors"), model.state_dict()
            want.pop("lm_head.weight")
            differ = [n for n in set(got) | set(want) if n not in got or n not in want
                      or not torch.equal(got[n], want[n])]
            check(f"{kind} -> hetero-train -> transformers", not differ, differ
                  or f"{len(got)} tensors equal bit by bit")
            # A learning rate of 0 keeps the weights; the run ends with an evaluation of them.
            result = train(args, folder / (kind + ".run"), data, "--set", f"model.init_from={theirs}", "--set",
                           "optimizer.lr=0.0", "--set", "optimizer.weight_decay=0.0")
            close(f"{kind} -> hetero-train", evaluation(result), loss_of(model, data))
        check_bert(args, folder)
        check_other_sizes(args, folder, data)
        check_tokenizers(args, folder)
    sys.exit(failed)


main()
