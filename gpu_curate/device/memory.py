"""One allocator for cuDF and CuPy: without it `import cudf` makes CuPy ask the driver for every array, and wait for it.

A partition's statistics and signatures allocate about 120 arrays. RMM's asynchronous pool serves both libraries from memory
that the driver has given once, and gives back what is free above a threshold.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

# Share of the device that the pool of one process keeps when it is free. With three processes a device: less than would
# keep another program out.
KEPT_FRACTION = 0.1


def share_memory(cupy: Any) -> Callable[[], None]:
    """Give CuPy and cuDF one pool, before the first array of either.

    Without RMM, CuPy's own pool stays. Where the driver has no asynchronous pools (some virtual GPUs), RMM's own pool is
    taken, which grows as it is used.

    Returns: what gives free memory back to the device.
    """
    if importlib.util.find_spec("rmm") is None:
        return lambda: cupy.get_default_memory_pool().free_all_blocks()
    import rmm
    from rmm.allocators.cupy import rmm_cupy_allocator

    _, total = cupy.cuda.runtime.memGetInfo()
    kept = int(KEPT_FRACTION * total)

    def asynchronous() -> Any:
        return rmm.mr.CudaAsyncMemoryResource(initial_pool_size=0, release_threshold=kept)

    try:
        resource = asynchronous()
    except RuntimeError:  # cudaMallocAsync is not supported
        rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=0))
        cupy.cuda.set_allocator(rmm_cupy_allocator)
        return lambda: None  # a pool of RMM's own never shrinks
    rmm.mr.set_current_device_resource(resource)
    cupy.cuda.set_allocator(rmm_cupy_allocator)

    def release() -> None:
        """A new pool takes the place of the old one, which goes with the last array in it."""
        rmm.mr.set_current_device_resource(asynchronous())

    return release
