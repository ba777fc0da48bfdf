"""What documents/ and texts/ hold: columns, and the files beside the partitions."""

from __future__ import annotations

import pyarrow as pa

# what documents/ always has; `keep_columns` follow as strings. The texts are in texts/, row by row.
SCHEMA = pa.schema(
    [
        ("doc_id", pa.int64()),
        ("source", pa.dictionary(pa.int32(), pa.string())),
        ("path", pa.dictionary(pa.int32(), pa.string())),
        ("row", pa.int64()),
        ("group", pa.dictionary(pa.int32(), pa.string())),
    ]
)
TEXT = pa.schema([("text", pa.large_string())])
LEDGER = ".ledger.json"  # in documents/: what each of its tasks reads, so that a later run cuts no file again
PASSED_OVER = ".passed_over.json"  # in documents/ and references/: source → what its patterns hold and is not read
MARKUP_SUFFIX = ".markup.json"  # [markup, text] of the first documents of a partition that were extracted from markup
MARKUP_SAMPLE_CHARS = 1 << 16
