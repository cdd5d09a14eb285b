#!/usr/bin/env python3
"""Writes fixtures/scores.json: log-probabilities of texts and continuations by Hugging Face transformers.

usage: make_score_goldens.py     (needs torch and transformers)

The windows are those of https://huggingface.co/docs/transformers/perplexity, in float64.
"""

import json
from pathlib import Path

import torch
import transformers

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"


def log_probabilities(model, ids):
    """log p(ids[t] | ids[:t]) for t from 1 on."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, :-1]
    return torch.log_softmax(logits, -1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:])].tolist()


def strided(model, ids, max_length, stride):
    result = []
    previous_end = 0
    for begin in range(0, len(ids), stride):
        end = min(begin + max_length, len(ids))
        new = end - previous_end
        # The first token of the first window has nothing before it.
        result += log_probabilities(model, ids[begin:end])[-new:]
        previous_end = end
        if end == len(ids):
            break
    assert len(result) == len(ids) - 1
    return result


def rounded(numbers):
    return [float(f"{number:.8g}") for number in numbers]


def load(name):
    return transformers.GPT2LMHeadModel.from_pretrained(FIXTURES / name, dtype=torch.float64).eval()


def score_case(model_name, model, ids, max_length, stride):
    scores = strided(model, ids, max_length, stride)
    return {
        "model": model_name,
        "max_length": max_length,
        "stride": stride,
        "total": sum(scores),
        "log_probabilities": rounded(scores),
    }


def main():
    tale = json.loads((FIXTURES / "tales-gpt2/goldens/perplexity.json").read_text(encoding="utf-8"))["text"]
    paragraphs = tale.split("\n\n")
    text = "\n\n".join(paragraphs + paragraphs[::-1])  # longer than the context
    tokenizer = transformers.GPT2TokenizerFast.from_pretrained(FIXTURES / "tales-gpt2")
    tales, odd = load("tales-gpt2"), load("odd-gpt2-untied")
    ids = {"tales-gpt2": tokenizer.encode(text), "odd-gpt2-untied": [(7 * i * i + 3 * i) % 251 for i in range(90)]}
    prompt = "The king had a daughter who was"
    continuations = [" very beautiful.", " a very", " the", " beautiful very.", " so proud that no one could please her."]
    encoded_prompt = tokenizer.encode(prompt)
    golden = {
        "source": f"scripts/make_score_goldens.py: transformers {transformers.__version__}, "
        f"torch {torch.__version__.split('+')[0]}, float64",
        "ids": ids,
        "cases": [
            score_case("tales-gpt2", tales, ids["tales-gpt2"], *windows)
            for windows in [(512, 256), (512, 511), (100, 37), (2, 1)]
        ]
        + [
            score_case("odd-gpt2-untied", odd, ids["odd-gpt2-untied"], *windows)
            for windows in [(16, 8), (16, 1), (5, 3)]
        ],
        "prompt": prompt,
        "prompt_ids": encoded_prompt,
        "continuations": [
            {
                "text": continuation,
                "ids": tokenizer.encode(continuation),
                "log_probabilities": rounded(
                    log_probabilities(tales, encoded_prompt + tokenizer.encode(continuation))[len(encoded_prompt) - 1 :]
                ),
            }
            for continuation in continuations
        ],
    }
    (FIXTURES / "scores.json").write_text(json.dumps(golden) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
