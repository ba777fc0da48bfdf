"""`gpu-curate judge`: train, evaluate and show learned scores."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gpu_curate.commands.options import AsJson, tell
from gpu_curate.visible import one, say

app = typer.Typer(help="Learned scores: train them, see what they tell.", no_args_is_help=True, rich_markup_mode=None)

Good = Annotated[
    list[str] | None, typer.Option("--good", metavar="PATH", help="Texts of the good class; globs; repeatable.")
]
Bad = Annotated[
    list[str] | None, typer.Option("--bad", metavar="PATH", help="Texts of the bad class; globs; repeatable.")
]
Labels = Annotated[
    list[str] | None, typer.Option("--labels", metavar="PATH", help="Texts with a label each; repeatable.")
]
Column = Annotated[
    str | None, typer.Option("--score", metavar="COLUMN", help="Column of --labels: 0 and 1, or any numbers.")
]
TextColumn = Annotated[str, typer.Option("--text-column", help="Key or column that holds the text.")]
MaxBytes = Annotated[int, typer.Option("--max-bytes", min=1, help="Read at most so much text.")]


@app.command(
    epilog="Examples:  gpu-curate judge train --good 'textbooks/*.parquet' --bad 'web/*.jsonl' --out good.judge  |  "
    "gpu-curate judge train --labels 'edu/*.parquet' --score score --out edu.judge"
)
def train(
    good: Good = None,
    bad: Bad = None,
    labels: Labels = None,
    score: Column = None,
    out: Annotated[Path, typer.Option("--out", help="File to write.")] = Path("new.judge"),
    text_column: TextColumn = "text",
    ngrams: Annotated[int, typer.Option("--ngrams", min=1, max=3, help="Longest run of words that counts.")] = 3,
    bits: Annotated[int, typer.Option("--bits", min=10, max=24, help="Weights: 2 to this power.")] = 20,
    wide: Annotated[bool, typer.Option("--wide", help="Weights of 16 bits instead of 8.")] = False,
    epochs: Annotated[int, typer.Option("--epochs", min=1, max=1000, help="Times every text is looked at.")] = 5,
    folds: Annotated[
        int, typer.Option("--folds", min=2, max=100, help="Parts that are held out in turn, by content.")
    ] = 10,
    prior: Annotated[int, typer.Option("--prior", min=0, max=1 << 20, help="Pulls short texts to the middle.")] = 30,
    seed: Annotated[int, typer.Option("--seed", min=0, max=1 << 31, help="Of order and folds.")] = 42,
    max_bytes: MaxBytes = 4 << 30,
    as_json: AsJson = False,
) -> None:
    """Train a judge, and say how well it tells texts apart that it has not seen, beside their length alone."""
    from gpu_curate.judges.train import Settings
    from gpu_curate.tools.judge_texts import labelled, train_judge

    data, reading = labelled(good or [], bad or [], labels or [], score, text_column, max_bytes)
    how = Settings(ngrams, bits, wide, epochs, 1.0, prior, folds, seed)
    told = None if as_json else lambda line: say(line, file=sys.stderr)
    tell(train_judge(data, reading, how, out, told), as_json, _print_trained)


@app.command(
    name="eval",
    epilog="Example:  gpu-curate judge eval edu.judge --labels 'held_out/*.parquet' --score score --good-from 3",
)
def evaluate(
    model: Annotated[str, typer.Argument(metavar="JUDGE", help="File that `judge train` wrote.")],
    good: Good = None,
    bad: Bad = None,
    labels: Labels = None,
    score: Column = None,
    good_from: Annotated[
        float | None,
        typer.Option("--good-from", help="Lowest label of a good text. Default: 1 of 0 and 1, else the median."),
    ] = None,
    text_column: TextColumn = "text",
    max_bytes: MaxBytes = 4 << 30,
    as_json: AsJson = False,
) -> None:
    """Say how well a judge tells labelled texts apart: AUC beside that of length, precision and recall, by length."""
    from gpu_curate.tools.judge_texts import evaluate_judge, labelled

    data, reading = labelled(good or [], bad or [], labels or [], score, text_column, max_bytes)
    tell(evaluate_judge(model, data, reading, good_from), as_json, _print_evaluated)


@app.command(
    name="import",
    epilog="Example:  gpu-curate judge import openhermes_reddit_eli5.bin 'web/*.jsonl' --label hq --out dclm.judge",
)
def import_(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="A fastText classifier, .bin or .ftz; or a folder of static embeddings."),
    ],
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...", help="Texts like those to score: their words and n-grams keep their weights."
        ),
    ],
    label: Annotated[
        str | None,
        typer.Option("--label", help="The label whose probability is the score. Default: the second of two."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="File to write.")] = Path("new.judge"),
    text_column: TextColumn = "text",
    bits: Annotated[int, typer.Option("--bits", min=10, max=24, help="Weights: 2 to this power.")] = 22,
    narrow: Annotated[bool, typer.Option("--narrow", help="Weights of 8 bits instead of 16.")] = False,
    max_bytes: MaxBytes = 64 << 20,
    as_json: AsJson = False,
) -> None:
    """Make a judge of a fastText classifier or of static embeddings with a linear head; say how much of its order is kept."""
    from gpu_curate.tools.judge_texts import import_judge

    tell(import_judge(model, paths, label, out, text_column, bits, not narrow, max_bytes), as_json, _print_imported)


@app.command(epilog="Example:  gpu-curate judge cut en.arpa.bin 'wikipedia/*.jsonl' --type perplexity --unit paragraph")
def cut(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A judge, or a KenLM model.")],
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="The sample: JSONL, Parquet or text files; globs.")
    ],
    type_: Annotated[str, typer.Option("--type", help="exact or perplexity, as in a recipe.")] = "exact",
    unit: Annotated[str, typer.Option("--unit", help="perplexity: document or paragraph.")] = "document",
    parts: Annotated[
        int, typer.Option("--parts", min=2, max=100, help="Parts of equal size: 3 for head, middle, tail.")
    ] = 3,
    text_column: TextColumn = "text",
    max_bytes: MaxBytes = 64 << 20,
    as_json: AsJson = False,
) -> None:
    """Say which scores part a sample into head, middle and tail, for `min` and `bands`."""
    from gpu_curate.tools.judge_texts import cut_offs

    tell(cut_offs(model, paths, type_, unit, parts, text_column, max_bytes), as_json, _print_cuts)


@app.command(
    epilog="Example:  gpu-curate judge annotate 'web/*.parquet' --endpoint http://localhost:8000/v1 --model qwen --prompt edu.txt "
    "--sample 5000 --out labels.jsonl"
)
def annotate(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="JSONL, Parquet or text files; globs.")],
    endpoint: Annotated[str, typer.Option("--endpoint", help="Base URL of an OpenAI-compatible server.")],
    model: Annotated[str, typer.Option("--model", help="Name of the model there.")],
    prompt: Annotated[
        Path, typer.Option("--prompt", metavar="FILE", help="Text of the question; {text} stands for the text.")
    ],
    out: Annotated[Path, typer.Option("--out", help="JSONL to append to.")] = Path("labels.jsonl"),
    sample: Annotated[int, typer.Option("--sample", min=1, help="Texts, drawn by content.")] = 1000,
    rate: Annotated[float, typer.Option("--rate", min=0.001, help="Requests a second at most.")] = 5.0,
    workers: Annotated[int, typer.Option("--workers", min=1, max=256, help="Requests at once.")] = 4,
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", help="Whose first group is the label. Default: the last number of the answer."),
    ] = None,
    max_chars: Annotated[int, typer.Option("--max-chars", min=1, help="Of a text that are shown.")] = 4000,
    key_from: Annotated[
        str, typer.Option("--key-from", metavar="VARIABLE", help="Environment variable with the key.")
    ] = "OPENAI_API_KEY",
    text_column: TextColumn = "text",
    max_bytes: MaxBytes = 1 << 30,
    as_json: AsJson = False,
) -> None:
    """Have a language model label a sample, for `judge train --labels`. Goes on where it was stopped."""
    from gpu_curate.errors import ConfigError
    from gpu_curate.tools.annotate import NUMBER, Asking, key_of
    from gpu_curate.tools.annotate import annotate as ask

    try:
        question = prompt.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"--prompt {prompt}: {getattr(e, 'strerror', None) or e}") from e
    how = Asking(endpoint, model, question, key_of(key_from), pattern or NUMBER, max_chars, rate)
    told = None if as_json else lambda line: say(line, file=sys.stderr)
    tell(ask(paths, how, out, sample, workers, text_column, max_bytes, told), as_json, _print_annotated)


@app.command(epilog="Examples:  gpu-curate judge show edu.judge  |  gpu-curate judge show edu.judge 'web/*.jsonl'")
def show(
    model: Annotated[str, typer.Argument(metavar="JUDGE", help="File that `judge train` wrote.")],
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH...", help="Texts whose words to weigh instead of its training's."),
    ] = None,
    text_column: TextColumn = "text",
    as_json: AsJson = False,
) -> None:
    """Show what a judge is made of: its heaviest words, and what its training said of it."""
    from gpu_curate.tools.judge_texts import show_judge

    tell(show_judge(model, paths or [], text_column), as_json, _print_shown)


def _interval(found: Any) -> str:
    return "none (one class only)" if found is None else f"{found[0]:.3f} ({found[1]:.3f} to {found[2]:.3f})"


def _print_evaluated(facts: dict[str, Any]) -> None:
    from gpu_curate.terminal import new_table
    from gpu_curate.terminal import show as show_table

    say(
        f"{one(facts['judge'])}: {facts['texts']:,} texts, {facts['good']:,} of them good (label {facts['good_from']:g} or more)"
    )
    same = facts["auc_same_length"]
    rows = new_table("AUC (95 %)", "")
    rows.add_row("this judge", _interval(facts["auc"]))
    rows.add_row("length alone", _interval(facts["auc_length"]))
    rows.add_row("this judge, among texts of one length", "none" if same is None else f"{same:.3f}")
    show_table(rows)
    bounds = new_table("min", "kept", "precision", "recall")
    for row in facts["thresholds"]:
        recall = "" if row["recall"] is None else f"{row['recall']:.3f}"
        bounds.add_row(f"{row['min']}", f"{row['kept']:.1%}", f"{row['precision']:.3f}", recall)
    show_table(bounds)
    deciles = new_table("bytes", "texts", "good", "AUC")
    for row in facts["deciles"]:
        area = "" if row["auc"] is None else f"{row['auc']:.3f}"
        deciles.add_row(f"{row['from_bytes']:,} to {row['to_bytes']:,}", f"{row['texts']:,}", f"{row['good']:,}", area)
    show_table(deciles)
    say(f"rank correlation with the labels: {facts['rank_correlation']:.3f}")
    for text in facts["warnings"]:
        say(f"warning: {one(text)}", file=sys.stderr)


def _print_words(words: dict[str, list[list[Any]]]) -> None:
    from gpu_curate.terminal import new_table
    from gpu_curate.terminal import show as show_table

    rows = new_table("for", "weight", "times", "against", "weight", "times")
    for number in range(min(20, max(len(words["for"]), len(words["against"])))):
        cells = []
        for side in ("for", "against"):
            entry = words[side][number] if number < len(words[side]) else ["", "", ""]
            cells += [one(str(entry[0])), str(entry[1]), str(entry[2])]
        rows.add_row(*cells)
    show_table(rows)


def _print_trained(facts: dict[str, Any]) -> None:
    _print_evaluated(facts)
    _print_words(facts["words"])
    say(
        f"{one(facts['judge'])}: {facts['bytes']:,} bytes; rounding costs {facts['loss_of_rounding']:.2g} of rank correlation"
    )


def _print_shown(facts: dict[str, Any]) -> None:
    say(
        f"{one(facts['judge'])}: {facts['weights']:,} weights of {facts['weight_bits']} bits, runs of up to {facts['ngrams']} words"
    )
    say(f"scores from {facts['lowest']} to {facts['highest']}; prior {facts['prior']}")
    for key, value in facts["about"].items():
        say(f"{one(str(key))}: {one(str(value))}")
    _print_words(facts["words"])


def _print_imported(facts: dict[str, Any]) -> None:
    say(f"{one(facts['judge'])}: {facts['bytes']:,} bytes, label {one(facts['label'])}, from {one(facts['model'])}")
    say(f"rank correlation with the model on {facts['texts']:,} texts: {facts['rank_correlation']:.4f}")
    for text in facts["warnings"]:
        say(f"warning: {one(text)}", file=sys.stderr)


def _print_cuts(facts: dict[str, Any]) -> None:
    say(f"{one(facts['judge'])}: {facts['texts']:,} texts of {', '.join(map(one, facts['sample']))}")
    for share, score in facts["cuts"]:
        say(f"highest {share:.4g} of them: {score} and more")
    if facts["unscored"]:
        say(f"{facts['unscored']:,} texts have no score")


def _print_annotated(facts: dict[str, Any]) -> None:
    say(
        f"{one(facts['out'])}: {facts['texts']:,} texts drawn, {facts['known']:,} had a label, {facts['labelled']:,} got one"
    )
    for reason, count in facts["reasons"].items():
        say(f"warning: {count:,} without a label: {one(reason)}", file=sys.stderr)
