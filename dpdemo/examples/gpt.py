"""A language model like GPT, of any size."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """A decoder's layer: attention to what came before, then two linear layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Take [rows, tokens, width] to the same shape."""
        rows, tokens, width = x.shape
        joint = self.attend(self.norm1(x)).view(rows, tokens, 3, self.heads, width // self.heads)
        query, key, value = joint.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(rows, tokens, width))
        result: torch.Tensor = x + self.down(functional.gelu(self.up(self.norm2(x))))
        return result


class Decoder(nn.Module):
    """A language model like GPT: 20 layers of width 2048 and 32000 words have 1.07 * 10^9 parameters."""

    def __init__(self, width: int = 2048, layers: int = 20, words: int = 32000, tokens: int = 512) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Take [rows, tokens] ids to [rows, tokens, words]."""
        x = self.words(ids) + self.places(torch.arange(ids.size(1), device=ids.device))
        for block in self.blocks:
            x = block(x)
        result: torch.Tensor = self.head(self.norm(x))
        return result


def gpt2() -> nn.Module:
    """Make one as large as GPT-2 small: 124 million parameters."""
    return Decoder(width=768, layers=12, words=50257)
