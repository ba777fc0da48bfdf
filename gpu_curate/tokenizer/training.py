"""Train a byte-level BPE on the texts of a run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpu_curate.errors import ConfigError
from gpu_curate.tokenizer.backends import single_thread
from gpu_curate.tokenizer.model import dump


def train(texts: Iterable[str], vocab_size: int, eot: str, path: str | os.PathLike[str]) -> int:
    """Train a byte-level BPE (GPT-2's split pattern) and write its tokenizer.json.

    The same texts in the same order give the same bytes, whatever PYTHONHASHSEED, threads or their number: pair counts do
    not depend on the order of counting, ties go to the lower pair of ids, and JSON is written with ids in order.

    Args:
        texts: the sample. Text of `eot` in it counts as ordinary text.
        vocab_size: entries wanted: 256 bytes, merges, and `eot` as the last.
        path: the file.
    Returns:
        Entries in it: fewer than asked for when the sample has no more pairs to merge.
    Raises:
        ConfigError: vocab_size is below 257, `eot` is not a text, or there is no text to train on.
    """
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    if vocab_size < 257:
        raise ConfigError(f"vocab_size {vocab_size}: a byte-level BPE has at least 257 entries (256 bytes and eot)")
    if not isinstance(eot, str):
        raise ConfigError(f"tokenizer.eot {eot!r}: a tokenizer that is trained needs the text of the token, not an id")
    seen = False

    def counted() -> Iterator[str]:
        nonlocal seen
        for text in texts:
            seen = seen or bool(text)
            yield text

    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1,
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    os.environ["TOKENIZERS_PARALLELISM"] = "true"  # training alone may use all cores: no worker runs yet
    try:
        tokenizer.train_from_iterator(counted(), trainer)
    finally:
        single_thread()
    if not seen:
        raise ConfigError("cannot train a tokenizer: the sample has no text")
    tokenizer.add_special_tokens([eot])
    Path(path).write_bytes(dump(json.loads(tokenizer.to_str())))
    return tokenizer.get_vocab_size()
