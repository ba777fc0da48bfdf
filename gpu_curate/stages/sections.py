"""The sections of the stages, apart from them, since they load NumPy and pyarrow: duplicates, references, shards."""

from __future__ import annotations

import json
from importlib import resources
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from gpu_curate.section import MAX_SEED, MAX_TOKENS, Section
from gpu_curate.sources.sections import Kept

TEXT_HASHES = ("text:xxh3", "text:sha256", "text:sha1", "text:md5")  # what `annotations.by` may be beside a column


class Fuzzy(Section):
    """MinHash LSH: two documents of shingle Jaccard similarity s share a bucket with probability 1-(1-s^rows)^bands."""

    renamed: ClassVar[dict[str, dict[str, str]]] = {"components": {"scipy": "cpu"}}

    shingle_words: int = Field(5, ge=1, le=32, description="words per shingle")
    num_bands: int = Field(14, ge=1, le=4096, description="bands; FineWeb, section 3.4")
    rows_per_band: int = Field(8, ge=1, le=4096, description="signature rows per band")
    num_hashes: int | None = Field(None, ge=1, description="num_bands x rows_per_band; may be given as a check")
    seed: int = Field(42, ge=0, le=MAX_SEED, description="of the permutations and the survivor rule")
    family: Literal["affine", "fmix64"] = Field("affine", description="permutation family")
    scope: Literal["global", "group"] = Field("global", description="`group`: only within a source's group_column")
    verify: Literal["none", "signature", "exact"] = Field(
        "none",
        description="how similarity is checked: by the signatures or by the texts; none: a shared bucket is enough",
    )
    verify_against: Literal["pair", "survivor"] = Field(
        "survivor",
        description="with verify: `survivor`: nothing is removed that is below the threshold to the document that is kept "
        "for it; `pair`: candidate pairs reach it, and chains of them are removed whole",
    )
    threshold: float = Field(
        0.7,
        gt=0.0,
        le=1.0,
        description="with verify: Jaccard similarity that a duplicate needs; for none, verify: none",
    )
    keep: str = Field(
        "random",
        pattern=r"^(random|first|longest|highest:[a-z0-9_]+)$",
        description="survivor of a component: random (content keyed), first, longest, highest:SCORE",
    )
    survivors: int = Field(1, ge=1, description="documents kept of a cluster, the best by `keep`, copies included")
    min_cluster_size: int = Field(
        2, ge=2, description="clusters of fewer documents lose none; what matches a reference set goes anyway"
    )
    max_source_share: float = Field(
        0.8, ge=0.0, le=1.0, description="warn when more than this share of a source is removed as duplicates"
    )
    components: Literal["auto", "cpu", "curator"] = Field(
        "auto",
        description="who builds components from edges: union-find on the CPU, NeMo Curator on GPUs; auto: Curator from "
        "8 billion edges and 2 GPUs up, and the CPU if it fails",
    )

    @property
    def spares(self) -> bool:
        """True if some duplicates are kept."""
        return self.survivors > 1 or self.min_cluster_size > 2

    @model_validator(mode="after")
    def _hashes_fit(self) -> Fuzzy:
        need = self.num_bands * self.rows_per_band
        if self.num_hashes is not None and self.num_hashes != need:
            raise ValueError(
                f"num_bands={self.num_bands} x rows_per_band={self.rows_per_band} needs num_hashes={need}, "
                f"got {self.num_hashes}; set num_hashes: {need} or leave it out"
            )
        return self


class Dedup(Section):
    """Duplicate removal."""

    off: ClassVar[dict[str, Any]] = {"exact": False}

    exact: bool | Literal["compare"] = Field(
        True, description="by xxh3-128 of the text; `compare` also compares the text"
    )
    fuzzy: Fuzzy | None = Field(Fuzzy(), description="null: off")


class Reference(Section):
    """A reference set: benchmarks, a tokenizer's training sample, an older corpus."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$", description="name in reports; unique in the config")
    path: str | list[str] | None = Field(
        None, description="JSONL, JSON, Parquet, text or zip files of them; glob or list. This, `dataset` or `from`"
    )
    benchmark: str | None = Field(
        None,
        description="a common benchmark by its short name: the keys of its entry in docs/decontamination.md, but for those given",
    )
    dataset: str | None = Field(None, description="a Hugging Face data set instead of `path`: hub name or local folder")
    config: str | None = Field(None, description="of `dataset`: configuration (subset) name")
    split: str = Field("test", description="of `dataset`: split name")
    revision: str | None = Field(None, description="of `dataset`: commit, branch or tag")
    from_: Literal["validation"] | None = Field(
        None,
        alias="from",
        description="`validation` instead of `path`: the run's own held-out documents. One of which a training document holds too "
        "much is not held out (on_match: drop), or counted (flag)",
    )
    text_fields: list[str] = Field(["text"], description="fields whose texts are items; dots reach into objects")
    field_weights: dict[str, Annotated[float, Field(gt=0.0, le=1000.0)]] | None = Field(
        None,
        description="decontaminate: the fields of an object are one item, whose coverage is the mean of theirs by these weights "
        "(1 for those not named); null: each text is an item of its own",
    )
    action: Literal["decontaminate", "train_only", "dedup_against"] = Field(description="what a match leads to")
    on_match: Literal["drop", "cut", "flag"] = Field(
        "drop",
        description="decontaminate: what becomes of a document that holds too much of an item: `drop` it, `cut` the words "
        "that it shares with the item out of it, or `flag` it: it is kept and counted",
    )
    follow_links: bool = Field(False, description="follow links that leave the named folder")
    hidden_files: bool = Field(False, description="read files whose names begin with `.` or `_` too")
    ngram_words: int = Field(
        13,
        ge=1,
        le=256,
        description="decontaminate: words per n-gram (Brown et al. 2020, appendix C). In unspaced scripts 2 Han "
        "characters, 3 kana, 5 Thai or Tibetan, 5.5 Lao or Khmer, 7.5 Burmese code points count as a word; a word of Korean, "
        "Tamil, Telugu, Kannada or Ethiopic script counts as 1.5, of Malayalam as 2",
    )
    max_coverage: float = Field(
        0.15,
        ge=0.0,
        le=1.0,
        description="decontaminate: a document holds too much when it holds more than this share of one item's n-grams",
    )
    template_documents: int | None = Field(
        10,
        ge=1,
        description="decontaminate: an n-gram that more documents of the run than this hold, and at least template_items items, "
        "is a template sentence and counts for no item (Brown et al. 2020, appendix C); null: none is",
    )
    template_items: int = Field(3, ge=1, description="decontaminate: items of the set that hold a template, at least")
    whole_items: bool = Field(False, description="decontaminate: items shorter than ngram_words match as a whole")
    min_unspaced_words: int = Field(
        3,
        ge=1,
        le=256,
        description="whole_items: an item in a script without spaces needs so many words (3: 6 Han characters, 9 kana, 15 "
        "Thai code points), since a name of two characters stands in half a corpus",
    )

    @model_validator(mode="before")
    @classmethod
    def _of_benchmark(cls, data: Any) -> Any:
        """What a short name stands for, below the keys that are given."""
        if not isinstance(data, dict) or not isinstance(data.get("benchmark"), str):
            return data
        known = known_benchmarks()
        name = data["benchmark"]
        if name not in known:
            raise ValueError(f"benchmark: {name!r} is not known; known are {', '.join(known)}")
        entry = {"name": name, "action": "decontaminate", **known[name]}
        if data.get("path") is not None:  # a copy of its own: files, no data set
            entry = {k: v for k, v in entry.items() if k not in ("dataset", "config", "split")}
        if "text_fields" in data:
            entry.pop("field_weights", None)
        return {**entry, **data}

    @model_validator(mode="after")
    def _of_one_place(self) -> Reference:
        given = [k for k, v in (("path", self.path), ("dataset", self.dataset), ("from", self.from_)) if v is not None]
        if len(given) != 1:
            raise ValueError(f"give one of path, dataset and from, not {' and '.join(given) or 'none'}")
        if self.dataset is None and (self.config, self.revision) != (None, None):
            raise ValueError("config and revision are of `dataset`")
        if self.from_ is not None and (self.action != "decontaminate" or self.on_match == "cut"):
            raise ValueError("from: validation needs action: decontaminate, and on_match: drop or flag")
        return self

    @model_validator(mode="after")
    def _weights_of_fields(self) -> Reference:
        unknown = [name for name in self.field_weights or {} if name not in self.text_fields]
        if unknown:
            raise ValueError(f"field_weights: {unknown[0]} is not among text_fields ({', '.join(self.text_fields)})")
        if self.field_weights is not None and self.action != "decontaminate":
            raise ValueError(f"field_weights are of action: decontaminate, not of {self.action}")
        return self

    @model_validator(mode="after")
    def _on_match_of_benchmarks(self) -> Reference:
        if self.on_match != "drop" and self.action != "decontaminate":
            raise ValueError(f"on_match: {self.on_match} is of action: decontaminate, not of {self.action}")
        return self

    @model_serializer(mode="wrap")
    def _as_written(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = plain(self)
        return {"from" if name == "from_" else name: value for name, value in written.items()}

    @property
    def paths(self) -> list[str]:
        return [self.path] if isinstance(self.path, str) else list(self.path or [])


def known_benchmarks() -> dict[str, dict[str, Any]]:
    """Short name → the keys of a reference set that it stands for."""
    text = resources.files(__package__).joinpath("benchmarks.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found


class Annotation(Section):
    """Properties of documents that others have published, as columns that `quality.columns` can bound."""

    off: ClassVar[dict[str, Any]] = {}

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$", description="name in messages; unique in the config")
    path: str | list[str] = Field(description="Parquet files; glob, URL or list")
    key: str = Field("url", description="column of these files that tells which document a row is of")
    by: str = Field(
        "url",
        min_length=1,
        description="what of a document equals the key: a column that its source carries, or `text:xxh3`, `text:sha256`, "
        "`text:sha1`, `text:md5`: hexadecimal digits of a hash of the text after normalising",
    )
    columns: list[Kept] = Field(
        min_length=1,
        description="columns that are taken; `{column: score, as: edu_score}` takes one under another name",
    )
    follow_links: bool = Field(False, description="follow links that leave the named folder")
    hidden_files: bool = Field(False, description="read files whose names begin with `.` or `_` too")

    @property
    def paths(self) -> list[str]:
        return [self.path] if isinstance(self.path, str) else list(self.path)

    @property
    def taken(self) -> dict[str, str]:
        """Name here → name in the files."""
        return dict((c, c) if isinstance(c, str) else (c.as_, c.column) for c in self.columns)

    @model_validator(mode="after")
    def _known_hash(self) -> Annotation:
        if self.by.startswith("text:") and self.by not in TEXT_HASHES:
            raise ValueError(f"by: {self.by} is no hash of a text; there are {', '.join(TEXT_HASHES)}")
        return self


class Validation(Section):
    """The validation split: the lowest shuffle keys, whole documents."""

    tokens: int = Field(15_000_000, ge=0, description="tokens wanted; the document that passes it is the last")
    max_fraction: float = Field(
        0.1, ge=0.0, le=1.0, description="at most this share of the kept tokens (small corpora)"
    )
    bound: str | None = Field(
        None,
        pattern=r"^[0-9a-f]{16}$",
        description="pin the split: manifest.json's split bound; null: that of the run directory's latest shards, if it has any",
    )
    earlier: str | None = Field(
        None, description="pin the split to that of an earlier run: its directory, folder of shards or manifest.json"
    )

    @model_validator(mode="after")
    def _one_bound(self) -> Validation:
        if self.bound is not None and self.earlier is not None:
            raise ValueError("give one of `bound` and `earlier`")
        return self


class Shards(Section):
    """The output."""

    off: ClassVar[dict[str, Any]] = {"validation": {"tokens": 0}}

    format: Literal["llmc", "nanogpt", "megatron"] = Field("llmc", description="file format of the shards")
    tokens_per_shard: int = Field(100_000_000, ge=1, lt=1 << 31, description="the last shard may be shorter")
    shuffle_seed: int = Field(1337, ge=0, le=MAX_SEED, description="of the content-keyed shuffle")
    validation: Validation = Field(Validation(), description="held-out split")
    mixture_tokens: int | None = Field(
        None,
        gt=0,
        le=MAX_TOKENS,
        description="tokens in all that `weight`s share out; null: as many as the source that is scarcest for its weight allows, each once",
    )
    max_epochs: float = Field(4.0, gt=0, le=1000, description="most times a source may be repeated to reach its share")
