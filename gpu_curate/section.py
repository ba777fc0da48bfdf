"""The base of the config's sections, which stand beside what they configure: what `null`, `on` and `off` mean, and shared types.

Unknown keys are errors. `None` (YAML `null`) switches a thing off; `0.0` is a value. Nothing heavy is imported here.
"""

from __future__ import annotations

import re
import typing
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, model_validator

MAX_SEED = (1 << 64) - 1  # seeds are one 64-bit state
MAX_TOKENS = 10**15  # more than any corpus has; float64 sums of counts are exact up to 9e15

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Ratio = Annotated[float, Field(ge=0.0)]
Count = Annotated[int, Field(ge=0)]


# The words that switch, as YAML 1.1 had them; in YAML 1.2 they are text.
SWITCHES = {
    spelt: value
    for word, value in (("on", True), ("yes", True), ("off", False), ("no", False))
    for spelt in (word, word.capitalize(), word.upper())
}


def switched(value: Any) -> Any:
    """Plain data for another library: the words that switch are true and false in it, as YAML 1.1 had them."""
    if isinstance(value, dict):
        return {k: switched(v) for k, v in value.items()}
    if isinstance(value, list):
        return [switched(v) for v in value]
    return SWITCHES.get(value, value) if isinstance(value, str) else value


class Stored(list[str]):
    """The context of a recipe that a run reads back: what it names need not be installed any more."""


class Section(BaseModel):
    """A section of the config: unknown keys are errors, values do not change after loading.

    A number is a number: "64" and true are no integers, and infinity is no weight.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    # key → what `null` and `off` mean for it, where that is not None
    off: ClassVar[dict[str, Any]] = {}
    # key → earlier name of a value → its name now
    renamed: ClassVar[dict[str, dict[str, str]]] = {}
    # earlier name of a key → its name now
    renamed_keys: ClassVar[dict[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _switch(cls, data: Any, info: ValidationInfo) -> Any:
        """`null`, `off`, `no` and `false` switch off what can be, `on`, `yes` and `true` a section with its defaults.

        A key or value by its earlier name is read by its present one; the hint goes to the list that is the context, if one is.
        """
        if not isinstance(data, dict):
            return data
        data = cls._by_present_keys(data, info.context)
        return {k: cls._switched(k, cls._present(k, v, info.context)) for k, v in data.items()}

    @classmethod
    def _by_present_keys(cls, data: dict[str, Any], hints: list[str] | None) -> dict[str, Any]:
        """A section that has a key by both names keeps both: the earlier one is then an unknown key."""
        given = {}
        for key, value in data.items():
            now = cls.renamed_keys.get(key, key)
            if now != key and now not in data:
                if hints is not None:
                    hints.append(f"{key} is called {now} now; write {now}: {value}")
                key = now
            given[key] = value
        return given

    @classmethod
    def _present(cls, key: str, value: Any, hints: list[str] | None) -> Any:
        now = cls.renamed.get(key, {}).get(value) if isinstance(value, str) else None
        if now is not None and hints is not None:
            hints.append(f"{key}: {value} is called {now} now; write {key}: {now}")
        return value if now is None else now

    @classmethod
    def _switched(cls, key: str, value: Any) -> Any:
        field = cls.model_fields.get(key)
        word = SWITCHES.get(value) if isinstance(value, str) else None
        if field is None or not (value is None or isinstance(value, bool) or word is not None):
            return value
        kinds = typing.get_args(field.annotation) or (field.annotation,)
        section = type(None) in kinds and any(isinstance(k, type) and issubclass(k, Section) for k in kinds)
        if value is True or word is True:
            return {} if section else True if bool in kinds else value
        if key in cls.off:
            return cls.off[key]
        named = re.search(r"null: (?:off|none)", field.description or "")
        if section or (type(None) in kinds and named):
            return None
        return False if word is False and bool in kinds else value
