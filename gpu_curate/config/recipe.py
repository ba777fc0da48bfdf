"""A recipe: the sections put together, and what must hold between them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from gpu_curate.errors import ConfigError, did_you_mean
from gpu_curate.own_code import READERS, entry_points, names_file
from gpu_curate.privacy import HIDDEN, cleaned, published
from gpu_curate.quality import Quality, bits
from gpu_curate.runs.section import Run
from gpu_curate.section import Section
from gpu_curate.sources.jsonl import JsonlSource
from gpu_curate.sources.own import OwnSource
from gpu_curate.sources.sections import (
    HuggingFaceSource,
    ParquetSource,
    SourceBase,
    WarcSource,
)
from gpu_curate.sources.text import TextSource
from gpu_curate.sources.wikipedia import WikipediaSource
from gpu_curate.stages.sections import Annotation, Dedup, Reference, Shards
from gpu_curate.text.sections import Language, Normalize, Pii
from gpu_curate.tokenizer.section import Tokenizer

SOURCES: dict[str, type[SourceBase]] = {  # by `type`
    "parquet": ParquetSource,
    "jsonl": JsonlSource,
    "text": TextSource,
    "wikipedia": WikipediaSource,
    "warc": WarcSource,
    "huggingface": HuggingFaceSource,
}
OWN = "own"  # the tag of any other


def _tag(source: Any) -> str | None:
    """Which of the sections a source is: by its type, which for a reader of the user's own names a class."""
    if isinstance(source, OwnSource):
        return OWN
    name = source.get("type") if isinstance(source, dict) else getattr(source, "type", None)
    if isinstance(name, str) and name not in SOURCES and (names_file(name) or name in entry_points(READERS)):
        return OWN
    return name if isinstance(name, str) else None


Source = Annotated[
    Annotated[ParquetSource, Tag("parquet")]
    | Annotated[JsonlSource, Tag("jsonl")]
    | Annotated[TextSource, Tag("text")]
    | Annotated[WikipediaSource, Tag("wikipedia")]
    | Annotated[WarcSource, Tag("warc")]
    | Annotated[HuggingFaceSource, Tag("huggingface")]
    | Annotated[OwnSource, Tag(OWN)],
    Discriminator(_tag),
]
# Columns that documents/ and documents.parquet have of themselves, so no `keep_columns` may bring one of these names.
COLUMNS = ("doc_id", "text", "source", "path", "row", "group", "split", "position", "tokens")


class Config(Section):
    """A recipe."""

    off: ClassVar[dict[str, Any]] = {
        "language": {},  # its defaults do nothing
        "pii": {},
        "quality": {},
        "dedup": {"exact": False, "fuzzy": None},
        "references": [],
        "annotations": [],
        "min_tokens": 0,
    }

    sources: list[Source] = Field(min_length=1, description="what is read")
    normalize: Normalize | None = Field(Normalize(), description="null: off")
    language: Language = Field(Language(), description="language identification")
    pii: Pii = Field(Pii(), description="personal data")
    quality: Quality = Field(Quality(), description="filters")
    dedup: Dedup = Field(Dedup(), description="duplicates")
    references: list[Reference] = Field([], description="reference sets")
    annotations: list[Annotation] = Field([], description="published properties of documents, as columns")
    tokenizer: Tokenizer = Field(description="required: `path` or `train`")
    min_tokens: int = Field(64, ge=0, description="a shorter document is dropped (too_few_tokens)")
    forget: str | None = Field(
        None,
        description="file of texts that are never kept: xxh3-128 of each after normalising, 32 hex digits a line; null: the "
        "list that `gpu-curate forget` left in the run directory, if there is one",
    )
    shards: Shards = Field(Shards(), description="output")
    run: Run = Field(Run(), description="execution")

    @field_validator("shards", "run", mode="before")
    @classmethod
    def _needed(cls, section: Any, info: ValidationInfo) -> Any:
        if section is None or section in (False, "off"):
            what = "a run always writes shards" if info.field_name == "shards" else "a run always runs somehow"
            raise ValueError(f"{what}, so it cannot be off; leave the key out for its defaults, or give keys below it")
        return section

    @field_validator("sources")
    @classmethod
    def _unique_sources(cls, sources: list[SourceBase]) -> list[SourceBase]:
        _unique("sources", [s.name for s in sources])
        for source in sources:
            _unique(f"{source.name}.keep_columns", [c if isinstance(c, str) else c.as_ for c in source.keep_columns])
            taken = [c for c in source.kept if c in COLUMNS]
            if taken:
                raise ValueError(
                    f"{source.name}.keep_columns: {taken[0]!r} is a column that every document has ({', '.join(COLUMNS)}); "
                    f"carry yours under another name: {{column: {source.kept[taken[0]]}, as: {taken[0]}_of_source}}"
                )
            if source.weight is not None and source.tokens is not None:
                raise ValueError(
                    f"{source.name} has `weight` and `tokens`; a source has one of them, or none and is used whole"
                )
        return sources

    @field_validator("references")
    @classmethod
    def _unique_references(cls, references: list[Reference]) -> list[Reference]:
        _unique("references", [r.name for r in references])
        return references

    @model_validator(mode="after")
    def _annotated(self) -> Config:
        _unique("annotations", [a.name for a in self.annotations])
        carried = {c for s in self.sources for c in (*s.kept, *s.gives)}
        taken: dict[str, str] = dict.fromkeys((*COLUMNS, *carried), "the sources")
        for annotation in self.annotations:
            for column in (c if isinstance(c, str) else c.as_ for c in annotation.columns):
                if column in taken:
                    raise ValueError(
                        f"annotations.{annotation.name}: there is a column {column!r} of {taken[column]} already; take it under "
                        f"another name: {{column: {column}, as: {annotation.name}_{column}}}"
                    )
                taken[column] = f"annotations.{annotation.name}"
            by_text = annotation.by.startswith("text:")
            if not by_text and annotation.by not in carried and not any(s.gives_more for s in self.sources):
                raise ValueError(
                    f"annotations.{annotation.name}.by: no source carries {annotation.by!r}"
                    f"{did_you_mean(annotation.by, carried)}: name it in keep_columns, or take the text: by: text:sha256"
                )
        return self

    @model_validator(mode="after")
    def _groups(self) -> Config:
        if self.dedup.fuzzy is not None and self.dedup.fuzzy.scope == "group":
            missing = [s.name for s in self.sources if s.group_column is None]
            if missing:
                raise ValueError(f"dedup.fuzzy.scope: group needs group_column in every source, missing in {missing}")
        return self

    @model_validator(mode="after")
    def _bounded_columns(self) -> Config:
        for column in self.quality.columns:
            if column in COLUMNS:
                raise ValueError(
                    f"quality.columns.{column}: every document has a {column} of its own ({', '.join(COLUMNS)}); carry the "
                    f"source's column under another name: keep_columns: [{{column: {column}, as: {column}_of_source}}]"
                )
            annotated = [c for a in self.annotations for c in a.taken]
            carried = list(dict.fromkeys([*(c for s in self.sources for c in (*s.kept, *s.gives)), *annotated]))
            if column not in carried and not any(s.gives_more for s in self.sources):
                raise ValueError(
                    f"quality.columns.{column}: no source carries this column{did_you_mean(column, carried)} (they carry "
                    f"{', '.join(carried) or 'none'}): name it in keep_columns of the source that has it, "
                    f"keep_columns: [{column}]"
                )
        for name, judge in self.quality.judges.items():
            if judge.top_share is not None and judge.per == "group":
                missing = [s.name for s in self.sources if s.group_column is None]
                if missing:
                    raise ValueError(
                        f"quality.judges.{name}.per: group needs group_column in every source, missing in {missing}"
                    )
        try:
            bits(self.quality)
        except ConfigError as e:
            raise ValueError(f"{e.message}: {e.hint}") from e
        return self

    @model_validator(mode="after")
    def _shared_out(self) -> Config:
        if self.shards.mixture_tokens is not None and all(s.weight is None for s in self.sources):
            raise ValueError(
                "shards.mixture_tokens is shared out by `weight`, and no source has one: give each a weight"
            )
        return self


def public(config: Config) -> dict[str, Any]:
    """The config as plain data for files that others may read: the values of `storage_options` (keys, tokens) are left out."""
    data: dict[str, Any] = cleaned(config.model_dump(mode="json"))
    for source in data["sources"]:
        source["storage_options"] = dict.fromkeys(source["storage_options"], HIDDEN)
    return data


def for_publication(config: Config) -> dict[str, Any]:
    """As `public`, for what goes out with the shards: no absolute path, whose folders tell who worked where."""
    data = {k: v for k, v in public(config).items() if k != "run"}
    data["quality"] = {published(key): value for key, value in data["quality"].items()}  # a file of the user's own

    def shorten(value: Any) -> Any:
        return [published(v) for v in value] if isinstance(value, list) else published(value)

    for section, keys in (
        *((s, ("type", "path", "dataset", "url_blocklist", "domain_blocklist")) for s in data["sources"]),
        *((r, ("path", "dataset")) for r in data["references"]),
        *((a, ("path",)) for a in data["annotations"]),
        (data["tokenizer"], ("path",)),
        (data, ("forget",)),
        (data.get("language") or {}, ("model",)),
        (data["shards"].get("validation") or {}, ("earlier",)),
        *((judge, ("model",)) for judge in data["quality"].get("judges", {}).values()),
    ):
        for key in keys:
            if section.get(key):
                section[key] = shorten(section[key])
    return data


def _unique(key: str, names: list[str]) -> None:
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ValueError(f"two entries of {key} are named {twice[0]!r}; names must differ")
