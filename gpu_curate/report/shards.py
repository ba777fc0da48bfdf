"""The output: which files, how many tokens, how to check and how to load them."""

from __future__ import annotations

import json
from typing import Any

from gpu_curate.report.markup import Html, count, details, pairs, plural, section, size, table, tag
from gpu_curate.stages import Context
from gpu_curate.store.files import read_json

_SHOWN = 8
_MAX_FILES = 200


def shards(facts: dict[str, Any], context: Context) -> Html:
    folder = context.box("shards").folder.resolve()
    manifest = read_json(folder / "manifest.json")
    files = [(split, f) for split, s in manifest["splits"].items() for f in s["shards"]]
    files.sort(key=lambda f: f[0] == "train")  # validation first: it has few
    rows = [[f["file"], split, f["tokens"], size(f["bytes"]), tag("code", f["sha256"])] for split, f in files]
    columns = ("file", "split", "tokens", "bytes", "sha256")
    body = [table(columns, rows[:_SHOWN], text=(1, 4), class_="hashes")]
    if len(rows) > _SHOWN:
        body.append(
            details(
                plural(len(rows) - _SHOWN, "more file"),
                table(columns, rows[_SHOWN:_MAX_FILES], text=(1, 4), class_="hashes"),
            )
        )
    if len(rows) > _MAX_FILES:
        body.append(tag("p", f"{count(len(rows) - _MAX_FILES)} further files are in manifest.json."))
    split = facts["split"]
    held = "pinned by the config" if split["pinned"] else f"{count(split['tokens_asked'])} asked for"
    tokenizer = manifest["tokenizer"]
    body.append(
        pairs(
            [
                ("folder", tag("code", folder)),
                (
                    "format",
                    f"{manifest['format']}, {manifest['dtype']}, {count(manifest['tokens_per_shard'])} tokens per file",
                ),
                ("vocabulary", f"{count(manifest['vocab_size'])} entries, end of text {manifest['eot_id']}"),
                ("tokenizer sha256", tag("code", tokenizer["sha256"])),
                ("tokenizer", tag("code", tokenizer["path"])),
                ("shuffle seed", str(manifest["shuffle"]["seed"])),
                (
                    "split bound",
                    [tag("code", split["bound"]), f" ({held}, {count(split['tokens_held'])} held)"]
                    if split["bound"]
                    else "none: nothing is held out",
                ),
            ]
        )
    )
    python = (
        "from gpu_curate.loader import ShardLoader\n"
        f'loader = ShardLoader({json.dumps(str(folder), ensure_ascii=False)}, "train", batch_size=16, seq_len=1024)\n'
        "x, y = loader.batch(0)  # a pure function of the number: resume from a step count"
    )
    body += [
        tag("h3", "Load"),
        tag("pre", tag("code", python)),
        tag(
            "p",
            "Check every file against its hash with ",
            tag("code", f"gpu-curate shards verify {folder}"),
            "; give ",
            tag("code", "shards.validation.bound"),
            " the split bound to keep the split when data is added.",
        ),
    ]
    lead = "The token stream, whole documents in content-keyed order, each ended by one end-of-text token."
    return section("shards", "Shards", lead, *body)
