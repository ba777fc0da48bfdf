"""The command line: parse, call, print. One function a command; the work is done elsewhere."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from gpu_curate import __version__
from gpu_curate.commands import register
from gpu_curate.errors import ConfigError, GpuCurateError
from gpu_curate.privacy import redacted
from gpu_curate.visible import one, say, say_json

if TYPE_CHECKING:
    from gpu_curate.config import Config

_STARTED = time.monotonic()  # the one clock of a run's progress

app = typer.Typer(
    name="gpu-curate",
    help="Raw text in, deduplicated, filtered, decontaminated token shards out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
shards_app = typer.Typer(help="Look at shards and check them.", no_args_is_help=True, rich_markup_mode=None)
tokenizer_app = typer.Typer(help="Make tokenizers.", no_args_is_help=True, rich_markup_mode=None)
config_app = typer.Typer(help="What a recipe may say.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(shards_app, name="shards")
app.add_typer(config_app, name="config")
app.add_typer(tokenizer_app, name="tokenizer")

EXIT_CONFIG, EXIT_FATAL, EXIT_INTERRUPTED = 2, 1, 130  # the last: 128 + signal number
# What the system refuses and the user can put right; any other OSError is ours to explain, by its traceback.
USERS_ERRNO = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE}


def _choice(name: str, *values: str, help: str) -> Any:
    """An option that takes one of a few words: shown in the help, completed by the shell, and suggested when misspelt."""

    def check(value: str | None) -> str | None:
        if value is None or value in values:
            return value
        from gpu_curate.config import did_you_mean

        raise ConfigError(
            f"{name} {value}: choose {', '.join(values[:-1])} or {values[-1]}{did_you_mean(value, values)}"
        )

    return typer.Option(name, metavar="|".join(values), help=help, callback=check, autocompletion=lambda: list(values))


ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG.yaml", help="The recipe.")]
Out = Annotated[Path | None, typer.Option("--out", help="Run directory. Default: runs/NAME of CONFIG.yaml.")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Worker processes. Default: one a core.")]
BackendOption = Annotated[
    str | None,
    _choice("--backend", "auto", "cpu", "gpu", help="Where documents are put. Default: what the recipe says."),
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the recipe; repeatable.")
]
TrustEngine = Annotated[
    bool, typer.Option("--trust-engine", help="The scheduler that the recipe names as run.engine is yours.")
]
TrustCode = Annotated[bool, typer.Option("--trust-code", help="The files of Python that the recipe names are run.")]


def _recipes() -> list[str]:
    from gpu_curate.tools.recipes import names

    return names()


RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")]
ShardsName = Annotated[
    str | None, typer.Option("--shards", metavar="NAME", help="An earlier set of shards in RUN. Default: the latest.")
]
Fresh = Annotated[
    bool,
    typer.Option("--fresh", help="Choose the validation split anew, not by the bound of the latest shards in RUN."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def _version(value: bool) -> None:
    if value:
        say(f"gpu_curate {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def _load(
    config: Path,
    out: Path | None,
    workers: int | None,
    backend: str | None,
    overrides: list[str] | None,
    trust: bool = False,
    trust_code: bool = False,
) -> tuple[Config, Path]:
    """The config with the command line's say in it, and the run directory."""
    from gpu_curate.config import load

    more = list(overrides or [])
    if workers is not None:
        more.append(f"run.workers={workers}")
    if backend is not None:
        more.append(f"run.backend={backend}")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", FutureWarning)
        loaded = load(config, more, trust or None, trust_code or None)
    for warning in told:
        say(f"warning: {one(warning.message)}", file=sys.stderr)
    return loaded, out or Path("runs") / config.stem


@app.command(
    epilog="Examples:  gpu-curate run configs/quickstart.yaml  |  "
    "gpu-curate run web.yaml --out runs/web --workers 8 --set min_tokens=128"
)
def run(
    config: ConfigPath,
    out: Out = None,
    workers: Workers = None,
    backend: BackendOption = None,
    set_: Set = None,
    trust_engine: TrustEngine = False,
    trust_code: TrustCode = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors and the last lines only.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the final facts as JSON; everything else goes to standard error.")
    ] = False,
    fresh: Fresh = False,
) -> None:
    """Run a recipe: read, score, deduplicate, decide, tokenise, write shards. Reuses what an earlier run finished."""
    from gpu_curate.console import print_summary
    from gpu_curate.terminal import Bars, also_in_log, make_progress

    with make_progress(quiet, _STARTED, to_stderr=as_json) as progress:
        progress.note(f"gpu_curate {__version__}: {config}")  # at once: what follows takes its time to load
        from gpu_curate.api.pipeline import execute

        recipe, folder = _load(config, out, workers, backend, set_, trust_engine, trust_code)

        def last_words() -> None:
            if isinstance(progress, Bars):
                progress.stop()
            for text in (f"stopped; finished partitions are kept in {folder}", f"to go on: {_same_command()}"):
                say(text, file=sys.stderr if as_json else sys.stdout)

        signals = _Signals(last_words)
        try:
            with signals.installed():
                outcome = execute(recipe, folder, progress, fresh)
        except KeyboardInterrupt:
            signals.say()
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is closed, and Python ends without its handlers
            raise typer.Exit(signals.status or EXIT_INTERRUPTED) from None
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext(), also_in_log(folder):
        print_summary(folder, outcome, quiet, progress.seconds())
    if as_json:
        latest = folder / "shards"
        shards = latest if latest.exists() else outcome.context.box("shards").folder
        places = {"run": str(folder), "shards": str(shards)}
        report = json.loads((folder / outcome.report / "report.json").read_text(encoding="utf-8"))
        say_json({**places, "report": str(folder / outcome.report / "index.html"), **report})
    if outcome.failures:
        raise typer.Exit(EXIT_FATAL)


class _Signals:
    """SIGINT and SIGTERM end a run once, as KeyboardInterrupt. A second Ctrl-C, while things are being closed, ends the
    process at once with the same last words; a second SIGTERM changes nothing.

    Stays in force to the end of the process once a signal came: closing goes on after the command.
    """

    def __init__(self, last_words: Callable[[], None]):
        self._last_words = last_words
        self.status = 0  # 128 + number of the first signal

    def __call__(self, number: int, frame: Any) -> None:
        if not self.status:
            self.status = 128 + number
            raise KeyboardInterrupt
        if number == signal.SIGINT:
            with contextlib.suppress(Exception):
                self.say()
            os._exit(self.status)  # its workers see that it is gone; what they were writing never gets its final name

    def say(self) -> None:
        words, self._last_words = self._last_words, lambda: None
        words()
        sys.stdout.flush()

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        before = [(n, signal.signal(n, self)) for n in (signal.SIGINT, signal.SIGTERM)]
        try:
            yield
        finally:
            if not self.status:
                for number, handler in before:
                    signal.signal(number, handler)


def _same_command() -> str:
    import shlex

    return redacted(shlex.join(["gpu-curate", *sys.argv[1:]]))


@app.command(epilog="Example:  gpu-curate plan configs/fineweb_edu.yaml --set sources.edu.path='data/*.parquet'")
def plan(
    config: ConfigPath,
    out: Out = None,
    workers: Workers = None,
    backend: BackendOption = None,
    set_: Set = None,
    trust_engine: TrustEngine = False,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
    fresh: Fresh = False,
) -> None:
    """Say what a run would do: inputs, partitions, peak memory, disk, what would be reused. Writes nothing."""
    from gpu_curate.console import print_plan
    from gpu_curate.runs.planning import make_plan

    recipe, folder = _load(config, out, workers, backend, set_, trust_engine, trust_code)
    facts = make_plan(recipe, folder, fresh=fresh)
    _print(facts, as_json, print_plan)


@app.command(epilog="Example:  gpu-curate status runs/quickstart --json")
def status(run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")], as_json: AsJson = False) -> None:
    """Say how far a run is."""
    from gpu_curate.console import print_status
    from gpu_curate.runs.state import run_state

    _print(run_state(run), as_json, print_status)


@app.command(epilog="Examples:  gpu-curate clean runs/web  |  gpu-curate clean runs/web --shards --yes")
def clean(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")],
    shards: Annotated[bool, typer.Option("--shards", help="Earlier sets of shards and their reports, too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove it. Without, it is only listed.")] = False,
    as_json: AsJson = False,
) -> None:
    """List what the latest shards of a run do not need, or remove it."""
    from gpu_curate.console import print_clean
    from gpu_curate.runs.cleaning import clean as clean_run

    def waiting(pid: str) -> None:
        say(f"process {pid} is working in {run}; waiting for it to end", file=sys.stderr)

    _print(clean_run(run, shards, yes, waiting), as_json, print_clean)


ShardsFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of shards, or run directory.")]


def _shards_folder(folder: Path) -> Path:
    """A run directory stands for its shards."""
    from gpu_curate.loader import shards_folder

    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder")
    return shards_folder(folder)


@shards_app.command(epilog="Example:  gpu-curate shards info runs/quickstart/shards")
def info(folder: ShardsFolder, as_json: AsJson = False) -> None:
    """Tokens, documents, files, tokenizer and split of a folder of shards."""
    from gpu_curate.console import print_shards
    from gpu_curate.shards_check import info as shards_info
    from gpu_curate.store.run_directory import RUN_FILE, shard_sets

    place = _shards_folder(folder)
    facts = shards_info(place)
    if not any(split["shards"] for split in facts["splits"].values()):
        raise ConfigError(
            f"{place}: no shard", "expected manifest.json, or files like train_000000.bin; or a run directory"
        )
    _print({**facts, "sets": shard_sets(folder)} if (folder / RUN_FILE).exists() else facts, as_json, print_shards)


@shards_app.command(epilog="Example:  gpu-curate shards verify runs/quickstart/shards")
def verify(folder: ShardsFolder, as_json: AsJson = False) -> None:
    """Check sizes, headers, hashes, EOT counts and token ranges against the manifest. Exit status 1 on a finding."""
    from gpu_curate.shards_check import verify as verify_shards

    place = _shards_folder(folder)
    findings = verify_shards(place)
    if as_json:
        say_json({"shards": str(place), "findings": [f._asdict() for f in findings]})
    else:
        for finding in findings:
            say(f"FAILED  {one(finding.file)}: {one(finding.what)}")
        say(f"{place}: {len(findings)} findings" if findings else f"{place}: every check passed")
    if findings:
        raise typer.Exit(EXIT_FATAL)


@shards_app.command(epilog="Example:  gpu-curate shards head runs/quickstart/shards -n 2 --split validation")
def head(
    folder: ShardsFolder,
    n: Annotated[int, typer.Option("-n", min=1, help="Documents shown.")] = 3,
    split: Annotated[str, _choice("--split", "train", "validation", "val", help="Which split.")] = "train",
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", help="tokenizer.json; default: the one beside the shards.")
    ] = None,
    chars: Annotated[int, typer.Option("--chars", min=1, help="Characters shown of each.")] = 400,
    as_json: AsJson = False,
) -> None:
    """Show the first documents of a split: where they come from, their tokens, their text."""
    from gpu_curate import config
    from gpu_curate.console import print_head
    from gpu_curate.loader import read_manifest
    from gpu_curate.shards_check import head as shards_head
    from gpu_curate.tokenizer.loading import load

    place = _shards_folder(folder)
    path = Path(tokenizer) if tokenizer else place / "tokenizer.json"
    manifest = read_manifest(place)
    eot = manifest["eot_id"] if manifest else 0
    decode = load(config.Tokenizer(path=str(path), eot=eot, library="tokenizers")).decode if path.exists() else None
    documents = shards_head(place, n, split, decode)
    if as_json:
        say_json([{**d, "ids": d["ids"].tolist()} for d in documents])
    else:
        print_head(documents, chars)


def _export_name(what: str, reasons: list[str], split: str | None, sources: list[str], format: str) -> str:
    parts = [what, *reasons, *([split] if split else []), *sources, format]
    return "-".join(p.replace(":", "_") for p in parts)


@app.command(
    epilog="Examples:  gpu-curate export runs/web --what kept --format jsonl --columns doc_id,text  |  "
    "gpu-curate export runs/web --what dropped --reason fuzzy_duplicate --out near"
)
def export(
    run: RunFolder,
    what: Annotated[str, _choice("--what", "kept", "dropped", "all", help="Which documents.")] = "kept",
    format: Annotated[str, _choice("--format", "parquet", "jsonl", help="File format.")] = "parquet",
    out: Annotated[Path | None, typer.Option("--out", help="Folder to write. Default: RUN-export/WHAT-...")] = None,
    reason: Annotated[
        list[str] | None,
        typer.Option("--reason", metavar="R", help="Only those dropped for this, or its family; repeatable."),
    ] = None,
    split: Annotated[str | None, _choice("--split", "train", "validation", "val", help="Only of this split.")] = None,
    source: Annotated[
        list[str] | None, typer.Option("--source", metavar="S", help="Only of this source; repeatable.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns", metavar="A,B", help="Columns, in order; `scores`: all scores. Default: all but scores."
        ),
    ] = None,
    shards: ShardsName = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Write the curated text, or what was dropped with its reasons, as Parquet or JSON Lines. Goes on where it stopped."""
    from gpu_curate.runs.finished import open_run
    from gpu_curate.tools.export import Format, What
    from gpu_curate.tools.export import export as write

    reasons, sources = list(reason or []), list(source or [])
    place = out or Path(f"{run}-export") / _export_name(what, reasons, split, sources, format)
    names = [name for some in columns or [] for name in some.split(",") if name]
    facts = write(
        open_run(run, shards),
        place,
        cast(What, what),
        cast(Format, format),
        reasons,
        split,
        sources,
        names,
        workers,
        note=_now_and_then,
    )
    if as_json:
        say_json(facts)
    else:
        again = f" ({facts['reused']:,} partitions were there)" if facts["reused"] else ""
        say(f"{place}: {facts['documents']:,} documents in {len(facts['files']):,} files{again}")


def _now_and_then(text: str, _last: list[float] = [0.0]) -> None:  # noqa: B006  one clock for all calls
    """Say how far it is, at most every five seconds."""
    if time.monotonic() - _last[0] > 5.0:
        _last[0] = time.monotonic()
        say(text, file=sys.stderr)


@app.command(epilog="Example:  gpu-curate samples runs/web --reason gopher_repetition:duplicate_lines -n 5")
def samples(
    run: RunFolder,
    reason: Annotated[str, typer.Option("--reason", metavar="R", help="A reason of the report, or `kept`.")],
    n: Annotated[int, typer.Option("-n", min=1, help="Documents shown.")] = 20,
    chars: Annotated[int, typer.Option("--chars", min=40, help="Characters shown of each.")] = 800,
    shards: ShardsName = None,
    as_json: AsJson = False,
) -> None:
    """Show documents that were dropped for a reason, with what tripped the rule pointed out. Always the same ones."""
    from gpu_curate.console import print_samples
    from gpu_curate.runs.finished import open_run
    from gpu_curate.tools.samples import samples as find

    found = find(open_run(run, shards), reason, n)
    if as_json:
        say_json(found)
    else:
        print_samples(found, chars)


@config_app.command(epilog="Example:  gpu-curate config schema > recipe.schema.json")
def schema() -> None:
    """Print the JSON Schema of recipes, for editors and other programs."""
    from gpu_curate.tools.config_reference import json_schema

    say_json(json_schema())


@config_app.command(name="reference", epilog="Example:  gpu-curate config reference | less")
def config_reference() -> None:
    """Print every key of a recipe with its type, default and meaning, as Markdown."""
    from gpu_curate.tools.config_reference import markdown

    say(markdown())


@app.command(
    epilog="Examples:  gpu-curate init data/ 'more/*.parquet'  |  gpu-curate init --recipe commoncrawl --out web.yaml"
)
def init(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH...]", help="Your files, folders or globs.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The recipe to write; - prints it.")] = Path("recipe.yaml"),
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe", metavar="NAME", help="Copy a recipe that comes with the package.", autocompletion=_recipes
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the recipe that is there.")] = False,
) -> None:
    """Look at your files and write a recipe for them, or copy one that comes with the package. Default: this folder."""
    from gpu_curate.console import print_init
    from gpu_curate.tools import recipes
    from gpu_curate.tools.look import Look

    if recipe is not None and paths:
        raise ConfigError(
            f"init: --recipe {recipe} copies a recipe as it is, so it takes no PATH", "give one of the two"
        )
    if out.exists() and not force and str(out) != "-":
        raise ConfigError(f"init: {out} exists", "choose another one with --out, or overwrite it with --force")
    sources, left = None, list[Look]()
    if recipe is not None:
        text = recipes.read(recipe)
    else:
        text, sources, left = recipes.compose(list(paths or ["."]), "recipe.yaml" if str(out) == "-" else str(out))
    if str(out) == "-":
        print(text, end="")
        return
    out.write_text(text, encoding="utf-8")
    print_init(out, sources, left)


@tokenizer_app.command(
    epilog="Example:  gpu-curate tokenizer train 'data/*.txt' --vocab-size 32768 --out tokenizer.json"
)
def train(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="JSONL, Parquet or text files; globs.")],
    out: Annotated[Path, typer.Option("--out", help="tokenizer.json to write.")] = Path("tokenizer.json"),
    vocab_size: Annotated[int, typer.Option("--vocab-size", min=257, help="Entries, the EOT among them.")] = 32768,
    eot: Annotated[str, typer.Option("--eot", help="End-of-text token; the last id.")] = "<|endoftext|>",
    text_column: Annotated[str, typer.Option("--text-column", help="Key or column that holds the text.")] = "text",
    max_bytes: Annotated[int, typer.Option("--max-bytes", min=1, help="Read at most so much text.")] = 1 << 30,
) -> None:
    """Train a byte-level BPE. Same input in the same order, same file."""
    from gpu_curate.stages.tokenizer import train_from_files

    facts = train_from_files(paths, out, vocab_size, eot, text_column, max_bytes)
    for reason in facts["rejected"][:5]:
        say(f"warning: {one(reason)}", file=sys.stderr)
    if len(facts["rejected"]) > 5:
        say(f"warning: {len(facts['rejected'])} records could not be read", file=sys.stderr)
    for text in facts["warnings"]:
        say(f"warning: {text}", file=sys.stderr)
    say(f"{out}: {facts['vocab_size']} entries from {facts['documents']} documents ({facts['bytes'] / 1e6:.1f} MB)")


@app.command(epilog="Examples:  gpu-curate doctor  |  gpu-curate doctor --gpu --json")
def doctor(
    gpu: Annotated[bool, typer.Option("--gpu", help="The GPU path is required, not optional.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what is installed, missing or broken here, and test every op. Exit status 1 if something is broken."""
    from gpu_curate.console import print_doctor
    from gpu_curate.tools.doctor.diagnosis import diagnose

    facts = diagnose(gpu, tell=lambda text: say(text, file=sys.stderr, flush=True))
    _print(facts, as_json, print_doctor)
    if not facts["usable"]:
        raise typer.Exit(EXIT_FATAL)


@app.command(epilog="Example:  gpu-curate compare configs/quickstart.yaml --max-bytes 256000000 --out runs/compare")
def compare(
    config: ConfigPath,
    out: Annotated[Path | None, typer.Option("--out", help="Folder of results. Default: runs/NAME-compare.")] = None,
    max_bytes: Annotated[int, typer.Option("--max-bytes", min=1, help="Bytes of text compared.")] = 64 << 20,
    workers: Workers = None,
    backend: BackendOption = None,
    set_: Set = None,
    trust_engine: TrustEngine = False,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Run the CPU and the GPU path on a sample: equal arrays, speeds, price ratio. Exit status 1 if an array differs."""
    from gpu_curate.console import print_compare
    from gpu_curate.tools.compare import compare as run_both

    recipe, _ = _load(config, None, workers, backend, set_, trust_engine, trust_code)
    folder = out or Path("runs") / f"{config.stem}-compare"
    facts = run_both(recipe, folder, max_bytes, note=(lambda text: None) if as_json else print)
    _print(facts, as_json, lambda f: print_compare(f, folder))
    if not facts["equal"]:
        raise typer.Exit(EXIT_FATAL)


register(app)


def _print(facts: dict[str, Any], as_json: bool, pretty: Any) -> None:
    if as_json:
        say_json(facts)
    else:
        pretty(facts)


def _say_error(e: GpuCurateError) -> None:
    """Lines behind the first are set in, so that no name in a message passes for one of ours."""
    say("error: " + e.message.replace("\n", "\n  "), file=sys.stderr)
    if e.hint is not None:
        say("hint: " + e.hint.replace("\n", "\n  "), file=sys.stderr)


def _traceback(kind: type[BaseException], e: BaseException, trace: Any) -> None:
    """An error that nobody expected, without what is hidden."""
    import traceback

    say(redacted("".join(traceback.format_exception(kind, e, trace))), file=sys.stderr, end="")


def main() -> None:
    """Entry point: an error of ours, or what the system refuses, is one message and an exit status.

    2: never started; 1: stopped; 130 and 143: interrupted.
    """
    os.environ["PYTHONSAFEPATH"] = "1"  # for every process started from here: none runs what lies in the current folder
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # LC_ALL=C must not stop a run
    sys.excepthook = _traceback
    try:
        app(prog_name="gpu-curate", standalone_mode=True)
    except ConfigError as e:
        _say_error(e)
        sys.exit(EXIT_CONFIG)
    except GpuCurateError as e:
        _say_error(e)
        sys.exit(EXIT_FATAL)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as e:
        if e.errno not in USERS_ERRNO:
            raise
        say(f"error: {'' if e.filename is None else f'{one(e.filename)}: '}{e.strerror}", file=sys.stderr)
        sys.exit(EXIT_FATAL)


if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the current folder, which `-m` puts there
    main()
