"""What a run will read, found before its directory is locked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_curate.config import Config
from gpu_curate.runs.fingerprints import active_stages, fingerprints, own_fingerprints, parts_of
from gpu_curate.runs.places import folders, read_numbers
from gpu_curate.sources.listing import File
from gpu_curate.stages import Stage
from gpu_curate.stages.documents.corpus import survey
from gpu_curate.stages.documents.schema import LEDGER
from gpu_curate.stages.order import STAGES, OfRecipe, intake_of


class Planned:
    """What a run reads and its fingerprints: found before its directory is locked, so that a recipe that cannot run leaves
    nothing, and again if somebody changed what is known of the files meanwhile.

    Args:
        cache: of `cache_of`.
        fresh: number and cut files anew.
        stages: as for `stages_of`.
    Attributes:
        corpus: of `survey`.
        fingerprint_of: of `fingerprints`.
        warnings: columns that the first records lack; a ledger that is damaged.
    Raises:
        ConfigError: a file is missing or does not fit the recipe.
    """

    def __init__(
        self,
        config: Config,
        run: Path,
        cache: Path | None,
        fresh: bool,
        stages: Sequence[OfRecipe | Stage] = STAGES,
    ):
        self.config, self.cache, self.warnings = config, cache, list[str]()
        self._root, self._fresh, self._stages = cache or run, fresh, stages
        self._read()

    def _known(self) -> tuple[Any, ...]:
        """What the plan depends on beside recipe and files."""
        stages = active_stages(self.config)
        own = own_fingerprints(stages[:1], {}, parts_of(stages))
        self._folder = self._root / folders(self._root, own)["documents"]
        ledger = self._folder / LEDGER
        stat = ledger.stat() if ledger.exists() else None
        return self._folder, stat and (stat.st_mtime_ns, stat.st_size, stat.st_ino), read_numbers(self._root)

    def _read(self) -> None:
        self._state = self._known()
        self.corpus = survey(intake_of(self.config), self._folder, self._state[-1], self._fresh, self._check_columns)
        if self.corpus.ledger.damage:
            self.warnings.append(f"{self.corpus.ledger.damage}; it is made again")
        self.fingerprint_of = fingerprints(self.config, self.corpus, self._stages)

    def look_again(self) -> None:
        """Call under the locks."""
        if self._known() != self._state:
            self._read()

    def _check_columns(self, files: list[list[File]]) -> None:
        """Warnings about columns that are not in the first records of what was not read before.

        Raises:
            ConfigError: columns that the recipe names are not there.
        """
        from gpu_curate.stages.columns import check_sources

        self.warnings += check_sources(self.config.sources, files)[1] if any(files) else []
