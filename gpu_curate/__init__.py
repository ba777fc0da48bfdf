"""Raw text in, deduplicated, filtered, decontaminated token shards out: on a GPU where there is one, with the same bytes without.

    import gpu_curate as gc

    kept = texts[gc.deduplicate(texts).keep]                  # pandas, polars, cuDF, Arrow, a list
    gc.decide(gc.score(texts), ["gopher_quality"]).keep
    gc.run("recipe.yaml", "runs/mine").decisions.to_table()

Importing the package reads no file, looks for no device and imports no library; a name below does when it is first used.
"""

# No import runs here: under `python -m gpu_curate` the current folder still stands first among the places of modules.
__version__ = "0.2.0"

TYPE_CHECKING = False  # type checkers take it for true by its name
if TYPE_CHECKING:
    from gpu_curate.api.bits import bits_per_byte
    from gpu_curate.api.duplicates import Duplicates, deduplicate
    from gpu_curate.api.runs import Run, open_run, run
    from gpu_curate.api.statistics import Decisions, contaminated, decide, score
    from gpu_curate.api.stream import stream
    from gpu_curate.api.texts import Scrubbed, Tokenized, extract_html, extract_wikitext, normalize, scrub, tokenize
    from gpu_curate.config import Config
    from gpu_curate.errors import ConfigError, GpuCurateError, InputError
    from gpu_curate.loader import ShardLoader
    from gpu_curate.loader.mixture import MixtureLoader
    from gpu_curate.quality.score import Score
    from gpu_curate.section import Section
    from gpu_curate.sources import Record, Reject, Skip, Split
    from gpu_curate.sources.own import Reader
    from gpu_curate.stages import Made, Stage
    from gpu_curate.stages.order import STAGES
    from gpu_curate.stages.part import Part
    from gpu_curate.store.receipts import Counts
    from gpu_curate.torch_dataset import TorchDataset

# No submodule may have one of these names: importing it would put it in the name's place.
_MODULE_OF = {
    "Config": "config",
    "ConfigError": "errors",
    "Counts": "store.receipts",
    "Decisions": "api.statistics",
    "Duplicates": "api.duplicates",
    "GpuCurateError": "errors",
    "InputError": "errors",
    "Made": "stages",
    "Part": "stages.part",
    "MixtureLoader": "loader.mixture",
    "Reader": "sources.own",
    "Record": "sources",
    "Reject": "sources",
    "Run": "api.runs",
    "Score": "quality.score",
    "STAGES": "stages.order",
    "Scrubbed": "api.texts",
    "Section": "section",
    "Skip": "sources",
    "Split": "sources",
    "ShardLoader": "loader",
    "Stage": "stages",
    "Tokenized": "api.texts",
    "TorchDataset": "torch_dataset",
    "bits_per_byte": "api.bits",
    "contaminated": "api.statistics",
    "decide": "api.statistics",
    "deduplicate": "api.duplicates",
    "extract_html": "api.texts",
    "extract_wikitext": "api.texts",
    "normalize": "api.texts",
    "open_run": "api.runs",
    "run": "api.runs",
    "score": "api.statistics",
    "scrub": "api.texts",
    "stream": "api.stream",
    "tokenize": "api.texts",
}

__all__ = [
    "STAGES",
    "Config",
    "ConfigError",
    "Counts",
    "Decisions",
    "Duplicates",
    "GpuCurateError",
    "InputError",
    "Made",
    "MixtureLoader",
    "Part",
    "Reader",
    "Record",
    "Reject",
    "Run",
    "Score",
    "Scrubbed",
    "Section",
    "ShardLoader",
    "Skip",
    "Split",
    "Stage",
    "Tokenized",
    "TorchDataset",
    "__version__",
    "bits_per_byte",
    "contaminated",
    "decide",
    "deduplicate",
    "extract_html",
    "extract_wikitext",
    "normalize",
    "open_run",
    "run",
    "score",
    "scrub",
    "stream",
    "tokenize",
]


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
