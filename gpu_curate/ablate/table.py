"""Arms against validation sets: `gpu-curate ablate`.

An arm is a shard set and the order it is read in. All arms see as many tokens, with the same shape of model, the same seeds
and the same learning rates; each is judged on the validation documents of every shard set, in bits per byte. Intervals are of
95 %, by drawing documents with replacement (2,000 times), the same ones for both sides of a difference; losses of seeds are
averaged first, and their spread is told beside.

# D documents
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gpu_curate.errors import ConfigError, install
from gpu_curate.loader.folder import read_manifest, shards_folder

Array = np.ndarray[Any, np.dtype[Any]]
_DRAWS = 2000
ORDERS: dict[str, dict[str, Any]] = {"": {"shuffle": 0}, "dump": {"document_order": "dump"}}


class Arm(NamedTuple):
    """A shard set under a name, and how its rows are read."""

    name: str
    shards: Path
    options: dict[str, Any]


def parse_arm(text: str) -> Arm:
    """`[NAME=]DIR[:dump]`. Raises: ConfigError: no such folder."""
    name, _, place = text.rpartition("=")
    order = ""
    if not Path(place).is_dir() and place.endswith(":dump"):
        place, order = place.removesuffix(":dump"), "dump"
    if not Path(place).is_dir():
        raise ConfigError(
            f"ablate {text}: no such folder", "an arm is [NAME=]DIR, or [NAME=]DIR:dump for the order of the files"
        )
    return Arm(name or Path(place).name + (f" ({order})" if order else ""), shards_folder(place), ORDERS[order])


def ablate(
    arms: list[Arm],
    out: Path,
    parameters: int = 1_000_000,
    tokens: int = 2_000_000,
    seeds: int = 2,
    seq_len: int = 256,
    batch_size: int = 16,
    eval_tokens: int = 200_000,
    device: str | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Train every arm with every seed and judge it. Writes ablate.json, curves.csv and, with matplotlib, curves.png to `out`.

    Returns: {"model", "budget", "arms": {name: {"tokens" (of its training split), "epochs", "seconds", "samples"}}, "bits_per_byte": {arm: {set: {mean, low, high,
        seeds}}}, "differences": {set: {arm: {mean, low, high}}} from the first arm on}.
    Raises: ConfigError: fewer than two arms, two of a name, tokenizers that differ, no validation split; torch is missing.
    """
    _check(arms, seeds)
    try:
        import torch
    except ImportError as e:
        raise ConfigError("ablate: torch is not installed", install("ablate")) from e

    from gpu_curate.ablate.model import shape_for
    from gpu_curate.ablate.trial import Budget, held_documents, nats, sample, train
    from gpu_curate.tokenizer.loading import load_beside

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    manifest = read_manifest(arms[0].shards)
    assert manifest is not None
    vocab_size, eot_id = int(manifest["vocab_size"]), int(manifest["eot_id"])
    tokenizer = load_beside(arms[0].shards / "tokenizer.json")

    def decode(ids: Any) -> str:
        return str(tokenizer.decode([int(i) for i in ids], skip_special_tokens=False))

    budget = Budget(tokens, seq_len, batch_size, device=device)
    shape = shape_for(parameters, vocab_size)
    sets = [held_documents(name, shards, eval_tokens, decode) for name, shards in _sets(arms)]
    losses: dict[str, dict[str, list[Array]]] = {arm.name: {held.name: [] for held in sets} for arm in arms}
    facts: dict[str, Any] = {"model": shape._asdict(), "budget": {**budget.__dict__, "seeds": seeds}, "arms": {}}
    curves: list[tuple[str, int, int, float]] = []
    for seed in range(seeds):
        for arm in arms:
            say = _telling(tell, f"{arm.name}, seed {seed}")
            trained = train(arm.shards, shape, vocab_size, budget, seed, arm.options, say)
            for held in sets:
                losses[arm.name][held.name].append(nats(trained.model, held, seq_len, batch_size, device))
            curves += [(arm.name, seed, step, loss) for step, loss in trained.curve]
            own = facts["arms"].setdefault(
                arm.name, {"tokens": _tokens(arm), "epochs": trained.epochs, "seconds": [], "samples": []}
            )
            own["seconds"].append(trained.seconds)
            own["samples"].append(decode(sample(trained.model, eot_id, 120, seq_len, seed, device)))
    draws = {held.name: _draws(len(held.documents)) for held in sets}
    facts["bits_per_byte"] = {
        arm.name: {h.name: _interval(losses[arm.name][h.name], h.bytes_D, draws[h.name]) for h in sets} for arm in arms
    }
    first = arms[0].name
    facts["differences"] = {
        h.name: {
            arm.name: _difference(losses[arm.name][h.name], losses[first][h.name], h.bytes_D, draws[h.name])
            for arm in arms[1:]
        }
        for h in sets
    }
    facts["validation"] = {h.name: {"documents": len(h.documents), "bytes": int(h.bytes_D.sum())} for h in sets}
    _write(out, facts, curves)
    return facts


def _tokens(arm: Arm) -> int:
    manifest = read_manifest(arm.shards)
    assert manifest is not None
    return int(manifest["splits"]["train"]["tokens"])


def _telling(tell: Callable[[str], None], what: str) -> Callable[[str], None]:
    return lambda text: tell(f"{what}: {text}")


def _check(arms: list[Arm], seeds: int) -> None:
    if len(arms) < 2:
        raise ConfigError(f"ablate: {len(arms)} arm, expected two or more shard sets")
    names = [arm.name for arm in arms]
    if len(set(names)) < len(names):
        raise ConfigError(f"ablate: two arms are named {max(names, key=names.count)}", "name them: clean=DIR raw=DIR")
    if seeds < 1:
        raise ConfigError(f"ablate: {seeds} seeds, expected one or more")
    known = {}
    for arm in arms:
        manifest = read_manifest(arm.shards)
        if manifest is None or not manifest["splits"].get("validation", {}).get("shards"):
            raise ConfigError(
                f"ablate: {arm.shards} has no validation split", "set shards.validation.tokens in its recipe"
            )
        known[arm.name] = (manifest.get("tokenizer") or {}).get("sha256")
    for name, sha256 in known.items():
        if sha256 != known[names[0]]:
            raise ConfigError(
                f"ablate: {names[0]} and {name} were made with different tokenizers",
                "give both recipes one tokenizer.path: equal tokens are equal text only then",
            )


def _sets(arms: list[Arm]) -> list[tuple[str, Path]]:
    """Validation sets, each folder once."""
    found: dict[Path, str] = {}
    for arm in arms:
        found.setdefault(arm.shards, arm.name)
    return [(name, shards) for shards, name in found.items()]


def _draws(count: int) -> Array:
    """float64 (draws, D): how often each document is drawn."""
    rng = np.random.default_rng(0)
    return rng.multinomial(count, np.full(count, 1 / count), size=_DRAWS).astype(np.float64)


def _interval(nats: list[Array], bytes_D: Array, draws: Array) -> dict[str, Any]:
    mean_D, bits = np.mean(nats, axis=0), np.log(2) * bytes_D
    low, high = np.quantile((draws @ mean_D) / (draws @ bits), [0.025, 0.975])
    seeds = [float(one.sum() / bits.sum()) for one in nats]
    return {"mean": float(mean_D.sum() / bits.sum()), "low": float(low), "high": float(high), "seeds": seeds}


def _difference(ours: list[Array], first: list[Array], bytes_D: Array, draws: Array) -> dict[str, Any]:
    """Bits per byte more than the first arm's, on the same documents."""
    return _signed([a - b for a, b in zip(ours, first, strict=True)], bytes_D, draws)


def _signed(nats: list[Array], bytes_D: Array, draws: Array) -> dict[str, Any]:
    found = _interval(nats, bytes_D, draws)
    return {key: found[key] for key in ("mean", "low", "high", "seeds")}


def _write(out: Path, facts: dict[str, Any], curves: list[tuple[str, int, int, float]]) -> None:
    from gpu_curate.store.files import publish, write_json

    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "ablate.json", facts)
    with publish(out / "curves.csv") as temp:
        lines = [f"{json.dumps(arm)},{seed},{step},{loss:.5f}\n" for arm, seed, step, loss in curves]
        temp.write_text("arm,seed,step,loss\n" + "".join(lines), encoding="utf-8")
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for number, arm in enumerate(facts["arms"]):
        for seed in sorted({s for a, s, _, _ in curves if a == arm}):
            points = [(step, loss) for a, s, step, loss in curves if (a, s) == (arm, seed)]
            axes.plot(*zip(*points, strict=True), color=f"C{number}", label=arm if seed == 0 else None, linewidth=1)
    axes.set_xlabel("step")
    axes.set_ylabel("training loss, nats a token")
    axes.legend()
    with publish(out / "curves.png") as temp:
        figure.savefig(temp, format="png", dpi=120)
    pyplot.close(figure)
