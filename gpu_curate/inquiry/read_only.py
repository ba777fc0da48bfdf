"""Some files as a file system of fsspec that can be read and nothing else, for a library that is not to write."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import IO, Any, ClassVar

from fsspec.spec import AbstractFileSystem


class ReadOnly(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Files under names of their own.

    Attributes:
        paths: name → file. refused: whether something was to be written.
    """

    protocol: ClassVar[str] = "gpu-curate-run"
    cachable: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.paths: dict[str, Path] = {}
        self.refused = False

    def add(self, path: Path) -> str:
        """The name of a file."""
        name = f"{self.protocol}://{len(self.paths)}/{path.name}"
        self.paths[name] = path
        return name

    def _at(self, path: str) -> Path:
        name = path if path.startswith(self.protocol) else f"{self.protocol}://{path}"
        if name not in self.paths:
            raise FileNotFoundError(path)
        return self.paths[name]

    def open(self, path: str, mode: str = "rb", **options: Any) -> IO[bytes]:
        if mode != "rb":
            self.refused = True
            raise PermissionError(path)
        return self._at(path).open("rb")

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        return {"name": path, "size": os.path.getsize(self._at(path)), "type": "file"}

    def glob(self, path: str, **options: Any) -> list[str]:
        return [path] if self.exists(path) else []

    def exists(self, path: str, **options: Any) -> bool:
        return path in self.paths or f"{self.protocol}://{path}" in self.paths

    def modified(self, path: str) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(os.path.getmtime(self._at(path)), datetime.UTC)

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        self.refused = True
        raise PermissionError(path)

    mv = rm_file = rm
