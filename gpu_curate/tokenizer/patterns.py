"""Split patterns that are published, and what a tiktoken rank file leaves out."""

from __future__ import annotations

import re

# Split patterns under which `letter, space, letter` always ends a word before the space: a match that holds the first
# letter cannot hold a space after it, and at the space the only alternative that matches is `space letters`, which does
# not look left. So the ids of a text cut there are the ids of the whole text. Published by OpenAI (tiktoken), Meta, Alibaba.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT2_POSSESSIVE = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K_POSSESSIVE = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
    r"|\s+(?!\S)|\s"
)
QWEN2 = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")
_O200K_UPPER, _O200K_LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_O200K_UPPER}]*[{_O200K_LOWER}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{_O200K_UPPER}]+[{_O200K_LOWER}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHUNKABLE = {GPT2, GPT2_POSSESSIVE, CL100K, CL100K_POSSESSIVE, QWEN2, O200K}
PORTABLE = {
    GPT2_POSSESSIVE: GPT2,
    CL100K_POSSESSIVE: CL100K,
}  # what the other libraries know; the probe has the last word
BOUNDARY = re.compile(r"(?<=[A-Za-z]) (?=[A-Za-z])")

# What a .tiktoken rank file does not hold: its split pattern and its special tokens. Source: tiktoken's openai_public.py.
RANK_FILES = {
    "r50k_base": (GPT2_POSSESSIVE, {"<|endoftext|>": 50256}),
    "p50k_base": (GPT2_POSSESSIVE, {"<|endoftext|>": 50256}),
    "cl100k_base": (
        CL100K_POSSESSIVE,
        {
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
    "o200k_base": (O200K, {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}),
}
