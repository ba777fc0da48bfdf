"""Scores as a user writes them, in one file of their own: the tests copy it beside their recipes."""

import gpu_curate as gc


class Digits(gc.Score):
    """Share of characters that are digits."""

    name = "digit_fraction"
    alphabet: str = "0123456789"

    def score(self, text: str) -> float:
        return sum(text.count(c) for c in self.alphabet) / len(text)


class Shape(gc.Score):
    """Lines and the longest of them, a batch at a time."""

    names = {"own_lines": "int32", "longest_line_chars": "int64"}  # noqa: RUF012  a ClassVar of the base

    def score_all(self, texts):
        lines = [text.split("\n") for text in texts.to_pylist()]
        return {"own_lines": [len(of) for of in lines], "longest_line_chars": [max(map(len, of)) for of in lines]}
