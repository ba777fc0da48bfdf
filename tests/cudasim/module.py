"""Compile a .cu file with g++ and launch its kernels over NumPy arrays, with the calls of cupy.RawModule.

    module = EmulatedModule(Path("kernels.cu").read_text(), "kernels.cu", checked=True)
    module.get_function("kernel")((grid,), (block,), (array, np.int64(n)))

`checked` finds races, uninitialised shared reads, accesses out of bounds, misaligned vectors, divergent barriers,
deadlocks, bad shift counts and indices; a finding raises KernelFault. Compiled libraries are cached by content.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("GPU_CURATE_CUDASIM_CACHE", HERE.parents[1] / ".cache" / "cudasim"))
CXX = os.environ.get("CXX", "g++")
# -O1 halves the compile time of -O2 and costs the tests less than it saves; gdwarf-4 for addr2line.
FLAGS = [
    "-O1",
    "-gdwarf-4",
    "-std=c++20",
    "-fPIC",
    "-w",
    "-U_FORTIFY_SOURCE",
    "-fno-strict-aliasing",
]
FLAGS += ["-fno-gnu-unique", "-fno-omit-frame-pointer", f"-I{HERE}"]
CHECKED_FLAGS = ["-fsanitize=thread", "-fsanitize=shift-exponent,bounds"]

_KERNEL = re.compile(
    r"__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s+)?void\s+(?:__launch_bounds__\s*\([^)]*\)\s+)?(\w+)\s*\("
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


class KernelFault(RuntimeError):
    """The checker found something, or the kernel does not compile."""


def available() -> bool:
    """True if there is a compiler."""
    return shutil.which(CXX) is not None


def _run(command: Sequence[str | Path]) -> None:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        raise KernelFault(f"{' '.join(map(str, command))}\n{done.stderr[-4000:]}")


def _key(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]


@functools.cache
def _runtime() -> Path:
    """The runtime as one object file, compiled once."""
    sources = sorted([*HERE.glob("*.hpp"), HERE / "scheduler.cpp", HERE / "checker.cpp"])
    target = CACHE / f"runtime-{_key(*[s.read_bytes() for s in sources], repr(FLAGS).encode())}.o"
    if not target.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            objects = [f"{folder}/{name}.o" for name in ("scheduler", "checker")]
            for name, out in zip(("scheduler", "checker"), objects, strict=True):
                _run([CXX, *FLAGS, "-O2", "-c", HERE / f"{name}.cpp", "-o", out])
            _run([CXX, "-r", "-nostdlib", *objects, "-o", f"{folder}/runtime.o"])
            os.replace(f"{folder}/runtime.o", target)
    return target


class EmulatedModule:
    """The kernels of one source text.

    Args:
        source: CUDA C++ text without #include.
        name: shown in findings.
        defines: "NAME=VALUE" macros.
        checked: build with the checker.
        schedule: 0 ascending, 1 descending, 2 and up shuffled order of threads and blocks; may be changed any time.
        preempt: also interrupt a thread at one in so many checked accesses; 0: never.
    """

    def __init__(
        self,
        source: str,
        name: str = "kernels.cu",
        defines: Sequence[str] = (),
        checked: bool = False,
        schedule: int = 0,
        preempt: int = 0,
    ):
        self.checked, self.schedule, self.preempt = checked, schedule, preempt
        self.kernels = list(dict.fromkeys(_KERNEL.findall(_COMMENT.sub("", source))))
        flags = [
            *FLAGS,
            *[f"-D{d}" for d in defines],
            *(CHECKED_FLAGS if checked else []),
        ]
        header = (HERE / "cuda_on_cpu.hpp").read_bytes() + (HERE / "abi.hpp").read_bytes()
        runtime = _runtime()
        key = _key(
            source.encode(),
            name.encode(),
            header,
            repr(flags).encode(),
            runtime.name.encode(),
        )
        self.path = CACHE / f"{Path(name).stem}-{key}.so"
        self.name = name
        if not self.path.exists():
            self._build(source, flags, runtime)
        # A private copy: dlopen of one path twice would share __shared__ and __constant__ variables between modules.
        with tempfile.TemporaryDirectory(prefix="cudasim-") as folder:
            self.library = ctypes.CDLL(shutil.copy(self.path, folder))
        self.library.cudasim_findings.restype = ctypes.c_char_p
        self.library.cudasim_library_base.restype = ctypes.c_uint64
        self.base = self.library.cudasim_library_base()

    def _build(self, source: str, flags: list[str], runtime: Path) -> None:
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            wrapper = Path(folder) / "wrapper.cpp"
            lines = [f'#include "cuda_on_cpu.hpp"\n#line 1 "{self.name}"\n{source}\n#line 1 "wrapper"\n']
            lines += [f"CUDASIM_KERNEL({k})\n" for k in self.kernels]
            wrapper.write_text("".join(lines))
            _run([CXX, *flags, "-c", wrapper, "-o", f"{folder}/kernels.o"])
            _run(
                [
                    CXX,
                    "-shared",
                    "-o",
                    f"{folder}/module.so",
                    f"{folder}/kernels.o",
                    runtime,
                ]
            )
            os.replace(f"{folder}/module.so", self.path)

    def get_function(self, name: str) -> EmulatedKernel:
        return EmulatedKernel(self, name)

    def traffic(self) -> tuple[int, int, int]:
        """Memory accesses, bytes read and bytes written of the last launch; counted by a checked build only."""
        out = (ctypes.c_uint64 * 3)()
        self.library.cudasim_traffic(out)
        return out[0], out[1], out[2]

    def explain(self, findings: str) -> str:
        """Findings with code addresses replaced by file and line."""

        def line(match: re.Match[str]) -> str:
            address = hex(int(match.group(1), 16) - self.base - 1)  # - 1: the call, not the return address
            command = ["addr2line", "-i", "-e", str(self.path), address]
            frames = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
            hits = [f.rsplit("/", 1)[-1] for f in frames if Path(self.name).name in f]
            return f"at {hits[0]}" if hits else "at ?"

        return re.sub(r"pc=(0x[0-9a-f]+)", line, findings) if shutil.which("addr2line") else findings


class EmulatedKernel:
    """One kernel; call it as a cupy.RawKernel: kernel(grid, block, args, shared_mem=0)."""

    def __init__(self, module: EmulatedModule, name: str):
        self.module, self.name = module, name
        library = module.library
        self.entry = getattr(library, f"cudasim_call_{name}")
        self.count = getattr(library, f"cudasim_count_{name}")()
        info = getattr(library, f"cudasim_info_{name}")
        info.restype = ctypes.POINTER(ctypes.c_int * (2 * self.count + 2))
        flat = info().contents
        self.params = [(flat[2 * i], flat[2 * i + 1]) for i in range(self.count)]

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Sequence[Any],
        shared_mem: int = 0,
        only: tuple[int, int] | None = None,
    ) -> None:
        """`only`: number of the first block that is run, and how many are; None: all."""
        if only is not None:
            self.module.library.cudasim_only(ctypes.c_ulong(only[0]), ctypes.c_ulong(only[1]))
        if len(args) != self.count:
            raise TypeError(f"{self.name} takes {self.count} arguments, got {len(args)}")
        boxes = [self._box(i, arg, *self.params[i]) for i, arg in enumerate(args)]
        pointers = (ctypes.c_void_p * self.count)(*[b.ctypes.data for b in boxes])
        arrays = [(a, kind == 1) for a, (_, kind) in zip(args, self.params, strict=True) if isinstance(a, np.ndarray)]
        n, library = len(arrays), self.module.library
        low = (ctypes.c_uint64 * n)(*[a.ctypes.data for a, _ in arrays])
        high = (ctypes.c_uint64 * n)(*[a.ctypes.data + a.nbytes for a, _ in arrays])
        library.cudasim_arrays(low, high, (ctypes.c_int * n)(*[int(w) for _, w in arrays]), n)
        grid3, block3 = ((ctypes.c_uint * 3)(*(*size, 1, 1)[:3]) for size in (grid, block))
        found = library.cudasim_launch(
            self.entry,
            pointers,
            grid3,
            block3,
            ctypes.c_uint(shared_mem),
            ctypes.c_ulong(self.module.schedule),
            int(self.module.checked),
            ctypes.c_uint(self.module.preempt),
        )
        if found:
            raise KernelFault(f"{self.name}: {self.module.explain(library.cudasim_findings().decode())}")

    def _box(self, i: int, arg: Any, size: int, pointer: int) -> np.ndarray:
        """One argument as an array that holds its value or address."""
        where = f"{self.name}: argument {i}"
        if isinstance(arg, np.ndarray):
            if not pointer or not arg.flags.c_contiguous:
                raise TypeError(f"{where} {'is not C-contiguous' if pointer else 'is a value, got an array'}")
            return np.array([arg.ctypes.data], np.uint64)
        if isinstance(arg, np.generic):
            if pointer or arg.nbytes != size:
                raise TypeError(f"{where} needs {'an array' if pointer else f'{size} bytes'}, got {arg.dtype}")
            return np.array([arg])
        raise TypeError(f"{where}: use NumPy arrays and NumPy scalars, got {type(arg).__name__}")
