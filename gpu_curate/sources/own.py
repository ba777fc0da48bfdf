"""A reader of the user's own: `type: my_reader.py:MyReader`, or an entry point of an installed package.

Keys of the source beyond those of every source are fields of the class. What the class gives is checked item by item, so that a
mistake in it is told by name and no doc_id is given twice.
"""

from __future__ import annotations

import functools
import inspect
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import IO, Any, ClassVar

from pydantic import ConfigDict, Field, PrivateAttr, ValidationError

from gpu_curate.errors import ConfigError, FatalError, did_you_mean
from gpu_curate.own_code import Code, failure, load, wrong_values
from gpu_curate.section import Section
from gpu_curate.sources import Record, Reject, Skip, Split
from gpu_curate.sources.sections import SourceBase

MAX_ROWS = 1 << 36  # of a file: what a doc_id holds


class Reader(Section):
    """A reader of your own. Fields are keys of the source, as of any pydantic model.

        class Lines(gc.Reader):
            suffixes = (".lines",)
            comment: str = "#"

            def read(self, split: gc.Split) -> Iterator[gc.Record | gc.Reject | gc.Skip]:
                with self.open(split.path) as f:
                    for row, line in enumerate(f):
                        text = line.decode("utf-8").rstrip()
                        yield gc.Skip("comment") if text.startswith(self.comment) else gc.Record(row, text)

    The same records in the same order every time. `row` tells a record from every other one of its file, and grows. What `read`
    raises about a file is a reject of that file, and the file is cut there.
    """

    suffixes: ClassVar[tuple[str, ...]] = ()  # of the files that a folder or glob gives, without a compression; (): any
    libraries: ClassVar[tuple[str, ...]] = ()  # installed packages whose version the texts depend on

    _source: SourceBase | None = PrivateAttr(None)

    @property
    def source(self) -> SourceBase:
        """The keys that every source has: name, keep_columns, storage_options, ..."""
        assert self._source is not None, "the reader of no source"
        return self._source

    @contextmanager
    def open(self, path: str) -> Iterator[io.BufferedReader]:
        """The bytes of a file, local or remote, decompressed (.gz .bz2 .xz .zst .lz4 and their like); lines by iterating."""
        from gpu_curate.sources.files import open_stream

        with open_stream(path, self.source.storage_options) as stream:
            yield io.BufferedReader(_Bytes(stream))

    def splits(self, path: str, size: int, max_bytes: int) -> list[Split]:
        """How several workers read a file of `size` bytes, in order; here: one reads it whole.

        A split's `start` and `stop` are yours; `first_row` is the row of its first record, `nbytes` about its bytes of text.
        """
        return [Split(path, 0, -1, 0, size, False)]

    def read(self, split: Split) -> Iterator[Record | Reject | Skip]:
        """The records of one split in file order. With a parameter `skip` it leaves so many items out, without work on them."""
        raise NotImplementedError(f"{type(self).__name__} has no `read`")


class _Bytes(io.RawIOBase):
    """A stream that has `read` alone, for Python's own buffers and text."""

    def __init__(self, stream: IO[bytes]):
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class OwnSource(SourceBase):
    """Files that a class of your own reads; further keys are that class's."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Any]

    gives_more: ClassVar[bool] = True

    type: str = Field(
        description="PATH.py:CLASS, the path relative to the recipe's folder; or the name of an entry point"
    )

    _code: Code | None = PrivateAttr(None)

    @property
    def code(self) -> Code | None:
        """The class and its source; None: nobody has loaded it."""
        return self._code

    def known(self, code: Code) -> OwnSource:
        """The same with its class, imported, its keys checked.

        Raises: ConfigError: the class cannot be had or is no reader, or a key is wrong.
        """
        made = self.model_copy()
        made._code = code
        made.reader()
        return made

    def reader(self) -> Checked:
        """Raises: ConfigError: nobody has loaded the class."""
        if self._code is None:
            raise ConfigError(
                f"sources.{self.name}.type: {self.type}: this code is not loaded",
                "gpu_curate.config.load and gpu_curate.run load it, with trust_code=True",
            )
        keys = json.dumps(self.__pydantic_extra__, sort_keys=True, default=str)
        made = _reader(self._code, self.name, keys).model_copy()
        made._source = self
        return CheckedWithColumns(made) if hasattr(made, "columns") else Checked(made)

    def identity(self) -> dict[str, Any]:
        """What tells this reader from any other, for a fingerprint."""
        from gpu_curate.store.fingerprint import versions

        reader = self.reader().own
        assert self._code is not None
        keys = reader.model_dump(mode="json")
        return {"type": self._code.identity(), "keys": keys, "libraries": versions(reader.libraries)}


@functools.lru_cache(maxsize=64)
def _reader(code: Code, source: str, keys: str) -> Reader:
    """An object of the class. Raises: ConfigError."""
    key = f"sources.{source}"
    kind = load(code, f"{key}.type")
    if not (isinstance(kind, type) and issubclass(kind, Reader)) or kind is Reader:
        raise ConfigError(
            f"{key}.type: {code.origin}: {code.name} is no reader", f"write class {code.name}(gc.Reader): ..."
        )
    taken = set(kind.model_fields) & set(OwnSource.model_fields)
    if taken:
        raise ConfigError(f"{key}.type: class {kind.__name__}: every source has a key {min(taken)}", "rename the field")
    if not isinstance(kind.suffixes, tuple) or not all(isinstance(s, str) and s.startswith(".") for s in kind.suffixes):
        raise ConfigError(f"{key}.type: class {kind.__name__}: suffixes is {kind.suffixes!r}", 'a tuple: (".lines",)')
    unknown = [name for name in json.loads(keys) if name not in kind.model_fields]
    if unknown:
        known = [*OwnSource.model_fields, *kind.model_fields]
        near = did_you_mean(unknown[0], known) or f" (known: {', '.join(known)})"
        raise ConfigError(f"{key}.{unknown[0]}: unknown key{near}")
    try:
        return kind.model_validate_json(keys)
    except ValidationError as e:
        raise ConfigError("\n".join(wrong_values(e, key))) from e
    except Exception as e:
        raise ConfigError(f"{key}.type: {failure(e, code)}") from e


class Checked:
    """A reader of the user's as the stages use one: what it gives is what readers give, or an error names its class.

    Raises:
        FatalError: a split or an item is of another kind, a text is no str, or a row does not grow.
    """

    def __init__(self, own: Reader):
        self.own = own
        self.suffixes = own.suffixes
        self._label = type(own).__name__
        self._skips = "skip" in inspect.signature(own.read).parameters

    def splits(self, path: str, size: int, max_bytes: int) -> list[Split]:
        found = list(self.own.splits(path, size, max_bytes))
        row = 0
        for split in found:
            if not isinstance(split, Split):
                raise FatalError(f"{self._label}: splits gives {_shown(split)}, not gpu_curate.Split")
            numbers = (split.start, split.stop, split.first_row, split.nbytes)
            if split.path != path or not all(type(n) is int for n in numbers) or split.first_row < row:
                raise FatalError(
                    f"{self._label}: splits gives {split} of {path}",
                    "each has that path, and integers; first_row grows from 0 on",
                )
            row = split.first_row
        return found

    def read(self, split: Split, skip: int = 0) -> Iterator[Record | Reject | Skip]:
        items = self._items(split, skip)
        last = -1 if self._skips and skip else split.first_row - 1
        for item in items:
            if isinstance(item, Record):
                self._check(item, last, split.path)
                last = item.row
            elif not isinstance(item, Reject | Skip):
                raise FatalError(f"{self._label}: read gives {_shown(item)}, not gpu_curate.Record, Reject or Skip")
            yield item

    def _items(self, split: Split, skip: int) -> Iterator[Any]:
        if self._skips:
            return iter(self.own.read(split, skip=skip))  # type: ignore[call-arg]
        return islice(self.own.read(split), skip, None)

    def _check(self, record: Record, last: int, path: str) -> None:
        if not isinstance(record.text, str):
            raise FatalError(f"{self._label}: {path}: a text is {_shown(record.text)}, not str")
        if isinstance(record.row, bool) or not isinstance(record.row, int) or not last < record.row < MAX_ROWS:
            raise FatalError(
                f"{self._label}: {path}: row {record.row!r} after row {last}",
                "rows are integers that grow within a file",
            )
        if not isinstance(record.columns, Mapping):
            raise FatalError(f"{self._label}: {path}: columns are {_shown(record.columns)}, not a mapping")


class CheckedWithColumns(Checked):
    """One that says which columns a file has: `columns(path)` gives their names."""

    def columns(self, path: str) -> tuple[list[str], None]:
        return [str(name) for name in self.own.columns(path)], None  # type: ignore[attr-defined]


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {value!r}"[:80]
