#!/usr/bin/env python3
"""Writes fixtures/beams.json: what beam search yields on fixtures/tales-gpt2, by Hugging Face's transformers.

    pip install transformers==5.24.0 torch
    scripts/make_beam_goldens.py [FILE]

Each case is run with the model in float64 and in float32. Transformers adds up scores in float32 either way, so that
close ones may change places: no case is taken in which the two differ in an id.
"""

import json
import random
import sys
from pathlib import Path

import torch
import transformers
from transformers import GenerationConfig, GPT2LMHeadModel, GPT2TokenizerFast

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
MODEL = FIXTURES / "tales-gpt2"
PROMPTS = 50
CASES_OF_A_PROMPT = 2
END_OF_TEXT = 2047


def load(dtype):
    model = GPT2LMHeadModel.from_pretrained(MODEL, dtype=dtype).eval()
    model.generation_config = GenerationConfig()  # no stop id but those of a case
    model.config.eos_token_id = None
    return model


def generate(model, ids, settings):
    config = GenerationConfig(
        do_sample=False,
        num_beams=settings["num_beams"],
        num_return_sequences=settings["samples"],
        length_penalty=settings["length_penalty"],
        early_stopping=settings["early_stopping"],
        max_new_tokens=settings["max_tokens"],
        min_new_tokens=settings["min_tokens"] or None,
        eos_token_id=settings["stop_ids"] or None,
        pad_token_id=END_OF_TEXT,
        repetition_penalty=settings["rules"].get("repetition_penalty", 1.0),
        no_repeat_ngram_size=settings["rules"].get("no_repeat_ngram_size", 0),
        suppress_tokens=settings["rules"].get("suppress_tokens"),
        return_dict_in_generate=True,
        output_scores=True,
    )
    if "logit_bias" in settings["rules"]:
        config.sequence_bias = {(bias["id"],): bias["bias"] for bias in settings["rules"]["logit_bias"]}
    tensor = torch.tensor([ids])
    with torch.no_grad():
        result = model.generate(tensor, attention_mask=torch.ones_like(tensor), generation_config=config)
    generations = []
    for sequence, beams, score in zip(result.sequences, result.beam_indices, result.sequences_scores):
        output = sequence[len(ids) : len(ids) + int((beams >= 0).sum())].tolist()
        is_stopped = bool(output) and output[-1] in settings["stop_ids"]
        generations.append(
            {
                "output_ids": output[:-1] if is_stopped else output,
                "is_stopped": is_stopped,
                "beam_score": float(f"{float(score):.7g}"),
            }
        )
    return generations


def settings_of(rng, stops):
    settings = {
        "num_beams": rng.choice([2, 2, 3, 4, 5, 8]),
        "length_penalty": rng.choice([1.0, 1.0, 0.0, -1.0, 0.6, 2.0]),
        "early_stopping": rng.random() < 0.4,
        "max_tokens": rng.choice([1, 2, 6, 15, 25, 35]),
        "min_tokens": rng.choice([0, 0, 0, 4, 12]),
        "stop_ids": rng.choice([[], [END_OF_TEXT], stops[:1], stops[:1], stops[:2], stops]),
        "rules": {},
    }
    settings["samples"] = rng.randint(1, settings["num_beams"])
    rules = settings["rules"]
    if rng.random() < 0.3:
        rules["repetition_penalty"] = rng.choice([1.3, 0.8])
    if rng.random() < 0.3:
        rules["no_repeat_ngram_size"] = rng.choice([1, 2, 3])
    if rng.random() < 0.3:
        rules["logit_bias"] = [{"id": id, "bias": rng.choice([-4.0, 2.5])} for id in rng.sample(range(300), 20)]
    if rng.random() < 0.2:
        rules["suppress_tokens"] = sorted(rng.sample(range(2047), 100))[:20]
    return settings


def main():
    rng = random.Random(12)
    tokenizer = GPT2TokenizerFast.from_pretrained(MODEL)
    text = tokenizer.encode((MODEL / "goldens/tale.txt").read_text(encoding="utf-8"))
    stops = [tokenizer.encode(stop)[0] for stop in (",", ".", " and")]
    precise, single = load(torch.float64), load(torch.float32)
    cases, dropped = [], 0

    def add(ids, settings):
        generations = generate(precise, ids, settings)
        in_single = generate(single, ids, settings)
        is_same = all(a["output_ids"] == b["output_ids"] for a, b in zip(generations, in_single))
        if is_same:
            cases.append({"prompt_ids": ids, **settings, "generations": generations})
        return is_same

    for _ in range(PROMPTS):
        begin = rng.randrange(len(text) - 40)
        ids = text[begin : begin + rng.randint(1, 40)]
        for _ in range(CASES_OF_A_PROMPT):
            while not add(ids, settings_of(rng, stops)):
                dropped += 1
    # Up to the last token that there is a position to choose by.
    for length_penalty in (1.0, 0.0):
        settings = {"num_beams": 3, "length_penalty": length_penalty, "early_stopping": False, "max_tokens": 13}
        settings |= {"min_tokens": 0, "stop_ids": stops[:1], "rules": {}, "samples": 3}
        assert add(text[:500], settings)

    source = (
        f"scripts/make_beam_goldens.py: transformers {transformers.__version__}, torch {torch.__version__}, float64 "
        f"model; {dropped} drawn cases dropped because a float32 model yields other ids"
    )
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else FIXTURES / "beams.json"
    file.write_text(f'{{"source":{json.dumps(source)},\n"cases":[\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
