#!/usr/bin/env python3
"""Writes fixtures/rules.json: what rules make of logits, and which tokens stay in a draw, by Hugging Face's transformers.

    pip install transformers==5.24.0 torch numpy
    scripts/make_rules_goldens.py [FILE]

The processors and their order are those that a GPT-2 of transformers makes of a GenerationConfig. Only presence and
frequency penalty are written here, by OpenAI's formula, for transformers has none. A row of logits is written as the
bits of its floats, in eight hexadecimal digits each.

Rules compute in float32. What stays in a draw is computed in float64. No case is taken in which a setting that differs
by a millionth leaves other tokens, or in which few draws could not tell: each token that stays has a share of at least
0.4 percent, and so would have one of those that don't, if there are any.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel, LogitsProcessor
from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor, SequenceBiasLogitsProcessor

FILE = Path(__file__).resolve().parent.parent / "fixtures" / "rules.json"
V = 40


class OutputPenalties(LogitsProcessor):
    """https://platform.openai.com/docs, "Frequency and presence penalties". All numbers have so few bits that nothing is
    rounded but the differences."""

    def __init__(self, presence, frequency, prompt_tokens):
        self.presence, self.frequency, self.prompt_tokens = presence, frequency, prompt_tokens

    def __call__(self, input_ids, scores):
        counts = torch.bincount(input_ids[0, self.prompt_tokens :], minlength=V).to(scores.dtype)
        return scores - counts * self.frequency - (counts > 0).to(scores.dtype) * self.presence


def processors_of(model, settings, prompt_tokens=1):
    names = {"suppress_tokens", "no_repeat_ngram_size", "repetition_penalty"}
    names |= {"temperature", "top_k", "top_p", "min_p", "typical_p"}
    config = GenerationConfig(**{name: value for name, value in settings.items() if name in names})
    config.do_sample = "temperature" in settings
    if not config.do_sample:
        config.temperature = config.top_k = config.top_p = None
    if "logit_bias" in settings:
        config.sequence_bias = {(bias["id"],): bias["bias"] for bias in settings["logit_bias"]}
    processors = model._get_logits_processor(config, input_ids_seq_length=prompt_tokens)
    penalties = OutputPenalties(
        settings.get("presence_penalty", 0.0), settings.get("frequency_penalty", 0.0), prompt_tokens
    )
    before = (SequenceBiasLogitsProcessor, RepetitionPenaltyLogitsProcessor)
    processors.insert(sum(isinstance(processor, before) for processor in processors), penalties)
    return processors


def bits_of(logits):
    return np.asarray(logits, np.float32).view(np.uint32).astype(">u4").tobytes().hex()


def logits_with_ties(rng):
    return (rng.integers(-24, 25, V) / 8).astype(np.float32)


def logits_without_ties(rng):
    return rng.normal(0, 3, V).astype(np.float32)


def rules_case(model, rng, settings):
    logits = rng.choice([logits_with_ties, logits_without_ties])(rng)
    for odd in (0.0, -0.0, -np.inf, np.nan):
        if rng.random() < 0.5:
            logits[rng.integers(0, V, 2)] = odd
    few = rng.integers(2, 8)  # different ids, so that n-grams occur again
    ids = rng.choice(rng.integers(0, V, few), rng.integers(1, 40))
    prompt_tokens = int(rng.integers(0, len(ids) + 1))
    scores = torch.from_numpy(logits)[None]
    changed = processors_of(model, settings, prompt_tokens)(torch.from_numpy(ids)[None], scores.clone())
    return {
        **settings,
        "ids": ids.tolist(),
        "prompt_tokens": prompt_tokens,
        "logits": bits_of(logits),
        "changed": bits_of(changed[0].numpy()),
    }


def random_rules(rng):
    biased = rng.permutation(V)[:5]
    return {
        "logit_bias": [{"id": int(id), "bias": float(np.round(rng.normal(0, 4), 3))} for id in biased],
        "repetition_penalty": float(np.round(rng.uniform(0.5, 2), 3)),
        "presence_penalty": float(rng.integers(-32, 33) / 16),
        "frequency_penalty": float(rng.integers(-32, 33) / 16),
        "no_repeat_ngram_size": int(rng.integers(1, 5)),
        "suppress_tokens": rng.integers(0, V, 4).tolist(),
    }


def make_rules_cases(model, rng):
    cases = []
    for name in random_rules(rng):
        for _ in range(9):
            cases.append(rules_case(model, rng, {name: random_rules(rng)[name]}))
    for size in (1, 2, 3, 5, 9, 50):
        cases.append(rules_case(model, rng, {"no_repeat_ngram_size": size}))
    for _ in range(40):
        settings = random_rules(rng)
        cases.append(rules_case(model, rng, {name: settings[name] for name in settings if rng.random() < 0.7}))
    return cases


def is_plain_from_draws(logits, settings, ids):
    weights = np.exp((logits.astype(np.float64) - logits.max()) / settings["temperature"])
    shares = weights / weights[ids].sum()
    others = np.delete(shares, ids)
    return shares[ids].min() > 0.004 and (len(others) == 0 or others.max() > 0.004)


def survivors(model, logits, settings):
    scores = torch.from_numpy(logits.astype(np.float64))[None]
    left = processors_of(model, settings)(torch.zeros(1, 1, dtype=torch.long), scores)[0]
    return np.flatnonzero(np.isfinite(left.numpy())).tolist()


def make_draw_cases(model, rng):
    cases = []
    while len(cases) < 100:
        settings = {"temperature": float(rng.choice([0.3, 0.7, 1.0, 1.5, 4.0])), "top_k": 0, "top_p": 1.0}
        ties = rng.random() < 0.3
        if not ties and rng.random() < 0.5:  # of equal logits, transformers keeps more than top_k
            settings["top_k"] = int(rng.integers(1, V + 5))
        if not ties and rng.random() < 0.5:
            settings["top_p"] = float(np.round(rng.uniform(0.3, 1), 3))
        which = rng.integers(0, 3)
        if which != 1:
            settings["min_p"] = float(np.round(rng.uniform(0, 1) ** 3, 4))
        if which != 0:
            settings["typical_p"] = float(np.round(rng.uniform(0.05, 1), 3))
        logits = (logits_with_ties if ties else logits_without_ties)(rng)
        if rng.random() < 0.3:
            logits[rng.integers(0, V, 3)] = -np.inf
        ids = survivors(model, logits, settings)
        nearby = []
        for name in ("top_p", "min_p", "typical_p"):
            for factor in (1 - 1e-6, 1 + 1e-6):
                if settings.get(name, 1.0) * factor < 1 and name in settings:
                    nearby.append(survivors(model, logits, {**settings, name: settings[name] * factor}))
        if all(others == ids for others in nearby) and is_plain_from_draws(logits, settings, ids):
            cases.append({**settings, "logits": bits_of(logits), "ids": ids})
    return cases


def main():
    rng = np.random.default_rng(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=V, n_positions=64, n_embd=8, n_layer=1, n_head=1))
    goldens = {
        "source": f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, "
        f"numpy {np.__version__}, by scripts/make_rules_goldens.py; rows of logits are the bits of their floats",
        "rules": make_rules_cases(model, rng),
        "draws": make_draw_cases(model, rng),
    }
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    text = json.dumps(goldens, separators=(",", ":")).replace("\"},{", "\"},\n{").replace("]},{", "]},\n{")
    path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
