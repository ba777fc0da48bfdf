r"""Personal data: e-mail and IP addresses, phone numbers, payment cards, IBANs. Precision before recall.

Every pattern has bounded length, so time is linear. A finding is a number or address that stands alone: not glued to
letters, digits or `. - + % @` on its left, nor to those and a letter or digit on its right. What a type is:

- email: local@domain with a dot and a top level of letters, Unicode domains too. Not image names (`icon@2x.png`).
- iban: country and length of the registry, checksum mod 97 = 1 (ISO 13616), seven digits without a letter between.
- card: 13 to 19 digits in one piece or in the groups printed on cards, an issuer's prefix, checksum of Luhn.
- ip: public IPv4 and IPv6; the ranges for documentation count as public, since they stand for such addresses. Not:
  private, loopback, link-local, multicast, masks, IPv6 outside 2000::/3 (`abcd::ef` is C++ more often than an address),
  dotted quads that are version or section numbers by the word before them, and those without a part above 99, most of
  which number sections, but for well-known resolvers and after a word like "address" or "ping".
- phone: `+` and a number possible in its country; North American numbers in their usual punctuation, if
  valid; other runs of 7 to 15 digits only after a word like "tel" or "fax" in one of some 130 languages (cldr.tsv and
  labels.tsv). Not dates, years, ISBNs, amounts.

Only ASCII digits count, but for a phone number after a label or `+`: there those of full width, of Arabic, Devanagari,
Bengali and Thai do too, and signs of full width between digits. Deviates: FineWeb takes any dotted quad and no phone numbers; Dolma's
phone pattern eats every long number.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby

import numpy as np

from gpu_curate.document import TextColumn
from gpu_curate.errors import ConfigError, install
from gpu_curate.text.pii.card import find_cards
from gpu_curate.text.pii.email import find_emails
from gpu_curate.text.pii.glance import candidates_of, join_texts, still_candidates
from gpu_curate.text.pii.iban import find_ibans
from gpu_curate.text.pii.ip import find_ips
from gpu_curate.text.pii.labels import phone_labels
from gpu_curate.text.pii.marks import AT, CALLED, CARD_START, IBAN_START, MARGIN, NORTH_AMERICAN_RUN, QUAD, V6_START
from gpu_curate.text.pii.phone import find_phones, find_wide_phones
from gpu_curate.text.pii.spans import PLACEHOLDERS, Candidates, Found, Scrubbed, Span, in_characters, mask
from gpu_curate.text.sections import Pii


class PiiScanner:
    """Finds and replaces personal data.

    Args:
        config: per type off, count or replace.
    Raises:
        ConfigError: `phone` is on and `phonenumbers` is not installed.
    """

    def __init__(self, config: Pii):
        actions = config.model_dump(include=set(PLACEHOLDERS))
        self._kinds = [kind for kind in PLACEHOLDERS if actions[kind] != "off"]
        self._replaced = {kind for kind in PLACEHOLDERS if actions[kind] == "replace"}
        self._numbers = any(kind in self._kinds for kind in ("iban", "card", "phone"))
        self._ip, self._email = "ip" in self._kinds, "email" in self._kinds
        if "phone" in self._kinds and importlib.util.find_spec("phonenumbers") is None:
            raise ConfigError("pii.phone: phonenumbers is not installed", install("pii"))

    def scrub(self, text: str) -> tuple[str, dict[str, int], list[Span]]:
        """The text with what is to be replaced replaced. Many texts at once cost less: `scrub_all`.

        Args:
            text: any text, normalised or not.
        Returns:
            text: the same object if nothing was replaced. Scrubbing it again changes nothing.
            counts: findings per type, types without any left out; counted and replaced ones alike.
            spans: the findings in order, without overlap; offsets into the text given.
        Memory: a few times the text.
        """
        raw = text.encode("utf-8", "surrogatepass")
        scrubbed = self.scrub_all([raw])
        spans = in_characters(raw, scrubbed.spans.get(0, []))
        if scrubbed.texts[0] is not raw:
            text = scrubbed.texts[0].decode("utf-8", "surrogatepass")
        return text, dict(Counter(s.kind for s in spans)), spans

    def scrub_all(self, texts: list[bytes]) -> Scrubbed:
        """`scrub` of every text, with the same findings. A call costs 6 us, a text less than one and its scan.

        Args:
            texts: UTF-8; surrogates may be in it.
        Memory: a few times the texts; about a megabyte of them is as good as more.
        """
        found = self.scrub_column(TextColumn.from_texts(texts))
        return Scrubbed([found.texts.get(i, raw) for i, raw in enumerate(texts)], found.spans)

    def scrub_column(self, text: TextColumn) -> Found:
        """`scrub` of every text of a host column of UTF-8, with the same findings.

        A call costs 6 us, a text nothing but its scan. Memory: a few times the texts; a quarter of a megabyte is as good as more.
        """
        # Two line ends after each text: no pattern matches one or looks past two, so that the texts are as good as alone.
        filled = text.nbytes + 2 * len(text)
        buffer = bytearray(b"\n") * (2 * MARGIN + filled + -filled % MARGIN)
        start_N = np.empty(len(text), np.int64)
        join_texts(text.chars, text.offsets, np.frombuffer(buffer, np.uint8), start_N)
        found = self._all_in(buffer)
        spans: dict[int, list[Span]] = {}
        texts: dict[int, bytes] = {}
        of = np.searchsorted(start_N, [start for start, _, _ in found], side="right") - 1
        for index, group in groupby(zip(of.tolist(), found, strict=True), lambda pair: pair[0]):
            first, raw = int(start_N[index]), text.raw(index)
            spans[index] = [Span(kind, start - first, stop - first) for _, (start, stop, kind) in group]
            if (new := self._replace(raw, spans[index])) is not raw:
                texts[index] = new
        return Found(texts, spans)

    def _all_in(self, buffer: bytearray) -> list[tuple[int, int, str]]:
        """Byte spans of all types, in order, wide phone numbers too."""
        found = self._find(buffer)
        if "phone" in self._kinds and not buffer.isascii():
            found = sorted(found + list(find_wide_phones(buffer)))
        return found

    def _replace(self, raw: bytes, spans: list[Span]) -> bytes:
        pieces: list[bytes] = []
        done = 0
        for kind, start, stop in spans:
            if kind in self._replaced:
                pieces += [raw[done:start], PLACEHOLDERS[kind].encode()]
                done = stop
        return b"".join([*pieces, raw[done:]]) if pieces else raw

    def _find(self, buffer: bytearray) -> list[tuple[int, int, str]]:
        """Byte spans of all types, in order. A type sees what the types before it took as a placeholder would stand."""
        raw = np.frombuffer(buffer, np.uint8)
        raw.flags.writeable = False  # by us, below
        rows = candidates_of(raw, self._email, self._numbers, self._ip)
        found: list[tuple[int, int, str]] = []
        if not len(rows):
            return found
        worthy: Candidates | None = None
        for kind in self._kinds:
            if worthy is None:
                worthy = still_candidates(raw, rows, *phone_labels()).tolist()
            needs, find = _FINDERS[kind]
            candidates = [row for row in worthy if row[0] in needs]
            own = list(find(buffer, candidates)) if candidates else []
            if own:
                mask(buffer, own)
                found += [(start, stop, kind) for start, stop in own]
                worthy = None
        return sorted(found)


# By type, in their order: which candidates it needs, and what finds it among them.
_FINDERS: dict[str, tuple[frozenset[int], Callable[[bytearray, Candidates], Iterator[tuple[int, int]]]]] = {
    "email": (frozenset((AT,)), find_emails),
    "iban": (frozenset((IBAN_START,)), find_ibans),
    "card": (frozenset((CARD_START,)), find_cards),
    "ip": (frozenset((QUAD, V6_START)), find_ips),
    "phone": (frozenset((CALLED, NORTH_AMERICAN_RUN)), find_phones),
}
