"""Raw text in, deduplicated, filtered, decontaminated token shards out: on a GPU where there is one, with the same bytes without."""

__version__ = "0.1.0"
