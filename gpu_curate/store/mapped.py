"""Files as read-only arrays, without a descriptor each: a corpus of 25,000 shards is past what a process may have open.

`numpy.memmap` keeps the descriptor of its file for as long as the array lives (Python's mmap duplicates it); 1,024 is the
usual limit. A mapping of the system needs none once it is made.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np

_PROT_READ, _MAP_SHARED, _FAILED = 1, 1, ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_mmap, _munmap = _libc.mmap, _libc.munmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class _Mapping:
    """A mapped file; the arrays over it keep it, and it goes with the last of them."""

    __slots__ = ("__array_interface__", "_address", "_nbytes")

    def __init__(self, fd: int, nbytes: int, dtype: np.dtype[Any], start: int, count: int):
        address = _mmap(None, nbytes, _PROT_READ, _MAP_SHARED, fd, 0)
        if address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._address, self._nbytes = address, nbytes
        self.__array_interface__ = {
            "data": (address + start, True),
            "shape": (count,),
            "typestr": dtype.str,
            "version": 3,
        }

    def __del__(self) -> None:
        if hasattr(self, "_address"):
            _munmap(self._address, self._nbytes)


def mapped(fd: int, nbytes: int, dtype: np.dtype[Any], start: int, count: int) -> np.ndarray[Any, np.dtype[Any]]:
    """`count` values of `dtype` from byte `start` of an open file on, read-only. The descriptor may be closed afterwards.

    Args:
        nbytes: of the file; more than 0, and start + count values lie below it: the caller has looked.
    Raises:
        OSError: the system gives no mapping (address space, number of mappings).
    """
    mapping = _Mapping(fd, nbytes, np.dtype(dtype), start, count)
    array: np.ndarray[Any, np.dtype[Any]] = np.asarray(mapping)
    del mapping.__array_interface__  # 400 bytes that nobody asks for again
    return array
