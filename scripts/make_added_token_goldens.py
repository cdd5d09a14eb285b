#!/usr/bin/env python3
"""Writes fixtures/added-tokens.json: vocabularies of added tokens, and the ids by Hugging Face's tokenizers.

    pip install tokenizers==0.23.3
    scripts/make_added_token_goldens.py [FILE]

The tokens and texts are random, of few pieces, so that tokens are prefixes, suffixes and overlaps of each other; some
are spelt like tokens of the vocabulary. The vocabulary is that of tests/support/small_tokenizer.hpp: a token for every
byte, then those of `tokens`.
"""

import json
import random
import sys
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

FILE = Path(__file__).resolve().parent.parent / "fixtures" / "added-tokens.json"
PIECES = ["a", "a", "b", "<", ">", " ", "\n", "é", "Ġ", "日", "\u00a0", "\u00ad"]
TOKENS = ["ab", "Ġa", "Ã©", "éa"]
MERGES = ["a b", "Ġ a", "Ã ©", "é a"]
VOCABULARIES = 30
TEXTS = 6


def byte_characters():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(0x100 + i) for i, byte in enumerate(others)}


def make_tokenizer():
    vocabulary = {character: byte for byte, character in byte_characters().items()}
    for token in TOKENS:
        vocabulary[token] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocabulary, [tuple(merge.split(" ")) for merge in MERGES]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def make_case(rng):
    def text_of(pieces, most):
        return "".join(rng.choice(pieces) for _ in range(rng.randint(1, most)))

    tokenizer = make_tokenizer()
    contents = list(dict.fromkeys([text_of(PIECES, 5) for _ in range(rng.randint(1, 12))]))
    if rng.random() < 0.3:
        contents.append(rng.choice([token for token in TOKENS if token not in contents]))
    for content in contents:
        token = AddedToken(content, normalized=rng.random() < 0.3)
        tokenizer.add_special_tokens([token]) if rng.random() < 0.5 else tokenizer.add_tokens([token])
    texts = [text_of(PIECES + contents + contents, 14) for _ in range(TEXTS)]
    # As a user would: from the file, in which it may stand in another order.
    saved = json.loads(tokenizer.to_str())
    loaded = Tokenizer.from_str(json.dumps(saved))
    cases = [{"text": text, "ids": loaded.encode(text, add_special_tokens=False).ids} for text in texts]
    return {"added_tokens": saved["added_tokens"], "texts": cases}


def main():
    rng = random.Random(1)
    goldens = {
        "source": f"tokenizers {tokenizers.__version__}, by scripts/make_added_token_goldens.py",
        "tokens": TOKENS,
        "merges": MERGES,
        "cases": [make_case(rng) for _ in range(VOCABULARIES)],
    }
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    text = json.dumps(goldens, ensure_ascii=False, separators=(",", ":"))
    path.write_text(text.replace('{"added_tokens"', '\n{"added_tokens"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
