"""`load`: read a tokenizer, and choose the fastest library whose ids equal those of the reference."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu_curate.errors import ConfigError, CorruptError, GpuCurateError, install, one_line
from gpu_curate.tokenizer import limits
from gpu_curate.tokenizer.backends import LIBRARIES, Ids, inert, open_backend, single_thread, version_of
from gpu_curate.tokenizer.encoder import Encoder
from gpu_curate.tokenizer.model import ids_in, parse, resolve_eot, special_tokens
from gpu_curate.tokenizer.patterns import CHUNKABLE
from gpu_curate.tokenizer.proof import ids_of_probe, probe_of, problem_of
from gpu_curate.tokenizer.reading import read
from gpu_curate.tokenizer.section import Tokenizer

log = logging.getLogger(__name__)


def load(section: Tokenizer, proof: Path | None = None) -> Encoder:
    """Read a tokenizer and choose the library that runs it.

    Args:
        section: the `tokenizer` section of a config.
            `path`: a tokenizer.json or a folder that holds one; a hub name (`org/name`, `org/name@revision`);
            `tiktoken:NAME`, or `tiktoken:` and the path of a published rank file (`cl100k_base.tiktoken`).
            `eot`: the end-of-text token, by text or id.
            `library`: `auto` takes the first of LIBRARIES that is installed and equals the reference on the probe texts,
            and warns by name about each that differs; a name must be installed and equal, or this is an error.
        proof: file in which the choice for a content, a section and the installed libraries is found, or put.
    Returns:
        Encoder. The same file gives the same object as long as this process lives: the probe (1 s) runs once.
    Raises:
        ConfigError: nothing at `path`, no network and no cached copy, not a tokenizer, no such eot token, an eot token
            that ordinary text produces, or a library that cannot be had.
    """
    if section.path is None:
        raise ConfigError("tokenizer.path: missing (a tokenizer that is to be trained can be loaded after that)")
    single_thread()
    data, pattern = read(section.path)
    key = _proof_key(section, data, pattern)
    chosen = (_proof(proof) if proof is not None else {}).get(key) or _proved.get(key)
    if chosen is not None:
        return Encoder(source=section.path, data=data, pattern=pattern, **chosen)
    if proof is None:
        return _choose(section.path, data, pattern, section.eot, section.library)
    from gpu_curate.store.files import write_json

    encoder = _choose(section.path, data, pattern, section.eot, section.library)
    fields = ("eot_id", "vocab_size", "library", "version", "reason")
    write_json(proof, {"key": key, "chosen": {name: getattr(encoder, name) for name in fields}})
    return encoder


def load_beside(path: Path) -> Any:
    """The reference library's tokenizer of a file that lies beside shards, for its `decode`: bounded as every other.

    Raises: ConfigError: it cannot be read, is no tokenizer.json, or costs too much.
    """
    import tokenizers

    try:
        limits.check_size(path.stat().st_size, str(path))
        data = path.read_bytes()
        plain = limits.is_plain(parse(data, str(path)), len(data), CHUNKABLE)
        said = None if plain else limits.trial(data.decode("utf-8"), ["a text"], str(path))
        if said is None:
            return tokenizers.Tokenizer.from_str(data.decode("utf-8"))
    except (GpuCurateError, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as e:  # a Rust panic reaches Python as a BaseException
        said = one_line(e, 300)
    raise ConfigError(f"tokenizer {path} cannot be loaded: {said[:300]}")


_proved: dict[str, dict[str, Any]] = {}  # key → the choice, of the run directory at hand


def recall(proofs: Iterable[Path]) -> None:
    """Let `load` take the choices that these files hold, where content, section and installed libraries are the same."""
    _proved.clear()
    for path in proofs:
        _proved.update(_proof(path))


def _proof(path: Path) -> dict[str, dict[str, Any]]:
    """Key → choice of a file; nothing of one that is not there or of another kind."""
    from gpu_curate.store.files import read_json

    with contextlib.suppress(OSError, CorruptError, LookupError, TypeError, ValueError, AttributeError):
        known = read_json(path)
        kinds = {"eot_id": int, "vocab_size": int, "library": str, "version": str, "reason": str}
        if {n: type(v) for n, v in known["chosen"].items()} == kinds and known["chosen"]["library"] in LIBRARIES:
            return {str(known["key"]): known["chosen"]}
    return {}


def _proof_key(section: Tokenizer, data: bytes, pattern: str | None) -> str:
    """What the choice of a library depends on: tokenizer, section, the libraries that are there, and this module."""
    from gpu_curate.store.code import code_digest
    from gpu_curate.store.fingerprint import digest

    tokenizer = [hashlib.sha256(data).hexdigest(), pattern, section.eot, section.library]
    return digest([tokenizer, {name: version_of(name) for name in LIBRARIES}, code_digest("tokenizer.loading")])


@functools.lru_cache(maxsize=4)
def _choose(path: str, data: bytes, pattern: str | None, eot: str | int, library: str) -> Encoder:
    tokenizer = parse(data, path)
    eot_id = resolve_eot(tokenizer, eot, path)
    reference = "tokenizers" if pattern is None else "tiktoken"
    vocab_size = max(eot_id, *ids_in(tokenizer)) + 1
    draft = Encoder(path, data, pattern, eot_id, vocab_size, reference, version_of(reference), "the reference")
    if pattern is None and not limits.is_plain(tokenizer, len(data), CHUNKABLE):
        said = limits.trial(inert(draft, keep_specials=True), probe_of(draft), path)
        if said is not None:
            raise ConfigError(
                f"tokenizer {path}: {reference} {draft.version or '(not installed)'} cannot run it: {said[:300]}"
            )
    try:
        probe, expected = _reference(draft)
    except (GpuCurateError, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as e:  # a Rust panic reaches Python as a BaseException
        said = one_line(e, 200)
        raise ConfigError(
            f"tokenizer {path}: {reference} {draft.version or '(not installed)'} cannot run it: {type(e).__name__}: {said}"
        ) from e
    if (expected[0] == eot_id).any():
        raise ConfigError(
            f"tokenizer.eot {eot!r}: {path} makes id {eot_id} of ordinary text, so it cannot mark the end of a document",
            hint=f"its special tokens: {', '.join(map(repr, special_tokens(tokenizer)[:20])) or 'none'}",
        )
    refused: list[str] = []
    for name in LIBRARIES if library == "auto" else (library,):
        problem = problem_of(draft, name, probe, expected)
        if problem is None:
            why = "the reference" if name == reference else f"equals {reference} on {len(probe)} probe texts"
            why = "; ".join([why, *refused] if library == "auto" else ["asked for", why])
            open_backend.cache_clear()  # the reference library, and what the chosen one remembers of the probe
            return replace(draft, library=name, version=version_of(name), reason=why)
        if library != "auto":
            how = install("tiktoken") if library == "tiktoken" else f"pip install {library}"
            hint = f"{how}, or " if problem == "not installed" else ""
            raise ConfigError(
                f"tokenizer.library {library}: {problem} (tokenizer {path})", hint=f"{hint}set tokenizer.library: auto"
            )
        refused.append(f"{name}: {problem}")
        if problem != "not installed":
            log.warning("tokenizer %s: not using %s: %s", path, name, problem)
    raise ConfigError(f"tokenizer {path}: no library can run it: {'; '.join(refused)}")


@functools.lru_cache(maxsize=4)
def _reference(draft: Encoder) -> tuple[list[str], Ids]:
    """The probe texts for this tokenizer, and their ids by its reference library."""
    probe = probe_of(draft)
    return probe, ids_of_probe(draft, probe)
