"""Bits per byte: a loss that models of different tokenizers share."""

from __future__ import annotations

import math

from gpu_curate.errors import ConfigError


def bits_per_byte(nats: float, tokens: int, bytes: int) -> float:
    """The loss of a text in bits per byte of it.

    Args:
        nats: mean cross-entropy of a token, as losses are given.
        tokens: how many were predicted.
        bytes: of UTF-8 of the text that they stand for; end-of-text tokens stand for none.
    Raises:
        ConfigError: no bytes, or a negative number.
    """
    if bytes <= 0 or tokens < 0 or nats < 0:
        raise ConfigError(f"bits_per_byte: {nats} nats, {tokens} tokens, {bytes} bytes; expected positive numbers")
    return nats * tokens / (math.log(2) * bytes)
