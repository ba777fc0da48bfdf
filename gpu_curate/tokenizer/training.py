"""Train a byte-level BPE on the texts of a run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gpu_curate.errors import ConfigError
from gpu_curate.tokenizer.backends import single_thread
from gpu_curate.tokenizer.model import dump


def train(
    texts: Iterable[str], vocab_size: int, eot: str, path: str | os.PathLike[str], reserved: Sequence[str] = ()
) -> int:
    """Train a byte-level BPE (GPT-2's split pattern) and write its tokenizer.json.

    The same texts in the same order give the same bytes, whatever PYTHONHASHSEED, threads or their number: pair counts do
    not depend on the order of counting, ties go to the lower pair of ids, and JSON is written with ids in order.

    Args:
        texts: the sample. Text of `eot` in it counts as ordinary text.
        vocab_size: entries wanted: 256 bytes, merges, the reserved tokens in order, and `eot` as the last.
        reserved: special tokens kept for later (turns of a chat, tools): no text ever gives their ids.
        path: the file.
    Returns:
        Entries in it: fewer than asked for when the sample has no more pairs to merge.
    Raises:
        ConfigError: vocab_size is below 257 and the reserved tokens, `eot` is not a text, a reserved token is empty, stands
            twice or is `eot`, or there is no text to train on.
    """
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    least = 257 + len(reserved)
    if vocab_size < least:
        what = f"256 bytes, {len(reserved)} reserved tokens and eot" if reserved else "256 bytes and eot"
        raise ConfigError(f"vocab_size {vocab_size}: a byte-level BPE has at least {least} entries ({what})")
    if not isinstance(eot, str):
        raise ConfigError(f"tokenizer.eot {eot!r}: a tokenizer that is trained needs the text of the token, not an id")
    for number, token in enumerate(reserved):
        if not token or token == eot or token in reserved[:number]:
            why = "empty" if not token else "the end-of-text token" if token == eot else "there twice"
            raise ConfigError(f"reserved token {token!r} is {why}", "every special token has a text of its own")
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
        vocab_size=vocab_size - 1 - len(reserved),
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
    tokenizer.add_special_tokens([*reserved, eot])
    Path(path).write_bytes(dump(json.loads(tokenizer.to_str())))
    return tokenizer.get_vocab_size()
