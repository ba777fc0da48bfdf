"""The sections of normalising, language identification and personal data, apart from their modules, which load Numba."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from gpu_curate.section import Section


class Normalize(Section):
    """Text normalisation; `normalize: null` leaves the text as the source has it."""

    form: Literal["NFC", "NFD", "NFKC", "NFKD"] | None = Field("NFC", description="Unicode normal form; null: none")
    keep_indentation: bool = Field(False, description="keep the blanks that start a line (source code)")


class Language(Section):
    """Language identification (fastText lid.176)."""

    renamed_keys: ClassVar[dict[str, str]] = {"min_chars": "min_letters"}

    model: str | None = Field(
        None, description="path of a fastText model, or `lid.176.ftz` for the packaged one; null: off"
    )
    keep: list[str] | None = Field(None, description="languages kept (ISO 639-1, -3 or English name); null: score only")
    min_score: float = Field(0.65, ge=0.0, le=1.0, description="lowest score that counts (FineWeb, section 3.3)")
    min_letters: int = Field(
        20,
        ge=0,
        description="a text with fewer letters is `unknown` (a Han letter counts 4, of kana, Hangul, Ethiopic 2)",
    )
    min_margin: float = Field(
        0.1, ge=0.0, le=1.0, description="lead over the second language below which it is `unknown`"
    )


PiiAction = Literal["off", "count", "replace"]


class Pii(Section):
    """Personal data: per type off, count or replace by a typed placeholder."""

    off: ClassVar[dict[str, Any]] = dict.fromkeys(("email", "ip", "phone", "card", "iban"), "off")

    email: PiiAction = Field("off", description="e-mail addresses")
    ip: PiiAction = Field("off", description="public IPv4 and IPv6 addresses")
    phone: PiiAction = Field("off", description="phone numbers")
    card: PiiAction = Field("off", description="payment card numbers (Luhn)")
    iban: PiiAction = Field("off", description="IBANs (mod 97)")
