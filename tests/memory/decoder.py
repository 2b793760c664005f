"""The decoder of 8 billion parameters of which torchtitan publishes how much memory its training reserves.

Written from its paper (Llama 3.1) and configuration values. That program has habits of its own: positions
are complex numbers, norms are plain operators in float32, keys are repeated, logits become float32 for the
loss and are dropped before the backward pass, checkpoints keep attention and every other product of matrices.
"""

from collections import Counter

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

WIDTH, HIDDEN, HEADS, GROUPS, LAYERS, TOKENS, WORDS = 4096, 14336, 32, 8, 32, 8192, 128256
HEAD = WIDTH // HEADS
_aten = torch.ops.aten
KEPT = (
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_efficient_attention.default,
)


class Norm(nn.Module):
    """The root of the mean square."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        """Normalize in float32."""
        large = x.float()
        return (large * torch.rsqrt(large.square().mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


def linear(wide, narrow):
    """Return a linear layer without bias."""
    return nn.Linear(wide, narrow, bias=False)


class Layer(nn.Module):
    """Attention of grouped heads, and a gated layer."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (linear(WIDTH, HEAD * heads) for heads in (HEADS, GROUPS, GROUPS))
        self.out, self.gate, self.up = linear(WIDTH, WIDTH), linear(WIDTH, HIDDEN), linear(WIDTH, HIDDEN)
        self.down = linear(HIDDEN, WIDTH)
        self.norms = nn.ModuleList([Norm(), Norm()])

    def forward(self, x, turns):
        """Add both to the input."""
        x = x + self.attend(self.norms[0](x), turns)
        inner = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(inner)) * self.up(inner))

    def attend(self, x, turns):
        """Attend to what came before."""
        rows, tokens, _ = x.shape
        query, key, value = (of(x).view(rows, tokens, -1, HEAD) for of in (self.query, self.key, self.value))
        query, key = turned(query, turns), turned(key, turns)
        heads = (each.transpose(1, 2) for each in (query, repeated(key), repeated(value)))
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.out(mixed.transpose(1, 2).contiguous().view(rows, tokens, -1))


def turned(x, turns):
    """Turn pairs of numbers by their positions."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns.view(1, x.shape[1], 1, -1)).flatten(3).type_as(x)


def repeated(x):
    """Repeat the keys or values of each group for all its heads."""
    rows, tokens, groups, size = x.shape
    more = x[:, :, :, None].expand(rows, tokens, groups, HEADS // GROUPS, size)
    return more.reshape(rows, tokens, HEADS, size)


class Decoder(nn.Module):
    """Words, layers and logits."""

    def __init__(self):
        super().__init__()
        self.words, self.logits, self.norm = nn.Embedding(WORDS, WIDTH), linear(WIDTH, WORDS), Norm()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        angles = torch.ones(TOKENS, HEAD // 2)
        self.register_buffer("turns", torch.polar(angles, angles))

    def forward(self, tokens):
        """Return the logits."""
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x, self.turns)
        return self.logits(self.norm(x))


def loss(logits):
    """Return the cross-entropy in float32."""
    words = torch.zeros(logits.shape[:2].numel(), dtype=torch.int64, device=logits.device)
    return functional.cross_entropy(logits.flatten(0, 1).float(), words)


def contexts():
    """Keep attention and every other product of matrices; recompute all else."""
    products = Counter()

    def policy(context, operator, *_, **__):
        is_product = operator == _aten.mm.default
        products[context.is_recompute] += is_product
        keeps = operator in KEPT or (is_product and products[context.is_recompute] % 2)
        return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)
