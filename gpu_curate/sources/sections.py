"""The sections of the sources: what all have, and those whose readers load NumPy or pyarrow; the others stand by their reader.

Reading a recipe imports this module and must stay quick.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_serializer

from gpu_curate.section import MAX_TOKENS, Section, switched


class RowGroups(Section):
    """Which row groups of every Parquet file are read: offset, offset + every, ..."""

    every: int = Field(1, ge=1, description="read one row group in so many")
    offset: int = Field(0, ge=0, description="the first one read")


class KeptColumn(Section):
    """A column that is carried under another name."""

    column: str = Field(description="name in the source; dots reach into structs and objects")
    as_: str = Field(alias="as", min_length=1, description="name in documents.parquet")

    @model_serializer
    def _as_written(self) -> dict[str, str]:
        return {"column": self.column, "as": self.as_}


# told apart by their form, so that an error speaks of the one that was meant
Kept = Annotated[
    Annotated[str, Tag("str")] | Annotated[KeptColumn, Tag("KeptColumn")],
    Discriminator(lambda value: "KeptColumn" if isinstance(value, dict | KeptColumn) else "str"),
]


class SourceBase(Section):
    """What every source has."""

    off: ClassVar[dict[str, Any]] = {"keep_columns": [], "storage_options": {}, "row_groups": {}}
    gives: ClassVar[tuple[str, ...]] = ()  # columns that its documents have without `keep_columns`
    gives_more: ClassVar[bool] = False  # and some that nobody can name before it is read

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$", description="name in reports and columns; unique in the config")
    path: str | list[str] = Field(
        "", description="file, folder, glob or URL, or a list of them: file, http(s), s3, gs, az, abfs, hf"
    )
    keep_columns: list[Kept] = Field(
        [],
        description="columns of the source carried to documents.parquet; `{column: source, as: origin}` carries one under "
        "another name",
    )
    group_column: str | None = Field(None, description="column that names the crawl or snapshot, for `scope: group`")
    max_documents: int | None = Field(None, ge=0, description="read at most so many records, in file order")
    max_bytes: int | None = Field(None, ge=0, description="stop after the record that passes so many bytes of text")
    weight: float | None = Field(None, gt=0, description="share of `shards.mixture_tokens`; not with `tokens`")
    tokens: int | None = Field(None, gt=0, le=MAX_TOKENS, description="tokens of this source wanted in the shards")
    storage_options: dict[str, Any] = Field({}, description="passed to fsspec (keys, endpoints)")
    content_fingerprint: bool = Field(False, description="fingerprint files by content, not by size and mtime")
    follow_links: bool = Field(
        False, description="follow links that leave the named folder (or the folder before a glob's first wildcard)"
    )
    hidden_files: bool = Field(False, description="read files and folders whose names begin with `.` or `_` too")

    @field_validator("storage_options", mode="before")
    @classmethod
    def _switches(cls, options: Any) -> Any:
        return switched(options)

    @property
    def paths(self) -> list[str]:
        return [self.path] if isinstance(self.path, str) else list(self.path)

    @property
    def kept(self) -> dict[str, str]:
        """Name in documents.parquet → name in the source."""
        pairs = [(c, c) if isinstance(c, str) else (c.as_, c.column) for c in self.keep_columns]
        return dict(pairs)

    @property
    def extra_columns(self) -> list[str]:
        """Columns of the source that are read beside its text, each once."""
        return list(dict.fromkeys([*self.kept.values(), *([self.group_column] if self.group_column else [])]))


class CompressedSource(SourceBase):
    """What sources have whose files may be compressed."""

    max_window_bytes: int = Field(
        128 << 20,
        ge=1 << 20,
        le=1 << 31,
        description="largest window of a .zst or .xz file, memory that each worker takes for it; zstd --long=31: 2147483648",
    )


class ParquetSource(SourceBase):
    """Parquet files with a text column. Only the row groups and columns asked for are read."""

    type: Literal["parquet"]
    text_column: str = Field("text", description="string column that holds the document; dots reach into structs")
    row_groups: RowGroups = Field(RowGroups(), description="sample of row groups")


class WarcSource(SourceBase):
    """WARC, WET and ARC archives (.gz .zst .lz4 plain). HTML goes through the extractor."""

    gives: ClassVar[tuple[str, ...]] = ("url", "domain", "date", "record_id", "charset", "dump", "truncated")
    off: ClassVar[dict[str, Any]] = {**SourceBase.off, "url_blocklist": [], "domain_blocklist": []}

    type: Literal["warc"]
    extractor: Literal["trafilatura", "resiliparse"] = Field("trafilatura", description="HTML to text")
    favor: Literal["precision", "balanced", "recall"] = Field(
        "precision", description="trafilatura: less text and cleaner, or more (FineWeb: precision)"
    )
    fallback: bool = Field(True, description="trafilatura: try its slower methods where its rules find little")
    max_html_bytes: int = Field(4 << 20, gt=0, description="a larger body is rejected")
    max_html_depth: int = Field(
        250, gt=0, le=4096, description="a deeper page is rejected; trafilatura's parser stops at 256"
    )
    max_html_elements: int = Field(30_000, gt=0, description="a page of more elements is rejected")
    timeout_s: float | None = Field(20.0, gt=0, description="backstop per page behind those limits; null: none")
    url_blocklist: list[str] = Field([], description="files of URLs, one a line, to leave out")
    domain_blocklist: list[str] = Field([], description="files of domains, one a line, to leave out (subdomains too)")


class HuggingFaceSource(CompressedSource):
    """A Hugging Face data set by name or local folder."""

    type: Literal["huggingface"]
    dataset: str = Field(description="hub name or local folder")
    config: str | None = Field(None, description="configuration (subset) name")
    split: str = Field("train", description="split name")
    revision: str | None = Field(None, description="commit, branch or tag")
    text_column: str = Field("text", description="column that holds the document")
    row_groups: RowGroups = Field(RowGroups(), description="sample of row groups (direct Parquet only)")
    max_line_bytes: int = Field(128 << 20, gt=0, description="JSON files: a longer line or element is rejected")
    streaming: bool = Field(False, description="true: through `datasets`; false: straight from the Parquet files")
