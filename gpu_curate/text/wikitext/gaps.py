"""What stands around a template that was dropped."""

from __future__ import annotations

import re

from gpu_curate.text.wikitext.marks import FROM_MARKS, GONE, HEADINGS, MARK_RUN, MARKS, UNKNOWN, UNKNOWN_MARK

# sentence ends of all scripts (Unicode STerm, the common ones), and what may follow them
_TERMINAL = frozenset('.!?:;"”»)…。！？．｡：；」』）।॥؟۔؛։።፧၊။។៕᠃᙮܀܂\u0700\u0701')
_AFTER = frozenset(",.;)!?，、。；）！？．」』।॥؟،؛۔։።၊။។៕་།")  # a sentence goes on or ends with them
_DASHES = "-–—/"
_SEPARATORS = frozenset(" \xa0\u3000,;:·・，、；：،؛" + _DASHES)  # what is left over when one of several things goes
_ENDS = frozenset(".!?。！？．।॥؟۔։።။។៕")
_PAIRS = {"(": ")", "（": "）", "[": "]", "〔": "〕", "【": "】", "「": "」", "『": "』", "“": "”", "„": "“", "«": "»", "‹": "›",
          "⟨": "⟩", "〈": "〉", "《": "》"}  # fmt: skip
_CLOSING = frozenset(_PAIRS.values()) - {"“"}
_OPENING = frozenset(_PAIRS) - {"“", "„", "«", "‹"}
_LINE_STARTS = frozenset(("", "\n", *HEADINGS))
_GAP_CHARS = 64  # how far separators are followed on either side of a mark
_GONE_TOO = re.compile(
    rf"[{MARKS}]++|[{re.escape(''.join(_PAIRS))}][{re.escape(''.join(_SEPARATORS))}{MARKS}]*+[{re.escape(''.join(_PAIRS.values()))}]"
)
_ONLY_PUNCTUATION = re.compile(rf"\n[^\w\n{GONE}]*+{GONE}[^\w\n]*+(?=\n|\Z)")


def fill_gaps(text: str, dropped: list[str]) -> tuple[str, tuple[str, ...]]:
    """Marks removed with the blanks, punctuation and empty brackets they leave; names those inside a sentence.

    Of a row of separators around a mark one stays; at the start and at the end of a line, beside a bracket and before the end
    of a sentence, none. A line without a word that held a mark goes.
    """
    found = MARK_RUN.search(text)
    if found is None:
        return text, ()
    gaps: list[str] = []
    pieces: list[str] = []
    at = 0  # text before is done
    while found:
        start, end = found.span()
        gaps += names_of(found, dropped)
        left, right = _spread(text, start, end, at)
        while True:  # brackets with nothing else in them belong to the mark
            while (more := _GONE_TOO.match(text, right)) and MARK_RUN.search(text, right, more.end()):
                for run in MARK_RUN.finditer(text, right, more.end()):
                    gaps += names_of(run, dropped)
                left, right = _spread(text, left, more.end(), at)
            before, after = text[left - 1 : left] if left > at else "", text[right : right + 1]
            quoted = (
                before == after == '"' and (left, right) == (start, end) and not text[right + 1 : right + 2].isalnum()
            )
            if not (before and (_PAIRS.get(before) == after or quoted)):
                break
            left, right = left - 1, right + 1
            start, end = left, right
            left, right = _spread(text, left, right, at)
        pieces += [text[at:left], _between(text, left, start, end, right), GONE]
        if after in _ENDS and text[right + 1 : right + 2] not in _ENDS:  # no ellipsis
            if before in _ENDS:
                right += 1
            elif before in _LINE_STARTS:
                right = _spread(text, right + 1, right + 1, right + 1)[1]
        at = right
        found = MARK_RUN.search(text, at)
    pieces.append(text[at:])
    text = "".join(pieces)
    return _ONLY_PUNCTUATION.sub("", "\n" + text).replace(GONE, "")[1:], tuple(gaps)


def _spread(text: str, start: int, end: int, at: int) -> tuple[int, int]:
    """start..end with the separators around it, no further back than `at`."""
    low, high = max(at, start - _GAP_CHARS), min(len(text), end + _GAP_CHARS)
    while start > low and text[start - 1] in _SEPARATORS:
        start -= 1
    while end < high and text[end] in _SEPARATORS:
        end += 1
    return start, end


def _between(text: str, left: int, start: int, end: int, right: int) -> str:
    """What stays of the separators in left..right, of which start..end is gone."""
    before, after = text[left - 1 : left], text[right : right + 1]
    if before in _OPENING or after in _CLOSING or before in _LINE_STARTS:
        return ""
    ahead = text[left:start]
    behind = MARK_RUN.sub("", text[end:right])
    if after in ("", "\n"):
        return ":" if ":" in ahead + behind else "：" if "：" in ahead + behind else ""
    if after in _ENDS:
        return ""
    sign, other = ahead.strip(" \xa0\u3000"), behind.strip(" \xa0\u3000")
    if not sign and not other:
        return ahead[-1:] or behind[:1]
    if sign and not (other and sign in _DASHES and ahead == sign):  # a hyphen goes with what it was tied to
        return ahead if ahead[-1] == " " or not behind[-1:].isspace() else ahead + " "
    blank = (behind[:1] if behind[0].isspace() else ahead[-1:]) if other[0] in _DASHES else ""
    return blank + other[0] + (" " if behind[-1].isspace() else "")


def names_of(run: re.Match[str], dropped: list[str]) -> list[str]:
    """The unknown templates that a run of marks stands for, if it is inside a sentence."""
    if UNKNOWN not in run[0] or not _inside_sentence(run.string, *run.span()):
        return []
    return [dropped[int(n.translate(FROM_MARKS), 16)] for n in UNKNOWN_MARK.findall(run[0])]


def _inside_sentence(text: str, start: int, end: int) -> bool:
    """True if a sentence runs on over start..end: it does not end before, or goes on after, on the same line.

    A sentence goes on with a small letter, or with a letter of a script without case: there a start cannot be told.
    """
    before, after = text[max(start - 2, 0) : start].rstrip(" \xa0")[-1:], text[end : end + 2].lstrip(" \xa0")[:1]
    if before not in _LINE_STARTS and before not in _TERMINAL:
        return True
    return after in _AFTER or (after.isalpha() and not after.isupper() and not after.istitle()) if after else False
