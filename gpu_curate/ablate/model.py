"""A small GPT: pre-norm blocks of causal attention and a perceptron, rotary positions, tied embeddings. Needs torch.

# B rows, T tokens of a row, C width, H heads
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

_HEAD = 32  # width of a head


class Shape(NamedTuple):
    """Layers and width, and the parameters that they make with a vocabulary."""

    layers: int
    width: int
    parameters: int


def shape_for(parameters: int, vocab_size: int) -> Shape:
    """The shape whose parameters are nearest to a number: width 32 to 64 times the layers, a multiple of a head."""
    best = None
    for layers in range(2, 25):
        for width in range(_HEAD, 64 * layers + 1, _HEAD):
            if width < 32 * layers:
                continue
            count = 12 * layers * width * width + vocab_size * width
            if best is None or abs(count - parameters) < abs(best.parameters - parameters):
                best = Shape(layers, width, count)
    assert best is not None
    return best


class Block(nn.Module):  # type: ignore[misc, unused-ignore]
    def __init__(self, width: int):
        super().__init__()
        self.heads = width // _HEAD
        self.attention, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        B, T, C = x.shape
        q, k, v = self.attention(self.norms[0](x)).view(B, T, 3, self.heads, _HEAD).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(_turn(q, rotation), _turn(k, rotation), v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(B, T, C))
        out: Tensor = x + self.down(functional.gelu(self.up(self.norms[1](x))))
        return out


class Gpt(nn.Module):  # type: ignore[misc, unused-ignore]
    """ids (B, T) → logits (B, T, vocabulary)."""

    def __init__(self, shape: Shape, vocab_size: int, seq_len: int):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, shape.width)
        self.blocks = nn.ModuleList(Block(shape.width) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        angle = torch.arange(seq_len)[:, None] / 10_000 ** (torch.arange(0, _HEAD, 2) / _HEAD)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        T = ids.shape[1]
        x, rotation = self.embedding(ids), (self.get_buffer("cos")[:T], self.get_buffer("sin")[:T])
        for block in self.blocks:
            x = block(x, rotation)
        return functional.linear(self.norm(x), self.embedding.weight)


def _turn(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions: pairs of a head's halves turned by their place."""
    cos, sin = rotation
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
