"""The section of the tokenizer, apart from its module, which loads NumPy."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from gpu_curate.section import Section


class TrainTokenizer(Section):
    """Train a byte-level BPE on the run's own documents."""

    vocab_size: int = Field(32768, ge=257, description="entries, the EOT token among them")
    max_bytes: int = Field(64 << 20, gt=0, description="bytes of text it is trained on, drawn by content hash")
    bytes_per_source: int | None = Field(
        None, gt=0, description="at most so many bytes of each source, so that a large one does not drown the others"
    )
    documents_per_source: int | None = Field(
        None, gt=0, description="at most so many documents of each source, those of the lowest content hash"
    )
    reserved_tokens: list[str] = Field(
        [], description="special tokens kept for later, before the EOT token in the vocabulary; no text gives their ids"
    )


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
        if self.train is not None and isinstance(self.eot, int):
            raise ValueError(f"eot: {self.eot} is an id: a tokenizer that is trained gets its token by its text")
        return self
