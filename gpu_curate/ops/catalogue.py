"""Every op once: what it takes, what it gives, how it is run where its input lies.

compare, the self-tests, doctor, scripts/gpu_check and the benchmarks walk this list, so that an op which stands here is
compared, tested and timed everywhere. A name of an array ends in what its first axis counts: _N documents, _W words, _S
shingles, _M n-gram hits, _E candidate pairs, _B bands.

# N documents, B bands
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from gpu_curate.device.runtime import Device, to_device, to_host
from gpu_curate.document import TextColumn, is_cupy
from gpu_curate.ops import twin as twin_of
from gpu_curate.ops.bands import BandSpec
from gpu_curate.ops.judge import Tables, trial
from gpu_curate.ops.minhash import MinHashSpec
from gpu_curate.ops.ngrams import NgramIndex

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Inputs:
    """What the ops are run over.

    Attributes:
        text: N documents, on the host or on the device that the ops are run on.
        scope_N: uint64 keys on the same side; None: all documents may meet.
        minhash, bands: settings of signatures and bands.
        indexes: name → n-grams of a reference set.
        judges: weights of learned scores.
        before: op → its arrays, of ops that others take as input.
    """

    text: TextColumn
    scope_N: Any = None
    minhash: MinHashSpec = field(default_factory=MinHashSpec)
    bands: BandSpec = field(default_factory=BandSpec)
    indexes: Mapping[str, NgramIndex] = field(default_factory=dict)
    judges: Tables = field(default_factory=trial)
    before: Mapping[str, Arrays] = field(default_factory=dict)

    def on(self, device: Device) -> Inputs:
        """The same on a device."""
        scope_N = None if self.scope_N is None else device.upload(self.scope_N)
        return replace(self, text=to_device(self.text, device), scope_N=scope_N)


Twin = Callable[..., Any]  # twin(function, *arguments): the function of one of an op's two modules


@dataclass(frozen=True)
class Op:
    """One op.

    Attributes:
        name: in tables and reports.
        package: below gpu_curate.ops; its cpu.py and gpu.py are the twins.
        what: one line.
        run: makes the arrays out of the inputs.
        after: ops whose arrays it takes.
        variants: settings to try besides those of the inputs: label → the inputs with them.
        per_partition: a run does it partition by partition; False: once, over all.
    """

    name: str
    package: str
    what: str
    run: Callable[[Twin, Inputs], Arrays]
    after: tuple[str, ...] = ()
    variants: Callable[[Inputs], dict[str, Inputs]] | None = None
    per_partition: bool = True

    def __call__(self, inputs: Inputs, device: Device | None = None) -> Arrays:
        """The arrays, where the inputs lie: on `device`, or on the host for None."""

        def twin(function: str, *arguments: Any, package: str = self.package) -> Any:
            module = twin_of(package, device is not None)
            return getattr(module, function)(*arguments, *(() if device is None else (device,)))

        return self.run(twin, inputs)


def _content_hash(twin: Twin, inputs: Inputs) -> Arrays:
    return {"content_N": twin("content_hash", inputs.text)}


def _words(twin: Twin, inputs: Inputs) -> Arrays:
    hash_W, offsets = twin("word_hashes", inputs.text)
    return {"hash_W": hash_W, "words_N": offsets[1:] - offsets[:-1]}


def _signature(twin: Twin, inputs: Inputs) -> Arrays:
    sig_NH, n_shingles_N = twin("signatures", inputs.text, inputs.minhash)
    return {"sig_N": sig_NH, "n_shingles_N": n_shingles_N}


def _signature_variants(inputs: Inputs) -> dict[str, Inputs]:
    other: Literal["affine", "fmix64"] = "fmix64" if inputs.minhash.family == "affine" else "affine"
    return {f"signature {other}": replace(inputs, minhash=replace(inputs.minhash, family=other))}


def _shingles(twin: Twin, inputs: Inputs) -> Arrays:
    hash_S, offsets = twin("shingles", inputs.text, inputs.minhash)
    return {"hash_S": hash_S, "shingles_N": offsets[1:] - offsets[:-1]}


def _bands(twin: Twin, inputs: Inputs) -> Arrays:
    return {"band_N": twin("band_hashes", inputs.before["signature"]["sig_N"], inputs.bands, inputs.scope_N).T}


def _components(twin: Twin, inputs: Inputs) -> Arrays:
    """Candidate pairs of every band where the band hashes lie, and on the host the labels of what they connect."""
    from gpu_curate.ops.components import Components

    valid_N = inputs.before["signature"]["n_shingles_N"] > 0
    components = Components(len(valid_N))
    low, high, counts = [], [], []
    for hash_N in inputs.before["bands"]["band_N"].T:
        low_E, high_E = (to_host(e) for e in twin("band_edges", _contiguous(hash_N), valid_N))
        components.add_edges(low_E, high_E)
        low.append(low_E)
        high.append(high_E)
        counts.append(len(low_E))
    pairs = {"low_E": np.concatenate(low), "high_E": np.concatenate(high), "pairs_B": np.array(counts)}
    return {**pairs, "label_N": components.labels()}


def _text_stats(twin: Twin, inputs: Inputs) -> Arrays:
    return {"stats_N": twin("text_stats", inputs.text).T}


def _judge(twin: Twin, inputs: Inputs) -> Arrays:
    sum_JN, words_N = twin("judge_sums", inputs.text, inputs.judges)
    return {"sum_N": sum_JN.T, "words_N": words_N}


def _judge_variants(inputs: Inputs) -> dict[str, Inputs]:
    wide = replace(inputs.judges, weights=inputs.judges.weights.astype(np.int16))
    return {"judge int16": replace(inputs, judges=wide)}


def _ngrams(twin: Twin, inputs: Inputs) -> Arrays:
    made: Arrays = {}
    for name, index in inputs.indexes.items():
        hits = twin("probe", inputs.text, index)
        best_N, item_N, hits_N = twin("coverage", hits, index, len(inputs.text))
        own = {"gram_M": hits[1], "coverage_N": best_N, "item_N": item_N, "hits_N": hits_N}
        made.update({f"{name} {array}": values for array, values in own.items()})
    return made


OPS = {
    op.name: op
    for op in (
        Op("content_hash", "content_hash", "xxh3-128", _content_hash),
        Op("words", "words", "Unicode words, folded and hashed", _words),
        Op("signature", "minhash", "words, shingles and MinHash", _signature, variants=_signature_variants),
        Op("shingles", "minhash", "words and shingle hashes", _shingles),
        Op("bands", "bands", "LSH band hashes of the signature", _bands, after=("signature",)),
        Op(
            "components",
            "components",
            "candidate pairs of every band, and what they connect",
            _components,
            after=("signature", "bands"),
            per_partition=False,
        ),
        Op("text_stats", "text_stats", "every statistic of the quality rules", _text_stats),
        Op("judge", "text_stats", "sums of learned weights over words", _judge, variants=_judge_variants),
        Op("ngrams", "ngrams", "probe against the reference sets", _ngrams),
    )
}


def results(inputs: Inputs, device: Device | None = None) -> Iterator[tuple[str, Arrays]]:
    """(label, arrays) of every op and of its variants, in the order of OPS; each sees what those before it made."""
    before: dict[str, Arrays] = {}
    for op in OPS.values():
        own = replace(inputs, before=before)
        before[op.name] = op(own, device)
        yield op.name, before[op.name]
        for label, other in (op.variants(own) if op.variants else {}).items():
            yield label, op(other, device)


def comparisons(
    inputs: Inputs, device: Device, on_device: Inputs | None = None
) -> Iterator[tuple[str, Arrays, Arrays]]:
    """(label, arrays of the GPU twin, arrays of the CPU twin) of every op.

    Args:
        inputs: on the host.
        on_device: the same on the device; None: copied there.
    """
    on_gpu, on_cpu = results(on_device or inputs.on(device), device), results(inputs)
    for (label, got), (_, expected) in zip(on_gpu, on_cpu, strict=True):
        yield label, got, expected


def first_difference(got: Arrays, expected: Arrays) -> str | None:
    """Where arrays of two twins first differ, in words; None if all are equal in type, shape and every element."""
    if got.keys() != expected.keys():
        return f"arrays {', '.join(got)} instead of {', '.join(expected)}"
    for name, want in expected.items():
        have = to_host(got[name])
        if have.shape != want.shape or have.dtype != want.dtype:
            return f"{name}: {have.dtype} {have.shape} instead of {want.dtype} {want.shape}"
        if not np.array_equal(have, want):
            at = tuple(int(i) for i in np.argwhere(have != want)[0])
            return f"{name} at {at}: {have[at]} instead of {want[at]}"
    return None


def _contiguous(array: Any) -> Any:
    return array.copy() if is_cupy(array) else np.ascontiguousarray(array)
