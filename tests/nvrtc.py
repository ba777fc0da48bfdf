"""Compile CUDA C++ with the nvidia-cuda-nvrtc wheel: no driver, no GPU, no toolkit."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import json
import re
from pathlib import Path
from typing import NamedTuple

CACHE = Path(__file__).resolve().parents[1] / ".cache" / "nvrtc"
ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")  # CUDA 13's oldest to the newest we know of


class Usage(NamedTuple):
    """What ptxas says of one kernel."""

    kernel: str
    registers: int
    stack_bytes: int
    spill_bytes: int


class CompileError(RuntimeError):
    pass


@functools.cache
def library() -> ctypes.CDLL | None:
    """libnvrtc of the installed wheel; None without one."""
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations or [] if spec else []:
        for found in sorted(Path(root).glob("*/lib/libnvrtc.so.*")):
            return ctypes.CDLL(str(found))
    return None


def version() -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


def compile_source(source: str, name: str, arch: str, defines: tuple[str, ...] = ()) -> tuple[bytes, list[Usage]]:
    """Compile a text to a cubin.

    Returns:
        The cubin, and the resources of each kernel in it.
    Raises:
        CompileError: with the compiler's log.
    """
    lib, program = library(), ctypes.c_void_p()
    _check(lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None))
    options = [f"--gpu-architecture={arch}", "--std=c++17", "--ptxas-options=-v", *(f"-D{d}" for d in defines)]
    array = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
    status = lib.nvrtcCompileProgram(program, len(options), array)
    log = _get(program, "ProgramLog").decode()
    if status:
        raise CompileError(f"{name} for {arch}:\n{log}")
    cubin = _get(program, "CUBIN")
    lib.nvrtcDestroyProgram(ctypes.byref(program))
    return cubin, _usage(log)


def usage(source: str, name: str, arch: str, defines: tuple[str, ...] = ()) -> list[Usage]:
    """Resources of each kernel, remembered on disk by what was compiled and by which compiler."""
    what = "\0".join([version(), source, name, arch, *defines])
    file = CACHE / f"{name}-{arch}-{hashlib.sha256(what.encode()).hexdigest()[:20]}.json"
    if not file.exists():
        _, found = compile_source(source, name, arch, defines)
        CACHE.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found))
    return [Usage(*row) for row in json.loads(file.read_text())]


def _usage(log: str) -> list[Usage]:
    pattern = r"entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores.*?Used (\d+) registers"
    return [
        Usage(k, int(regs), int(stack), int(spill)) for k, stack, spill, regs in re.findall(pattern, log, re.DOTALL)
    ]


def _get(program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(library(), f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(library(), f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _check(status: int) -> None:
    if status:
        raise CompileError(f"nvrtc status {status}")
