"""What tells one state of an input file from another, where size and time are not trusted."""

from __future__ import annotations

from gpu_curate.errors import ConfigError
from gpu_curate.sources.files import open_raw
from gpu_curate.sources.listing import File
from gpu_curate.sources.sections import SourceBase
from gpu_curate.xxh3 import xxh3_64

_CHUNK = 1 << 24


def content_identity(file: File, source: SourceBase) -> str:
    """xxh3-64 of a file's bytes. Raises: ConfigError: it cannot be read."""
    state = xxh3_64()
    try:
        with open_raw(file.path, source.storage_options) as f:
            while chunk := f.read(_CHUNK):
                state.update(chunk)
    except OSError as e:
        raise ConfigError(f"source {source.name}: {file.path}: {e}") from e
    return state.hexdigest()
