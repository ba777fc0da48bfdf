"""`content_hash` by the xxhash library, for few texts: nothing is compiled or loaded.

# N texts
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu_curate.document import TextColumn


def content_hash(text: TextColumn) -> NDArray[np.uint64]:
    """See `gpu_curate.ops.content_hash.content_hash`; on the host. Raises: ImportError: there is no xxhash."""
    from xxhash import xxh3_128_digest

    digests = b"".join(xxh3_128_digest(text.raw(i)) for i in range(len(text)))
    return np.frombuffer(digests, ">u8").reshape(-1, 2).astype(np.uint64)
