"""Does the GPU of this machine give the integers of the CPU? Every op with two twins, on a small text or on any other.

for result in self_test():
    print(result.op, result.difference or "equal")
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpu_curate.device.runtime import Device, cuda
from gpu_curate.document import TextColumn
from gpu_curate.ops.catalogue import Inputs, comparisons, first_difference
from gpu_curate.ops.ngrams import NgramIndex

# Prose, scripts with and without spaces, skipped and ill-formed bytes, repetition, and documents of no and of one byte.
DOCUMENTS = [
    b"The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy cat.\n\n- and so on ...\n"
    * 9,
    "Ünïcode naïve café ΦΘΣ Straße 你好世界 かな ไทย soft\u00adhyphen \u2022 \u2026\n".encode() * 20,
    b"ab\xc3 \xed\xa0\x80 \xf0\x9f\x98 \x80\xff lone bytes {lorem ipsum} Use Cookies.",
    b"",
    b"a",
    b"x" * 3000,
    b"one two three four five " * 300,
]


class Result(NamedTuple):
    """`difference`: None if both twins gave the same, else where they first differ."""

    op: str
    difference: str | None


def self_test(device: Device | None = None) -> list[Result]:
    """Compare every op on DOCUMENTS; about a second, and a few more to compile the kernels the first time.

    Raises:
        DeviceError: there is no device.
    """
    inputs = everything(TextColumn.from_texts(DOCUMENTS))
    return [Result(op, first_difference(got, expected)) for op, got, expected in comparisons(inputs, device or cuda())]


def everything(text: TextColumn) -> Inputs:
    """Inputs with which every op has something to do: three scopes, and an index over some of the texts."""
    scope_N = np.arange(len(text), dtype=np.uint64) % np.uint64(3)
    items = TextColumn.from_texts([text.raw(i)[:3000] for i in range(0, len(text), max(1, len(text) // 50))])
    return Inputs(text, scope_N, indexes={"items": NgramIndex.build(items, 13)})
