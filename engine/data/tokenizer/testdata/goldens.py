"""Writes gpt2.json and wordpiece.json: the tokens of tiktoken and of Hugging Face's tokenizers.

usage: goldens.py RANKS
RANKS is r50k_base.tiktoken (SHA-256 306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930), which
TestTheEmbeddedVocabularyIsThatOfGPT2 writes with -args -ranks=FILE.
Needs tiktoken (0.14.0 was used) and tokenizers (0.23.3).
"""
import base64
import hashlib
import json
import pathlib
import random
import sys

import tiktoken
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

here = pathlib.Path(__file__).parent
PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""


def texts():
    fixed = [
        "", " ", "  ", "\n", "a", "Hello world", "Hello  world ", " leading", "trailing ",
        "tabs\tand\r\nlines\n\n\nend",
        "I'm you're he's we've they'll I'd can't CAN'T I'M 'sample 'tis 've 'll 'l 'r 'v ''s'",
        "12345 1,234.56 3rd x2 ²³ ⅷ Ⅷ ٣٤",
        "naïve café résumé Ångström ﬁne ① İstanbul ıŞ ẞ ß ΣΑΣ Σ", "e\u0301 a\u030a \u0301x n\u0303o",
        "你好,世界。これはペンです。 한국어 조선글", "😀👍🏽👨‍👩‍👧 flags 🇩🇪",
        "a\u00a0b\u2003c\u3000d\u2028e\u2029f\u202fg", "zero\u200bwidth\u200djoin\ufeffbom soft\u00adhyphen",
        "a\u0085b\x0bc\x0cd\x1ce", "ctrl\x01\x02\x7f\x80\x9fend", "\ufffd replaced \ufffd",
        "private \ue000 use", "$5 + 3 = 8; 2^3 `code` <tag> a|b ~x", "don’t “quote” — dash… ¿qué? ¡sí! «fr»",
        "<|endoftext|> [SEP] [MASK] ##ing",
        "x" * 100, "x" * 101, "ab" * 200, "supercalifragilisticexpialidocious", "http://example.com/a?b=c&d=e#f",
        "\u037e \u1fef \u2000 \u212b \u2126 \u00b5",
        "   \n   \n  indented\n\tcode", "a \n b", "a\n b", "a \u3000b", "0" * 50, "!" * 50, "é" * 60,
        "क्षत्रिय हिन्दी ไทยภาษา العربية עברית", "\U0001d400\U0001d7ce \u0bcd\u0b95",
    ]
    r = random.Random(1)
    alphabet = "aAbBeisStTrvlmd'  \n\t.,!?-19éÅ你한\u0301\u00a0\u3000😀ß²_#[]"
    for _ in range(200):
        fixed.append("".join(r.choice(alphabet) for _ in range(r.randrange(1, 40))))
    return fixed


def gpt2(ranks_file):
    raw = pathlib.Path(ranks_file).read_bytes()
    assert hashlib.sha256(raw).hexdigest() == "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"
    ranks = {base64.b64decode(t): int(n) for t, n in (line.split() for line in raw.splitlines())}
    e = tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256},
                          explicit_n_vocab=50257)
    return e


def vocabulary():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words += list("abcdefghijklmnopqrstuvwxyzABEST0123456789.,!?'-_#[]$+=;^`<>|~:/&()")
    words += ["##" + c for c in "abcdefghijklmnopqrstuvwxyzABEST0123456789"]
    words += ["hello", "world", "Hello", "the", "##ing", "##ed", "##er", "super", "##cali", "naive", "café", "cafe",
              "resume", "你", "好", "世", "end", "tab", "##s", "line", "##lo", "can", "é", "É", "##é", "ß", "ᄒ", "##ᅡ",
              "##ᆫ", "σ", "##σ", "α", "##α", "¿", "“", "”", "’", "…", "—", "i", "##\u0307", "한", "Σ", "##Σ", "##ß", "😀"]
    return list(dict.fromkeys(words))  # without duplicates


def wordpiece(words, cased):
    t = Tokenizer(models.WordPiece(vocab={w: i for i, w in enumerate(words)}, unk_token="[UNK]",
                                   max_input_chars_per_word=100))
    t.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return t


def main():
    e = gpt2(sys.argv[1])
    write = lambda name, rows: (here / name).write_text("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")
    write("gpt2.json", [{"text": t, "tokens": e.encode_ordinary(t)} for t in texts()])
    words = vocabulary()
    (here / "vocab.txt").write_text("".join(w + "\n" for w in words))
    lower, cased = wordpiece(words, False), wordpiece(words, True)
    write("wordpiece.json", [{"text": t, "tokens": lower.encode(t).ids, "cased": cased.encode(t).ids} for t in texts()])


if __name__ == "__main__":
    main()
