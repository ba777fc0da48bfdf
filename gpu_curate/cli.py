"""The command line: parse, call, print. One function a command; the work is done elsewhere."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from gpu_curate import __version__
from gpu_curate.commands import documents, judge, machine, recipes, register, shards, tokenizers
from gpu_curate.commands.options import (
    EXIT_CONFIG,
    EXIT_FATAL,
    EXIT_INTERRUPTED,
    AsJson,
    BackendOption,
    ConfigPath,
    Fresh,
    Out,
    Set,
    TrustCode,
    TrustEngine,
    Workers,
    load_recipe,
    tell,
)
from gpu_curate.errors import ConfigError, GpuCurateError
from gpu_curate.privacy import redacted
from gpu_curate.visible import one, say, say_json

_STARTED = time.monotonic()  # the one clock of a run's progress

app = typer.Typer(
    name="gpu-curate",
    help="Raw text in, deduplicated, filtered, decontaminated token shards out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.add_typer(shards.app, name="shards")
app.add_typer(recipes.app, name="config")
app.add_typer(tokenizers.app, name="tokenizer")
app.add_typer(judge.app, name="judge")
# What the system refuses and the user can put right; any other OSError is ours to explain, by its traceback.
USERS_ERRNO = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE}


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

        recipe, folder = load_recipe(config, out, workers, backend, set_, trust_engine, trust_code)

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

    recipe, folder = load_recipe(config, out, workers, backend, set_, trust_engine, trust_code)
    facts = make_plan(recipe, folder, fresh=fresh)
    tell(facts, as_json, print_plan)


@app.command(epilog="Example:  gpu-curate status runs/quickstart --json")
def status(run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")], as_json: AsJson = False) -> None:
    """Say how far a run is."""
    from gpu_curate.console import print_status
    from gpu_curate.runs.state import run_state

    tell(run_state(run), as_json, print_status)


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

    tell(clean_run(run, shards, yes, waiting), as_json, print_clean)


# In the order of the help, behind those above.
app.command(
    epilog="Examples:  gpu-curate export runs/web --what kept --format jsonl --columns doc_id,text  |  "
    "gpu-curate export runs/web --what dropped --reason fuzzy_duplicate --out near"
)(documents.export)
app.command(epilog="Example:  gpu-curate samples runs/web --reason gopher_repetition:duplicate_lines -n 5")(
    documents.samples
)
app.command(
    epilog="Examples:  gpu-curate init data/ 'more/*.parquet'  |  gpu-curate init --recipe commoncrawl --out web.yaml"
)(recipes.init)
app.command(epilog="Examples:  gpu-curate doctor  |  gpu-curate doctor --gpu --json")(machine.doctor)
app.command(epilog="Example:  gpu-curate compare configs/quickstart.yaml --max-bytes 256000000 --out runs/compare")(
    machine.compare
)
register(app)


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
