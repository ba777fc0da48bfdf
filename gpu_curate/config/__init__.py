"""The config of a run, put together from the sections that stand beside what they configure, and its loading.

Every key of a recipe is a field of a section, with its unit and default; docs/config.md is made from these.
"""

from gpu_curate.config.load import TRUST_ENGINE, load, parse
from gpu_curate.config.recipe import COLUMNS, Config, Source, for_publication, public
from gpu_curate.errors import did_you_mean
from gpu_curate.quality import Quality
from gpu_curate.quality.c4 import C4
from gpu_curate.quality.columns import ColumnBounds
from gpu_curate.quality.fineweb import FineWeb
from gpu_curate.quality.gopher import GopherQuality, GopherRepetition
from gpu_curate.quality.judges import Band, Judge
from gpu_curate.quality.rule import ANY_SCRIPT, ENGLISH, MARKED_SCRIPTS, SPACED_SCRIPTS
from gpu_curate.runs.section import Run
from gpu_curate.section import MAX_SEED, MAX_TOKENS, Section
from gpu_curate.sources.jsonl import JsonlSource
from gpu_curate.sources.sections import (
    CompressedSource,
    HuggingFaceSource,
    KeptColumn,
    ParquetSource,
    RowGroups,
    SourceBase,
    WarcSource,
)
from gpu_curate.sources.text import AUTO_ENCODING, TextSource
from gpu_curate.sources.wikipedia import WikipediaSource
from gpu_curate.stages.sections import Annotation, Dedup, Fuzzy, Reference, Shards, Validation
from gpu_curate.text.sections import Language, Normalize, Pii
from gpu_curate.tokenizer.section import Tokenizer, TrainTokenizer

__all__ = [
    "ANY_SCRIPT",
    "AUTO_ENCODING",
    "C4",
    "COLUMNS",
    "ENGLISH",
    "MARKED_SCRIPTS",
    "MAX_SEED",
    "MAX_TOKENS",
    "SPACED_SCRIPTS",
    "TRUST_ENGINE",
    "Annotation",
    "Band",
    "ColumnBounds",
    "CompressedSource",
    "Config",
    "Dedup",
    "FineWeb",
    "Fuzzy",
    "GopherQuality",
    "GopherRepetition",
    "HuggingFaceSource",
    "JsonlSource",
    "Judge",
    "KeptColumn",
    "Language",
    "Normalize",
    "ParquetSource",
    "Pii",
    "Quality",
    "Reference",
    "RowGroups",
    "Run",
    "Section",
    "Shards",
    "Source",
    "SourceBase",
    "TextSource",
    "Tokenizer",
    "TrainTokenizer",
    "Validation",
    "WarcSource",
    "WikipediaSource",
    "did_you_mean",
    "for_publication",
    "load",
    "parse",
    "public",
]  # fmt: skip
