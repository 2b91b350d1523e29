"""Models in which data decides what runs: experts that a router chooses, searches that end when they are done."""

import torch
import torch.nn as nn
from torch._higher_order_ops.while_loop import while_loop


def repeat(goes_on, body, state: tuple) -> tuple:
    """A loop as the exporter knows it; where nothing is exported, as Python knows it."""
    if torch.compiler.is_exporting():
        return while_loop(goes_on, body, state)
    while goes_on(*state):
        state = body(*state)
    return state


class Experts(nn.Module):
    """A mixture of experts: each token goes to the two that its router likes best, each expert sees only its own tokens."""

    def __init__(self, width: int, count: int, chosen: int):
        super().__init__()
        self.count, self.chosen = count, chosen
        self.router = nn.Linear(width, count)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)) for _ in range(count)
        )

    def forward(self, tokens):
        weights, chosen = self.router(tokens).softmax(-1).topk(self.chosen, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        mixed = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, ranks = torch.where(chosen == number)
            mixed.index_add_(0, rows, expert(tokens[rows]) * weights[rows, ranks, None])
        return mixed


class NextToken(nn.Module):
    """Scores of the next token by a mean over what came before: a language model as small as they get."""

    def __init__(self, vocabulary: int, width: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.mix = nn.Linear(width, width)
        self.head = nn.Linear(width, vocabulary)
        # Wide, so that scores lie apart and texts go on.
        for layer in (self.mix, self.head):
            nn.init.normal_(layer.weight, 0, 2 * width**-0.5)

    def step(self, state, token):
        """The state behind a token, and log probabilities of the next."""
        state = 0.5 * state + torch.tanh(self.mix(self.embedding(token)))
        return state, self.head(state).log_softmax(-1)


class GreedySearch(NextToken):
    """Tokens up to the first that ends a text, at most as many as there is room for."""

    def __init__(self, vocabulary: int, width: int, length: int):
        super().__init__(vocabulary, width)
        self.length, self.end = length, 0

    def forward(self, first):
        tokens = torch.full((self.length,), self.end)
        state = torch.full((1, self.embedding.embedding_dim), 0.5, dtype=self.mix.weight.dtype)

        def goes_on(at, token, state, tokens):
            return (at < self.length) & (token[0] != self.end)

        def body(at, token, state, tokens):
            state, scores = self.step(state, token)
            token = scores.argmax(-1)
            return at + 1, token, state, tokens.index_copy(0, at.reshape(1), token)

        at, _, state, tokens = repeat(goes_on, body, (torch.tensor(0), first.clone(), state, tokens))
        return at, tokens, state


class BeamSearch(NextToken):
    """The best texts of a fixed length by the sums of their log probabilities. Each step reorders the caches of all beams."""

    def __init__(self, vocabulary: int, width: int, beams: int, length: int):
        super().__init__(vocabulary, width)
        self.beams, self.length, self.vocabulary = beams, length, vocabulary

    def forward(self, first):
        tokens = torch.zeros(self.beams, self.length, dtype=torch.int64)
        tokens[:, 0] = first
        dtype = self.mix.weight.dtype
        state = torch.zeros(self.beams, self.embedding.embedding_dim, dtype=dtype)
        # All beams start alike: only the first counts.
        sums = torch.cat([torch.zeros(1, dtype=dtype), torch.full((self.beams - 1,), -1e9, dtype=dtype)])

        def goes_on(at, tokens, sums, state):
            return at < self.length

        def body(at, tokens, sums, state):
            last = tokens.index_select(1, (at - 1).reshape(1)).squeeze(1)
            state, scores = self.step(state, last)
            sums, flat = (sums[:, None] + scores).flatten().topk(self.beams)
            beam, token = flat // self.vocabulary, flat % self.vocabulary
            tokens = tokens.index_select(0, beam).index_copy(1, at.reshape(1), token[:, None])
            return at + 1, tokens, sums, state.index_select(0, beam)

        _, tokens, sums, state = repeat(goes_on, body, (torch.tensor(1), tokens, sums, state))
        return tokens, sums, state
