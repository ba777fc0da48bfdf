"""The section of how a recipe is run."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from gpu_curate.section import Section


class Gpu(Section):
    """How a run uses its CUDA devices."""

    workers: int = Field(
        3,
        ge=1,
        le=64,
        description="processes a device, so that one reads and writes while another computes; a device in compute mode "
        "EXCLUSIVE_PROCESS gets one",
    )


class Run(Section):
    """How it runs; nothing here changes a byte of the output."""

    off: ClassVar[dict[str, Any]] = {"by_reference": []}

    backend: Literal["auto", "cpu", "gpu"] = Field("auto", description="where documents are put")
    engine: str = Field(
        "local", description="local, inline (one process), dask, dask-cuda, or a dask scheduler's address (tcp://...)"
    )
    workers: int | None = Field(None, ge=1, description="worker processes; null: one per core")
    gpu: Gpu = Field(default_factory=Gpu, description="how it uses its CUDA devices")
    partition_bytes: int = Field(
        268_435_456,
        ge=1 << 16,
        description="bytes of text per partition, the work of one task; smaller keeps more workers busy with few files",
    )
    by_reference: list[Literal["parquet", "jsonl"]] = Field(
        ["parquet"],
        description="source types whose texts are not copied into texts/ where nothing changes them: of local files, not "
        "compressed, which must stay as they are; [] copies all; jsonl has no effect any more",
    )
    cache: str | None = Field(
        None,
        description="folder for the boxes of a corpus (documents, scores, signatures, tokens, ...), which runs with other "
        "settings then share; null: in the run directory",
    )
    strict: bool = Field(False, description="a rejected record stops the run")
    allow_unreadable: bool = Field(
        False,
        description="exit status 0 though no record of some file could be read; false: 1, and all else is written",
    )
    allow_empty: bool = Field(
        False, description="exit status 0 though some source gave no document; false: 1, and all else is written"
    )
