"""The config of a run: pydantic models, defaults, and the one place that reads YAML.

Every key of a recipe is a field here, with its unit and default; docs/config.md is made from these
models. Unknown keys are errors. `None` (YAML `null`) switches a thing off; `0.0` is a value.
"""

from __future__ import annotations

import codecs
import datetime
import os
import re
import typing
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from gpu_curate.errors import ConfigError


class Section(BaseModel):
    """A section of the config: unknown keys are errors, values do not change after loading.

    A number is a number and a switch is a switch: "64" and true are no integers, and infinity is no weight.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    # key → what `null` and `off` mean for it, where that is not None
    off: ClassVar[dict[str, Any]] = {}

    @model_validator(mode="before")
    @classmethod
    def _switch(cls, data: Any) -> Any:
        """`null`, `off` and `false` switch off what can be, `on` and `true` a section with its defaults."""
        return {k: cls._switched(k, v) for k, v in data.items()} if isinstance(data, dict) else data

    @classmethod
    def _switched(cls, key: str, value: Any) -> Any:
        field = cls.model_fields.get(key)
        if field is None or not (value is None or isinstance(value, bool) or value in ("on", "off")):
            return value
        kinds = typing.get_args(field.annotation)
        section = type(None) in kinds and any(isinstance(k, type) and issubclass(k, Section) for k in kinds)
        if value in (True, "on"):
            return {} if section else value
        if key in cls.off:
            return cls.off[key]
        named = re.search(r"null: (?:off|none)", field.description or "")
        return None if section or (type(None) in kinds and named) else value


MAX_SEED = (1 << 64) - 1  # seeds are one 64-bit state
MAX_TOKENS = 10**15  # more than any corpus has; float64 sums of counts are exact up to 9e15


# ---------------------------------------------------------------------------------------------------------- sources


AUTO_ENCODING = "auto"


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

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$", description="name in reports and columns; unique in the config")
    path: str | list[str] = Field("", description="file, folder, glob or URL, or a list of them; anything fsspec opens")
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


class JsonlSource(CompressedSource):
    """JSON Lines, one object a line, or a JSON array of objects: .jsonl .json .ndjson, plain or compressed."""

    type: Literal["jsonl"]
    text_column: str = Field("text", description="key that holds the document; dots reach into objects")
    max_line_bytes: int = Field(128 << 20, gt=0, description="a longer line, or element of an array, is rejected")


class TextSource(CompressedSource):
    """Plain text files: one file, one document."""

    type: Literal["text"]
    encoding: str = Field(
        "utf-8",
        description="of the files; a file that does not decode is rejected; auto: told of each file by its bytes. A byte "
        "order mark of UTF-16 or UTF-32 is believed always",
    )
    max_file_bytes: int = Field(64 << 20, gt=0, description="a larger file is rejected")

    @field_validator("encoding")
    @classmethod
    def _is_text_encoding(cls, encoding: str) -> str:
        if encoding == AUTO_ENCODING:
            return encoding
        try:
            known = codecs.lookup(
                encoding
            )._is_text_encoding  # what bytes.decode asks: base64 is a codec, not an encoding
        except (LookupError, ValueError, UnicodeError):
            known = False
        if not known:
            raise ValueError("not a text encoding of Python (utf-8, latin-1, shift_jis, ...)")
        return encoding


class WikipediaSource(CompressedSource):
    """A MediaWiki XML dump (pages-articles, multistream or not, .bz2 or plain)."""

    type: Literal["wikipedia"]
    namespaces: list[int] = Field([0], description="namespace numbers kept")
    keep_tables: bool = Field(False, description="keep the cells of wikitext tables as text")
    max_page_bytes: int = Field(32 << 20, gt=0, description="a page with more bytes of XML is rejected")


class WarcSource(SourceBase):
    """WARC, WET and ARC archives (.gz .zst .lz4 plain). HTML goes through the extractor."""

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


Source = Annotated[
    ParquetSource | JsonlSource | TextSource | WikipediaSource | WarcSource | HuggingFaceSource,
    Field(discriminator="type"),
]


class Reference(Section):
    """A reference set: benchmarks, a tokenizer's training sample, an older corpus."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$", description="name in reports; unique in the config")
    path: str | list[str] = Field(description="JSONL, JSON, Parquet, text or zip files of them; glob or list")
    text_fields: list[str] = Field(["text"], description="fields whose texts are items; dots reach into objects")
    action: Literal["decontaminate", "train_only", "dedup_against"] = Field(description="what a match leads to")
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
        0.0,
        ge=0.0,
        le=1.0,
        description="decontaminate: a document is dropped when it holds more than this share of one item's n-grams",
    )
    whole_items: bool = Field(False, description="decontaminate: items shorter than ngram_words match as a whole")
    min_unspaced_words: int = Field(
        3,
        ge=1,
        le=256,
        description="whole_items: an item in a script without spaces needs so many words (3: 6 Han characters, 9 kana, 15 "
        "Thai code points), since a name of two characters stands in half a corpus",
    )

    @property
    def paths(self) -> list[str]:
        return [self.path] if isinstance(self.path, str) else list(self.path)


# --------------------------------------------------------------------------------------------------------- cleaning


class Normalize(Section):
    """Text normalisation; `normalize: null` leaves the text as the source has it."""

    form: Literal["NFC", "NFD", "NFKC", "NFKD"] | None = Field("NFC", description="Unicode normal form; null: none")
    keep_indentation: bool = Field(False, description="keep the blanks that start a line (source code)")


class Language(Section):
    """Language identification (fastText lid.176)."""

    model: str | None = Field(
        None, description="path of a fastText model, or `lid.176.ftz` for the packaged one; null: off"
    )
    keep: list[str] | None = Field(None, description="languages kept (ISO 639-1, -3 or English name); null: score only")
    min_score: float = Field(0.65, ge=0.0, le=1.0, description="lowest score that counts (FineWeb, section 3.3)")
    min_chars: int = Field(
        20,
        ge=0,
        description="a text with fewer letters is `unknown` (a Han letter counts 4, of kana, Hangul, Ethiopic 2)",
    )
    min_margin: float = Field(
        0.1, ge=0.0, le=1.0, description="lead over the second language below which it is `unknown`"
    )


PiiAction = Literal["off", "count", "replace"]


class Pii(Section):
    """Personal data: per type off, count or replace by a typed placeholder."""

    off: ClassVar[dict[str, Any]] = dict.fromkeys(("email", "ip", "phone", "card", "iban"), "off")

    email: PiiAction = Field("off", description="e-mail addresses")
    ip: PiiAction = Field("off", description="public IPv4 and IPv6 addresses")
    phone: PiiAction = Field("off", description="phone numbers")
    card: PiiAction = Field("off", description="payment card numbers (Luhn)")
    iban: PiiAction = Field("off", description="IBANs (mod 97)")


# ---------------------------------------------------------------------------------------------------------- quality
# Thresholds of the rules in gpu_curate/quality. Each family: on, off, or a mapping of thresholds. `null` = rule off.
# QUALITY_MODELS_BEGIN
_Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
_Ratio = Annotated[float, Field(ge=0.0)]
_Count = Annotated[int, Field(ge=0)]


# What a rule was made for: `quality.rule` tells which languages and scripts that is.
ANY_SCRIPT, SPACED_SCRIPTS, MARKED_SCRIPTS, ENGLISH = (
    "all scripts",
    "scripts with spaces between words",
    "scripts that mark the end of a sentence",
    "English",
)


def _bound(default: float, drops: str, source: str, made_for: str = ANY_SCRIPT) -> Any:
    """A threshold: what it drops (a document on the bound is kept), where its value is from, and which texts it suits."""
    description = f"drops a document with {drops}; null: off; for {made_for}; {source}"
    return Field(default, description=description, json_schema_extra={"made_for": made_for})


class GopherQuality(Section):
    """Rae et al. 2021, arXiv:2112.11446, section A.1.1. Words are runs without white space; in scripts without spaces
    letters are counted, 1.5 (Han) or 4 (kana, Thai, Lao, Khmer, Burmese, Tibetan) to a word."""

    min_words: _Count | None = _bound(50, "fewer words, those of symbols alone not counted", "Gopher A.1.1")
    max_words: _Count | None = _bound(100_000, "more words, those of symbols alone not counted", "Gopher A.1.1")
    min_mean_word_chars: _Ratio | None = _bound(3.0, "shorter words on average", "Gopher A.1.1", ENGLISH)
    max_mean_word_chars: _Ratio | None = _bound(10.0, "longer words on average", "Gopher A.1.1", ENGLISH)
    max_hash_to_word_ratio: _Ratio | None = _bound(0.1, "more `#` per word", "Gopher A.1.1")
    max_ellipsis_to_word_ratio: _Ratio | None = _bound(0.1, "more `...` and `…` per word", "Gopher A.1.1")
    max_bullet_line_fraction: _Fraction | None = _bound(0.9, "more lines that start with `-` or `•`", "Gopher A.1.1")
    max_ellipsis_line_fraction: _Fraction | None = _bound(0.3, "more lines that end with an ellipsis", "Gopher A.1.1")
    min_alphabetic_word_fraction: _Fraction | None = _bound(0.8, "fewer words that hold a letter", "Gopher A.1.1")
    min_stop_words: _Count | None = _bound(2, "fewer different ones of `stop_words`", "Gopher A.1.1", ENGLISH)
    stop_words: list[str] = Field(
        ["the", "be", "to", "of", "and", "that", "have", "with"],
        max_length=32,
        description="words that `min_stop_words` looks for, spelt and cased as in the text; those of Gopher A.1.1 are "
        "English; for other languages FineWeb-2 publishes lists (configs/fineweb2_arabic.yaml has one)",
    )

    @field_validator("stop_words")
    @classmethod
    def _are_words(cls, words: list[str]) -> list[str]:
        for word in words:
            if word.split() != [word]:
                raise ValueError(f"{word!r} is not one word: a word of a text holds no white space")
        if len(set(words)) < len(words):
            raise ValueError("a word is named twice")
        return words

    @model_validator(mode="after")
    def _in_order(self) -> GopherQuality:
        for name in ("words", "mean_word_chars"):
            low, high = getattr(self, f"min_{name}"), getattr(self, f"max_{name}")
            if low is not None and high is not None and low > high:
                raise ValueError(f"min_{name}={low} above max_{name}={high} drops every document; swap them")
        asked = self.min_stop_words or 0
        if "stop_words" in self.model_fields_set and asked > len(self.stop_words):
            raise ValueError(
                f"min_stop_words={self.min_stop_words} of {len(self.stop_words)} stop_words drops every document; "
                "name more words, or min_stop_words: null"
            )
        return self


class GopherRepetition(Section):
    """Rae et al. 2021, arXiv:2112.11446, table A1. Fractions of all lines, paragraphs or characters."""

    unrepeated_top_n_grams: bool = Field(
        True,
        description="where no n-gram occurs twice, the first one is the commonest, as in datatrove 0.10.1; this drops most "
        "texts of fewer than 25 words; false: there is none",
    )
    min_nonblank_lines: _Count | None = _bound(1, "fewer lines that hold a word", "datatrove 0.10.1 (empty)")
    max_duplicate_paragraph_fraction: _Fraction | None = _bound(0.3, "more repeated paragraphs", "Gopher table A1")
    max_duplicate_paragraph_char_fraction: _Fraction | None = _bound(
        0.2, "more of it in repeated paragraphs", "Gopher table A1"
    )
    max_duplicate_line_fraction: _Fraction | None = _bound(0.3, "more repeated lines", "Gopher table A1")
    max_duplicate_line_char_fraction: _Fraction | None = _bound(0.2, "more of it in repeated lines", "Gopher table A1")
    max_top_2_gram_char_fraction: _Fraction | None = _bound(
        0.2, "more of it in its commonest 2-gram", "Gopher table A1", SPACED_SCRIPTS
    )
    max_top_3_gram_char_fraction: _Fraction | None = _bound(
        0.18, "more of it in its commonest 3-gram", "Gopher table A1", SPACED_SCRIPTS
    )
    max_top_4_gram_char_fraction: _Fraction | None = _bound(
        0.16, "more of it in its commonest 4-gram", "Gopher table A1", SPACED_SCRIPTS
    )
    max_duplicate_5_gram_char_fraction: _Fraction | None = _bound(
        0.15, "more of it in repeated 5-grams", "Gopher table A1", SPACED_SCRIPTS
    )
    max_duplicate_6_gram_char_fraction: _Fraction | None = _bound(
        0.14, "more of it in repeated 6-grams", "Gopher table A1", SPACED_SCRIPTS
    )
    max_duplicate_7_gram_char_fraction: _Fraction | None = _bound(
        0.13, "more of it in repeated 7-grams", "Gopher table A1", SPACED_SCRIPTS
    )
    max_duplicate_8_gram_char_fraction: _Fraction | None = _bound(
        0.12, "more of it in repeated 8-grams", "Gopher table A1", SPACED_SCRIPTS
    )
    max_duplicate_9_gram_char_fraction: _Fraction | None = _bound(
        0.11, "more of it in repeated 9-grams", "Gopher table A1", SPACED_SCRIPTS
    )
    max_duplicate_10_gram_char_fraction: _Fraction | None = _bound(
        0.10, "more of it in repeated 10-grams", "Gopher table A1", SPACED_SCRIPTS
    )


class C4(Section):
    """Raffel et al. 2020, arXiv:1910.10683, section 2.2, and the released code. Judges as C4 would; removes no lines."""

    end_punctuation: bool = Field(
        True,
        description="count only lines that end in one of .?!\"' or another script's mark at the end of a sentence, closing "
        "quotes outside ASCII left out, and not in `...`; false: as FineWeb did (section 3.5)",
    )
    max_lorem_ipsum_lines: _Count | None = _bound(0, "more lines of `lorem ipsum`", "C4, section 2.2")
    max_curly_bracket_lines: _Count | None = _bound(0, "more lines with `{`", "C4, section 2.2")
    min_sentences: _Count | None = _bound(
        5, "fewer sentences in the lines that C4 keeps", "C4's released code", MARKED_SCRIPTS
    )


class FineWeb(Section):
    """Penedo et al. 2024, arXiv:2406.17557, section 3.6. Lines that are not blank."""

    min_nonblank_lines: _Count | None = _bound(1, "fewer lines that hold a word", "datatrove 0.10.1 (empty)")
    min_terminal_line_fraction: _Fraction | None = _bound(
        0.12, "fewer lines that end in terminal punctuation of any script", "FineWeb, section 3.6", MARKED_SCRIPTS
    )
    max_short_line_fraction: _Fraction | None = _bound(
        0.67,
        "more lines of at most 30 characters (a Han letter counts 4, of kana, Hangul, Ethiopic 2)",
        "FineWeb, section 3.6",
    )
    max_duplicate_line_text_fraction: _Fraction | None = _bound(
        0.01, "more of it, line ends not counted, in repeated lines", "datatrove 0.10.1 (FineWeb, section 3.6: 0.1)"
    )
    max_newline_to_word_ratio: _Ratio | None = _bound(0.3, "more line ends per word", "datatrove 0.10.1")


# QUALITY_MODELS_END

_FAMILIES = {"gopher_quality": GopherQuality, "gopher_repetition": GopherRepetition, "c4": C4, "fineweb": FineWeb}


class Quality(Section):
    """Rule families; scores are always stored, a family that is off removes nothing."""

    gopher_quality: GopherQuality | None = Field(None, description="on, off, or thresholds")
    gopher_repetition: GopherRepetition | None = Field(None, description="on, off, or thresholds")
    c4: C4 | None = Field(None, description="on, off, or thresholds")
    fineweb: FineWeb | None = Field(None, description="on, off, or thresholds")


# ------------------------------------------------------------------------------------------------------------ dedup


class Fuzzy(Section):
    """MinHash LSH: two documents of shingle Jaccard similarity s share a bucket with probability 1-(1-s^rows)^bands."""

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
    max_source_share: float = Field(
        0.8, ge=0.0, le=1.0, description="warn when more than this share of a source is removed as duplicates"
    )
    components: Literal["auto", "scipy", "curator"] = Field(
        "auto", description="who builds components from edges: union-find/SciPy on the CPU, NeMo Curator on GPUs"
    )

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


# ----------------------------------------------------------------------------------------------------------- output


class TrainTokenizer(Section):
    """Train a byte-level BPE on the run's own documents."""

    vocab_size: int = Field(32768, ge=257, description="entries, the EOT token among them")
    max_bytes: int = Field(64 << 20, gt=0, description="bytes of text it is trained on, drawn by content hash")


class Tokenizer(Section):
    """Which tokenizer, and the end-of-text token that follows every document."""

    path: str | None = Field(None, description="a tokenizer.json, a hub name, or tiktoken:NAME")
    train: TrainTokenizer | None = Field(None, description="or train one on the documents of the run")
    eot: str | int = Field("<|endoftext|>", description="token (text or id) that ends every document")
    library: Literal["auto", "gigatoken", "snaptokens", "tokenizers", "tiktoken"] = Field(
        "auto", description="auto: the fastest installed one whose ids equal the reference on a probe set"
    )

    @model_validator(mode="after")
    def _one_of(self) -> Tokenizer:
        if (self.path is None) == (self.train is None):
            raise ValueError("give exactly one of `path` and `train`")
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


class Run(Section):
    """How it runs; nothing here changes a byte of the output."""

    off: ClassVar[dict[str, Any]] = {"by_reference": []}

    backend: Literal["auto", "cpu", "gpu"] = Field("auto", description="where documents are put")
    engine: str = Field(
        "local", description="local, inline (one process), dask, dask-cuda, or a dask scheduler's address (tcp://...)"
    )
    workers: int | None = Field(None, ge=1, description="worker processes; null: one per core")
    partition_bytes: int = Field(
        268_435_456,
        ge=1 << 16,
        description="bytes of text per partition, the work of one task; smaller keeps more workers busy with few files",
    )
    by_reference: list[Literal["parquet", "jsonl"]] = Field(
        ["parquet"],
        description="source types whose text is not copied into documents/ where nothing changes it: `normalize: null`, no "
        "`pii` replaced, local files not compressed; they must stay as they are until the run has ended",
    )
    strict: bool = Field(False, description="a rejected record stops the run")
    allow_unreadable: bool = Field(
        False,
        description="exit status 0 though no record of some file could be read; false: 1, and all else is written",
    )
    allow_empty: bool = Field(
        False, description="exit status 0 though some source gave no document; false: 1, and all else is written"
    )


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
        "min_tokens": 0,
    }

    sources: list[Source] = Field(min_length=1, description="what is read")
    normalize: Normalize | None = Field(Normalize(), description="null: off")
    language: Language = Field(Language(), description="language identification")
    pii: Pii = Field(Pii(), description="personal data")
    quality: Quality = Field(Quality(), description="filters")
    dedup: Dedup = Field(Dedup(), description="duplicates")
    references: list[Reference] = Field([], description="reference sets")
    tokenizer: Tokenizer = Field(description="required: `path` or `train`")
    min_tokens: int = Field(64, ge=0, description="a shorter document is dropped (too_few_tokens)")
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
    def _groups(self) -> Config:
        if self.dedup.fuzzy is not None and self.dedup.fuzzy.scope == "group":
            missing = [s.name for s in self.sources if s.group_column is None]
            if missing:
                raise ValueError(f"dedup.fuzzy.scope: group needs group_column in every source, missing in {missing}")
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
    data = config.model_dump(mode="json")
    for source in data["sources"]:
        source["storage_options"] = dict.fromkeys(source["storage_options"], "(hidden)")
    return data


def _unique(key: str, names: list[str]) -> None:
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ValueError(f"two entries of {key} are named {twice[0]!r}; names must differ")


# ---------------------------------------------------------------------------------------------------------- loading


_MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as PyYAML reads it, but a key given twice is an error (`on` and `yes` are one key), and 1e-3 is a number."""

    def get_single_node(self) -> yaml.Node:
        """The document's nodes, with their own keys checked before `<<` merges others in, which they may override."""
        root = super().get_single_node()
        seen: set[int] = set()
        waiting = [] if root is None else [root]
        while waiting:
            node = waiting.pop()
            if id(node) in seen or isinstance(node, yaml.ScalarNode):
                continue
            seen.add(id(node))
            if isinstance(node, yaml.MappingNode):
                self._check_keys(node)
                waiting += [value for _, value in node.value]
            else:
                waiting += node.value
        return root

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Put what `<<` names before a mapping's own pairs, the first of a list last: the last of equal keys counts.

        PyYAML 6.0.4 compares keys by id() here, so that `{<<: *a}` of an `a` that overrides a merge loses short keys.
        """
        merges = [value for key, value in node.value if key.tag == _MERGE]
        node.value = [(key, value) for key, value in node.value if key.tag != _MERGE]
        for value in merges:
            mappings = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for mapping in mappings:
                if not isinstance(mapping, yaml.MappingNode):
                    line = mapping.start_mark.line + 1
                    raise ConfigError(f"line {line}: `<<` takes a mapping or a list of mappings, got a {mapping.id}")
                self.flatten_mapping(mapping)
                node.value = mapping.value + node.value if mapping is not node else node.value

    def _check_keys(self, node: yaml.MappingNode) -> None:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if not isinstance(key, str | int | float | None):
                raise ConfigError(f"line {line}: {key!r} cannot be a key")
            if key in seen:
                raise ConfigError(f"line {line}: key {key!r} is given twice")
            seen.add(key)


# YAML 1.2 core schema; PyYAML wants a dot. Short enough never to match the 16 hex digits of `shards.validation.bound`.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:\d{1,10}(?:\.\d{0,10})?|\.\d{1,10})[eE][-+]?\d{1,3}", re.ASCII),
    list("-+.0123456789"),
)


def _read_yaml(text: str, origin: str) -> Any:
    """The data of one YAML document; whatever is wrong with it is a ConfigError that names `origin`."""
    try:
        return _Loader(text).get_single_data()
    except ConfigError as e:
        raise ConfigError(f"{origin}: {e.message}") from e
    except RecursionError as e:
        raise ConfigError(f"{origin}: not YAML that can be read: nested too deep") from e
    except (yaml.YAMLError, ValueError, TypeError, LookupError, OverflowError, AttributeError) as e:
        # PyYAML converts tagged and date-like scalars without a check: 2024-99-99, !!int abc, !!timestamp x
        raise ConfigError(f"{origin}: not YAML: {' '.join(str(e).split())}") from e


def load(path: str | os.PathLike[str], overrides: list[str] | None = None) -> Config:
    """Read a recipe.

    Args:
        path: YAML file.
        overrides: "key.path=value" strings, value in YAML ("sources.0.max_documents=100").
    Raises:
        ConfigError: the file is missing or not YAML, or a key or value is wrong; names file, key, value and remedy.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as e:
        raise ConfigError(f"config {file}: no such file", "gpu-curate init writes a recipe for your files") from e
    except IsADirectoryError as e:
        raise ConfigError(f"config {file}: a folder, not a recipe", _recipe_hint(file)) from e
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"config {file}: {e}") from e
    data = _read_yaml(text, f"config {file}")
    if not isinstance(data, dict):
        raise ConfigError(f"config {file}: expected a mapping of keys, got {type(data).__name__}")
    for override in overrides or []:
        _override(data, override)
    return parse(data, str(file))


def _recipe_hint(folder: Path) -> str:
    """What was meant by a folder that was given as a recipe."""
    if (folder / "run.json").exists():
        return f"it is a run directory: gpu-curate status {folder}"
    try:
        recipes = sorted(p.name for p in folder.iterdir() if p.suffix in (".yaml", ".yml"))
    except OSError:
        recipes = []
    if recipes:
        return f"name one of its files: {', '.join(recipes[:8])}{', ...' if len(recipes) > 8 else ''}"
    return f"gpu-curate init {folder} writes a recipe for the files in it"


def parse(data: dict[str, Any], origin: str = "config") -> Config:
    """A Config from plain data; `origin` names it in errors."""
    try:
        return Config.model_validate(data)
    except ValidationError as e:
        raise ConfigError("\n".join(f"{origin}: {text}" for text in _explain_all(e.errors(), data))) from e


def _override(data: dict[str, Any], text: str) -> None:
    key, eq, value = text.partition("=")
    if not eq or not key:
        raise ConfigError(f"--set {text}: expected key.path=value")
    parsed = _read_yaml(value, f"--set {text}")
    node: Any = data
    *parents, last = key.split(".")
    for i, part in enumerate(parents):
        if isinstance(node, list):
            inner = node[_index(node, part, text)]
        else:
            inner = node.get(part)
            if inner is None or isinstance(inner, bool) or inner in ("on", "off"):
                inner = node[part] = {}
        if not isinstance(inner, dict | list):
            raise ConfigError(f"--set {text}: {'.'.join(parents[: i + 1])} is {inner!r} and has no keys")
        node = inner
    if isinstance(node, list):
        node[_index(node, last, text)] = parsed
    else:
        node[last] = parsed


def _index(node: list[Any], part: str, text: str) -> int:
    names = [entry.get("name") if isinstance(entry, dict) else None for entry in node]
    if part in names:  # sources.edu.path reads better than sources.0.path
        return names.index(part)
    if not re.fullmatch(r"[0-9]{1,9}", part) or int(part) >= len(node):
        known = [n for n in names if isinstance(n, str)]
        what = did_you_mean(part, known) or (f" (it has {', '.join(known)})" if known else "")
        raise ConfigError(f"--set {text}: {part!r} is neither an index below {len(node)} nor a name in the list{what}")
    return int(part)


def did_you_mean(word: Any, known: Iterable[str]) -> str:
    """ " (did you mean 'x'?)" if a known word is close to this one, else ""."""
    import difflib

    by_lower = {k.lower(): k for k in reversed(list(known))}
    close = difflib.get_close_matches(str(word).lower(), by_lower, n=1)
    return f" (did you mean {by_lower[close[0]]!r}?)" if close else ""


_TAGS = {"parquet", "jsonl", "text", "wikipedia", "warc", "huggingface"}
# What pydantic calls a member of a union in the place of an error: a type or a model, never a key of ours.
_BRANCH = re.compile(r"str|int|float|bool|none|constrained-\w+|[A-Z]\w*|[\w-]+\[.*\]", re.DOTALL)
_FROM_YAML = {True: "yes, on and true", False: "no, off and false"}


def _explain_all(errors: list[Any], data: Any) -> Iterator[str]:
    """One line a wrong value. A value that fits no member of a union is one error for each of them in pydantic."""
    unions: dict[tuple[Any, ...], list[Any]] = {}
    for err in errors:
        unions.setdefault(_split_at_branch(err["loc"], data)[0], []).append(err)
    for own in unions.values():
        keys = [_split_at_branch(e["loc"], data)[1] for e in own]
        deepest = max(map(len, keys))  # the member that was meant is the one whose inside was looked at
        meant = [e for e, k in zip(own, keys, strict=True) if len(k) == deepest]
        whole = len(meant) > 1 and all(e["loc"][:-1] == meant[0]["loc"][:-1] for e in meant) and deepest == 0
        yield from [_explain(meant, data)] if whole else [_explain([e], data) for e in meant]


def _split_at_branch(loc: tuple[Any, ...], data: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The place of a union and what lies below its member; the whole place and () where there is no union."""
    node = data
    for i, part in enumerate(loc):
        if _is_branch(part, node):
            return loc[:i], loc[i + 1 :]
        node = _inside(node, part)
    return loc, ()


def _is_branch(part: Any, node: Any) -> bool:
    there = isinstance(node, dict) and part in node
    return isinstance(part, str) and not there and _BRANCH.fullmatch(part) is not None


def _inside(node: Any, part: Any) -> Any:
    if part in _TAGS and not (isinstance(node, dict) and part in node):
        return node  # the type of a source, which pydantic puts in
    try:
        return node[part]
    except (KeyError, IndexError, TypeError):
        return None


def _explain(errors: list[Any], data: Any) -> str:
    """`key: what, got value`, of the errors that the members of a union gave for one value, or of one error."""
    err = errors[0]
    where = ".".join(_named(err["loc"], data))
    if err["type"] == "extra_forbidden":
        return f"{where}: unknown key{_near(err)}"
    if err["type"] == "missing":
        return f"{where}: missing"
    if err["type"] == "union_tag_invalid":
        known = re.findall(r"'(\w+)'", err["ctx"]["expected_tags"])
        got = err["ctx"]["tag"]
        return f"{where}: type {got!r} is not one of {', '.join(known)}{did_you_mean(got, known)}"
    if err["type"] == "union_tag_not_found":
        return f"{where}: type is missing (one of {', '.join(sorted(_TAGS))})"
    got = err["input"]
    shown = "" if isinstance(got, dict | list | BaseModel) else f", got {got!r}{_remedy(errors)}"
    if err["type"] in ("model_type", "dict_type") and len(errors) == 1:
        return f"{where}: expected a mapping of keys, got {got!r}{_remedy(errors)}"
    messages = [e["msg"].removeprefix("Value error, ") for e in errors]
    message = messages[0] + "".join(f" or {m.removeprefix('Input should be ')}" for m in messages[1:])
    return f"{where + ': ' if where else ''}{message[0].lower() + message[1:]}{shown}"


def _remedy(errors: list[Any]) -> str:
    """What would do: the word that was misspelt, or quotes where YAML took a word for something else."""
    got, kinds = errors[0]["input"], {e["type"] for e in errors}
    known = [w for e in errors if e["type"] == "literal_error" for w in re.findall(r"'([^']*)'", e["ctx"]["expected"])]
    words = {True: {"yes", "on"}, False: {"no", "off"}}
    if isinstance(got, bool) and ("string_type" in kinds or words[got] & set(known)):
        return f" (YAML reads {_FROM_YAML[got]} as this: write a word in quotes, '{'yes' if got else 'no'}')"
    if isinstance(got, int | float | datetime.date) and "string_type" in kinds:
        kind = "a date" if isinstance(got, datetime.date) else "a number"
        return f" ({kind} to YAML: write text in quotes, '{got}')"
    if isinstance(got, str) and kinds & {"int_type", "float_type"} and _is_number(got):
        return f" (text: write the number without quotes, {got})"
    if "string_pattern_mismatch" in kinds:
        known += re.findall(r"[a-z_]{3,}", errors[0]["ctx"]["pattern"])
    if kinds & {"model_type", "dict_type"}:
        known += ["on", "off", "null"]
    return did_you_mean(got, known)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _named(loc: tuple[Any, ...], data: Any) -> Iterator[str]:
    """The keys down to a value; an entry of a list by its name, as `--set` takes it."""
    node = data
    for part in loc:
        if _is_branch(part, node):
            continue
        inside = _inside(node, part)
        if inside is node and part in _TAGS:
            continue
        node = inside
        name = node.get("name") if isinstance(part, int) and isinstance(node, dict) else None
        yield name if isinstance(name, str) and name else str(part)


def _near(err: Any) -> str:
    """A suggestion for a misspelt key, from the fields of the section it stands in."""
    section: Any = Config
    for part in err["loc"][:-1]:
        section = _child(section, part)
        if section is None:
            return ""
    return did_you_mean(err["loc"][-1], section.model_fields) or f" (known: {', '.join(section.model_fields)})"


def _child(section: Any, part: Any) -> Any:
    by_tag = {m.model_fields["type"].annotation.__args__[0]: m for m in get_args(get_args(Source)[0])}
    if isinstance(part, int):
        return section
    if part in by_tag:
        return by_tag[part]
    if section is None or part not in getattr(section, "model_fields", {}):
        return None
    if part == "sources":
        return Config
    if part == "references":
        return Reference
    annotation = section.model_fields[part].annotation
    options = [annotation, *getattr(annotation, "__args__", ())]
    return next((o for o in options if isinstance(o, type) and issubclass(o, Section)), None)
