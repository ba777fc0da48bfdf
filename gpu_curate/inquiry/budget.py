"""What training a model on a corpus takes: tokens, operations, GPU-hours, epochs. Arithmetic with its sources."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from gpu_curate.errors import ConfigError, did_you_mean

TOKENS_PER_PARAMETER = 20  # Hoffmann et al. 2022, arXiv:2203.15556, table 3: 20.2 B tokens for 1 B parameters
FLOPS_PER_TOKEN = 6  # a parameter: 2 forward, 4 backward; Kaplan et al. 2020, arXiv:2001.08361, section 2.1
UTILISATION = (
    0.4  # of the peak: PaLM had 0.46 (Chowdhery et al. 2022, arXiv:2204.02311, table 3), small models have less
)
FREE_EPOCHS, LAST_EPOCHS = 4, 16  # Muennighoff et al. 2023, arXiv:2305.16264, section 1 and figure 1

# Peak of dense matrix products in bfloat16 with float32 sums, TFLOP/s, without sparsity: NVIDIA's data sheets. V100: float16.
GPUS = {
    "b200": 2250.0,
    "h200": 989.4,
    "h100": 989.4,
    "h100-pcie": 756.0,
    "a100": 312.0,
    "l40s": 362.0,
    "rtx4090": 165.2,
    "a10": 125.0,
    "l4": 121.0,
    "v100": 125.0,
}
SOURCES = {
    "tokens": "Hoffmann et al. 2022, arXiv:2203.15556, table 3: about 20 tokens a parameter",
    "operations": "Kaplan et al. 2020, arXiv:2001.08361, section 2.1: 6 a parameter and token; attention is left out",
    "utilisation": "a share of the peak as of Chowdhery et al. 2022, arXiv:2204.02311, table 3 (PaLM: 46.2 %)",
    "epochs": "Muennighoff et al. 2023, arXiv:2305.16264: up to 4 epochs are worth nearly as much as new text, from 16 on "
    "repeating brings next to nothing",
    "peak": "NVIDIA's data sheets: dense bfloat16 (V100: float16), float32 sums, without sparsity",
}
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}


def budget(
    params: str | float,
    tokens: str | float | None = None,
    gpu: str = "h200",
    gpus: int = 1,
    utilisation: float = UTILISATION,
    corpus: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Tokens, operations and GPU-hours of a training run, and how often it goes over a corpus.

    Args:
        params: parameters of the model, a number or one with K, M, B or T behind it ("88M").
        tokens: trained on; None: 20 a parameter.
        gpu: a key of GPUS.
        gpus: how many work at once.
        utilisation: share of the peak that is reached.
        corpus: run directory or folder of shards; None leaves it out.
    Returns:
        params, tokens, chinchilla_tokens, flops, gpu {name, tflops}, gpus, utilisation, gpu_hours, hours;
        corpus: None, or {folder, tokens (of train), epochs, best_params (for which one epoch is 20 tokens a parameter),
        advice}; sources.
    Raises:
        ConfigError: a number that is none or out of range, an unknown GPU, no shards.
    """
    n = count("--params", params)
    wanted = TOKENS_PER_PARAMETER * n
    d = wanted if tokens is None else count("--tokens", tokens)
    if gpu.lower() not in GPUS:
        raise ConfigError(f"--gpu {gpu}: not known{did_you_mean(gpu, GPUS)}", f"there are {', '.join(GPUS)}")
    if not 0 < utilisation <= 1:
        raise ConfigError(f"--utilisation {utilisation}: a share of the peak, above 0 and at most 1")
    if gpus < 1:
        raise ConfigError(f"--gpus {gpus}: at least 1")
    peak = GPUS[gpu.lower()]
    flops = FLOPS_PER_TOKEN * n * d
    hours = flops / (peak * 1e12 * utilisation) / 3600
    return {
        "params": n,
        "tokens": d,
        "chinchilla_tokens": wanted,
        "flops": flops,
        "gpu": {"name": gpu.lower(), "tflops": peak},
        "gpus": gpus,
        "utilisation": utilisation,
        "gpu_hours": hours,
        "hours": hours / gpus,
        "corpus": None if corpus is None else _corpus(Path(corpus), d),
        "sources": SOURCES,
    }


def _corpus(folder: Path, tokens: float) -> dict[str, Any]:
    from gpu_curate.loader import shards_folder
    from gpu_curate.shards_check import info

    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder")
    held = info(shards_folder(folder))["splits"].get("train", {"tokens": 0})["tokens"]
    if not held:
        raise ConfigError(f"{folder}: no training token", "expected a run directory or its folder of shards")
    epochs = tokens / held
    if epochs <= 1:
        advice = "the corpus is larger than what is trained on"
    elif epochs <= FREE_EPOCHS:
        advice = f"up to {FREE_EPOCHS} epochs are worth nearly as much as new text"
    elif epochs < LAST_EPOCHS:
        advice = f"from the {FREE_EPOCHS}th epoch on repeating is worth less and less: more text or a smaller model"
    else:
        advice = f"from {LAST_EPOCHS} epochs on repeating brings next to nothing: more text or a smaller model"
    return {
        "folder": str(folder),
        "tokens": held,
        "epochs": epochs,
        "best_params": held / TOKENS_PER_PARAMETER,
        "advice": advice,
    }


def count(name: str, value: str | float) -> float:
    """A number above 0, as people write it: 88M, 1.5B, 2e9. Raises: ConfigError."""
    match = re.fullmatch(
        r"([0-9]*\.?[0-9]+(?:[eE][+]?[0-9]+)?)\s*([KMBGT]?)", str(value).strip().replace("_", ""), re.I
    )
    number = float(match[1]) * _UNITS[match[2].upper()] if match else 0.0
    if not 0 < number < 1e18:
        raise ConfigError(f"{name} {value}: expected a number above 0 as 88M, 1.5B or 2e9")
    return number


def short(number: float) -> str:
    """88 M, 1.76 B: three digits."""
    for unit in ("T", "B", "M", "K"):
        if number >= _UNITS[unit]:
            return f"{number / _UNITS[unit]:.3g} {unit}"
    return f"{number:.3g}"
