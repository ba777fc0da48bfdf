"""`content_hash` by the xxhash library, for few texts: nothing is compiled or loaded.

# N texts
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from gpu_curate.document import TextColumn

FEW = 1 << 17  # texts: up to here the library takes less time than loading Numba does


def hash_few(text: TextColumn) -> NDArray[np.uint64]:
    """As `content_hash`: by the library where there are few texts and Numba is not loaded yet, else by the twin."""
    from gpu_curate.ops.content_hash import content_hash as twin

    if len(text) > FEW or text.on_gpu or "numba" in sys.modules:
        hash_N2: NDArray[np.uint64] = twin(text)
        return hash_N2
    try:
        return content_hash(text)
    except ImportError:
        hash_N2 = twin(text)
        return hash_N2


def content_hash(text: TextColumn) -> NDArray[np.uint64]:
    """See `gpu_curate.ops.content_hash.content_hash`; on the host. Raises: ImportError: there is no xxhash."""
    from xxhash import xxh3_128_digest

    digests = b"".join(xxh3_128_digest(text.raw(i)) for i in range(len(text)))
    return np.frombuffer(digests, ">u8").reshape(-1, 2).astype(np.uint64)
