"""Attention that stays within documents, from the boundaries of a batch. Importing this module needs torch.

    batch = next(loader.batches())                       # ShardLoader(..., boundaries=True)
    mask = block_mask(batch)                             # torch.nn.attention.flex_attention
    out = flex_attention(q, k, v, block_mask=mask)       # q, k, v: (B, H, T, head)
    out = segment_attention(q, k, v, batch)              # varlen: over cu_seqlens, without a mask
    out = scaled_dot_product_attention(q, k, v, attn_mask=dense_mask(batch))   # B T T bits: for a check, or short rows

All three let a token see itself and what stands before it in its own document and row.

# B rows, T tokens of a row, H heads, G segments
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask
from torch.nn.functional import scaled_dot_product_attention

from gpu_curate.loader.base import DocumentBatch


def dense_mask(batch: DocumentBatch) -> torch.Tensor:
    """bool (B, 1, T, T): True where query may see key."""
    document = torch.as_tensor(batch.document_ids)
    T = document.shape[1]
    causal = torch.ones(T, T, dtype=torch.bool, device=document.device).tril()
    return ((document[:, :, None] == document[:, None, :]) & causal)[:, None]


def block_mask(batch: DocumentBatch, device: str | torch.device | None = None, block_size: int = 128) -> BlockMask:
    """FlexAttention's mask of a batch, for any number of heads.

    Args:
        device: where it is used; None: where the batch's document_ids are.
    """
    document = torch.as_tensor(batch.document_ids)
    if device is not None:
        document = document.to(device)
    B, T = document.shape

    def within(b: Any, h: Any, query: Any, key: Any) -> Any:
        return (query >= key) & (document[b, query] == document[b, key])

    return create_block_mask(within, B, None, T, T, device=str(document.device), BLOCK_SIZE=block_size)


def segment_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, batch: DocumentBatch
) -> torch.Tensor:
    """Causal attention over the segments of cu_seqlens: what a varlen kernel computes.

    On a CUDA device in half precision `torch.nn.attention.varlen` (FlashAttention's varlen kernel) runs; elsewhere each segment
    by itself, which is exact and slow.

    Args:
        query, key, value: (B, H, T, head).
    """
    B, H, T, _ = query.shape
    q, k, v = (t.transpose(1, 2).reshape(B * T, H, -1) for t in (query, key, value))
    bounds = torch.as_tensor(batch.cu_seqlens)
    if query.is_cuda and query.dtype in (torch.float16, torch.bfloat16):
        from torch.nn.attention.varlen import varlen_attn

        cu = bounds.to(query.device)
        longest = batch.max_seqlen
        out = varlen_attn(q, k, v, cu, cu, longest, longest, window_size=(-1, 0))
    else:
        edges = bounds.tolist()
        pieces = []
        for begin, end in itertools.pairwise(edges):
            part = [t[begin:end].transpose(0, 1) for t in (q, k, v)]
            pieces.append(scaled_dot_product_attention(part[0], part[1], part[2], is_causal=True).transpose(0, 1))
        out = torch.cat(pieces)
    assert isinstance(out, torch.Tensor)
    return out.reshape(B, T, H, -1).transpose(1, 2)
