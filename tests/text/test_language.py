"""gpu_curate.text.language: one label whatever the wrapping and case, names checked at start, failures early."""

from __future__ import annotations

import codecs
import sys
import types
import zipfile

import numpy as np
import pytest

from gpu_curate.config import Language
from gpu_curate.errors import ConfigError
from gpu_curate.text import language
from gpu_curate.text.language import UNKNOWN, LanguageId, check, keep_labels, model_identity, model_path

pytest.importorskip("fasttext", reason="needs fasttext-predict (the extra `language`)")

ENGLISH = "the ferry leaves at nine from the north pier and the tide turns in the evening"


@pytest.fixture
def config():
    """Builds a section with the packaged model."""

    def make(**keys):
        built = Language(model="lid.176.ftz", **keys)
        try:
            model_path(built)
        except ConfigError as e:
            pytest.skip(str(e))
        return built

    return make


def test_line_ends_change_neither_label_nor_score(config):
    variants = [
        ENGLISH,
        ENGLISH + "\n",
        ENGLISH + "\r\n",
        ENGLISH.replace(" from ", "\nfrom\n"),
        ENGLISH.replace(" from ", "\u2028from\u2029"),
    ]
    labels, scores, margins = LanguageId(config()).predict(variants)
    assert labels == ["en"] * 5
    assert len(set(scores.tolist())) == 1
    assert len(set(margins.tolist())) == 1
    assert scores.dtype == margins.dtype == np.float32


def test_case_changes_neither_label_nor_score(config):
    texts = ["THE FERRY LEAVES AT NINE FROM THE NORTH PIER", "Паром отходит в девять часов от причала"]
    for text, expected in zip(texts, ["en", "ru"], strict=True):
        labels, scores, _ = LanguageId(config()).predict([text, text.lower(), text.upper(), text.title()])
        assert labels == [expected] * 4
        assert len(set(scores.tolist())) == 1


def test_text_without_enough_letters_or_margin_is_unknown(config):
    texts = ["", " ", "\n", "123 456 7890 1234 5678 9012 3456", "!?" * 50, "hello friend", "x" * 19, "\U0001f600" * 40]
    labels, scores, margins = LanguageId(config()).predict(texts)
    assert labels == [UNKNOWN] * len(texts)
    assert scores[[0, 1, 2, 3, 4, 7]].tolist() == margins[[0, 1, 2, 3, 4, 7]].tolist() == [0.0] * 6
    labels, scores, _ = LanguageId(config(min_letters=0)).predict([*texts[:5], ENGLISH[:3]])
    assert labels[:5] == [UNKNOWN] * 5
    sure = LanguageId(config(min_margin=0.0)).predict([ENGLISH])
    unsure = LanguageId(config(min_margin=1.0)).predict([ENGLISH])
    assert sure[0] == ["en"]
    assert unsure[0] == [UNKNOWN]
    assert sure[1] == unsure[1]  # the score stays


def test_no_text_gives_no_label(config):
    labels, scores, margins = LanguageId(config()).predict([])
    assert labels == []
    assert scores.shape == margins.shape == (0,)


def test_scores_stay_in_range_and_odd_text_raises_nothing(config):
    texts = [
        ENGLISH * 200,
        "a\0b " * 30,
        "half \ud83c end of the sentence that was cut in two",
        "ά" * 100,
        "ab " * 30_000,
    ]
    labels, scores, margins = LanguageId(config()).predict(texts)
    assert ((scores >= 0) & (scores <= 1) & (margins >= 0) & (margins <= scores)).all()
    again = LanguageId(config()).predict(texts)
    assert again[0] == labels
    assert (again[1] == scores).all()
    assert (again[2] == margins).all()


@pytest.mark.parametrize("name", ["en", "EN", "eng", "Eng", "English", "english"])
def test_aliases_of_english_name_the_label(config, name):
    assert keep_labels(config(keep=[name])) == {"en"}


@pytest.mark.parametrize(
    ("name", "label"),
    [("cmn", "zh"), ("ger", "de"), ("deu", "de"), ("Farsi", "fa"), ("Norwegian Bokmål", "no"), ("sah", "sah"),
     ("serbo_croatian", "sh"), ("Punjabi", "pa"), ("gsw", "als"), ("unknown", "unknown")],
)  # fmt: skip
def test_other_aliases(config, name, label):
    assert keep_labels(config(keep=[name, "en"])) == {label, "en"}


@pytest.mark.parametrize(
    ("name", "hint"),
    [("englsh", "english"), ("en-US", "set en"), ("zh_Hans", "set zh"), ("xx", "ISO 639"), ("", "ISO 639")],
)
def test_unknown_language_is_refused_with_a_hint(config, name, hint):
    with pytest.raises(ConfigError, match=r"language\.keep") as e:
        check(config(keep=[name]))
    assert hint in e.value.hint


def test_keep_that_can_keep_nothing_is_refused(config):
    with pytest.raises(ConfigError, match=r"language\.model"):
        check(Language(model=None, keep=["en"]))
    with pytest.raises(ConfigError, match="empty list"):
        check(config(keep=[]))
    assert keep_labels(config()) is None
    check(Language())
    check(config(keep=["en"]))


def test_table_names_exactly_the_labels_of_the_model(config):
    of_model = {
        n.removeprefix("__label__") for _, n in language._load(str(model_path(config())), "")("\n", -1, -1.0, "strict")
    }
    assert len(of_model) == 176
    assert set(language._names().values()) == of_model
    rows = [
        line.split("\t")
        for line in (language.resources.files("gpu_curate.text") / "languages.tsv").read_text("utf-8").splitlines()[1:]
    ]
    owners: dict[str, set[str]] = {}
    for label, iso3, name, *others in rows:
        for alias in {label, iso3, name, *";".join(others).split(";")} - {""}:
            owners.setdefault(language._key(alias), set()).add(label)
    assert {alias: labels for alias, labels in owners.items() if len(labels) > 1} == {}


def test_missing_or_broken_model_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"language\.model: .*nowhere.bin: no such file"):
        LanguageId(Language(model=str(tmp_path / "nowhere.bin")))
    broken = tmp_path / "broken.ftz"
    broken.write_bytes(b"not a model")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        LanguageId(Language(model=str(broken)))


@pytest.mark.parametrize("cut", [4, 36, 64, 1_000, 100_000, 500_000, 938_000, 938_012])
def test_a_model_that_is_cut_short_is_refused(tmp_path, config, cut):
    """At 1,000 bytes fastText reads what is not there for ever; without the last 13 it loads and answers."""
    whole = model_path(config()).read_bytes()
    assert len(whole) == 938_013
    short = tmp_path / "short.ftz"
    short.write_bytes(whole[:cut])
    with pytest.raises(ConfigError, match=r"short\.ftz cannot be loaded") as e:
        check(Language(model=str(short)))
    assert f"({cut} bytes) is cut short" in e.value.hint


def test_a_model_that_loads_for_ever_is_stopped(monkeypatch, tmp_path, config):
    monkeypatch.setattr(language, "LOAD_S", 1.0)
    monkeypatch.setattr(language.fasttext_file, "check", lambda path: None)
    short = tmp_path / "short.ftz"
    short.write_bytes(model_path(config()).read_bytes()[:1_000])
    with pytest.raises(ConfigError, match=r"did not load within 1 s"):
        check(Language(model=str(short)))


def test_a_published_model_is_not_tried_and_another_one_is_once(monkeypatch, tmp_path, config):
    tried = []
    monkeypatch.setattr(language, "_try", lambda path, identity: tried.append(path))
    language._load.cache_clear()
    LanguageId(config())
    assert tried == []
    own = tmp_path / "own.ftz"
    own.write_bytes(model_path(config()).read_bytes() + b" ")
    LanguageId(Language(model=str(own)))
    LanguageId(Language(model=str(own)), trial=False)
    assert tried == [str(own)]
    assert set(language.PUBLISHED.values()) == {"lid.176.bin", "lid.176.ftz"}


def test_another_model_under_the_same_name_is_loaded(monkeypatch, tmp_path, config):
    own = tmp_path / "own.ftz"
    own.write_bytes(model_path(config()).read_bytes())
    LanguageId(Language(model=str(own)))
    own.write_bytes(b"not a model")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        LanguageId(Language(model=str(own)))


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("我们明天早上九点坐船去北岛", "zh"),
        ("渡船早上九点从北码头离开，晚潮之前回来。", "zh"),
        ("明日の朝九時に船で北の島へ行きます。", "ja"),
        ("내일 아침 아홉 시에 배를 타고 갑니다.", "ko"),
        ("พรุ่งนี้เราจะไปเกาะโดยเรือเก้าโมง", "th"),
        ("हम कल सुबह नौ बजे नाव से उत्तरी द्वीप जाएँगे", "hi"),
        ("سنذهب غدا إلى الجزيرة بالعبارة", "ar"),
    ],
)
def test_a_short_sentence_of_any_script_is_labelled(config, text, label):
    labels, scores, _ = LanguageId(config()).predict([text])
    assert labels == [label]
    assert scores[0] > 0.65


def test_letters_count_by_script(config):
    def known(text: str) -> bool:
        return LanguageId(config(min_margin=0.0)).predict([text])[0] != [UNKNOWN]

    assert [known(c * n) for c, n in (("船", 4), ("船", 5), ("か", 9), ("か", 10), ("한", 9), ("한", 10))] == [
        False,
        True,
    ] * 3
    assert [known(c * n) for c, n in (("ก", 19), ("ก", 20), ("ж", 19), ("ж", 20))] == [False, True] * 2


def test_missing_library_is_refused_with_the_fix(monkeypatch, tmp_path):
    model = tmp_path / "model.ftz"
    model.write_bytes(b"")
    monkeypatch.setitem(sys.modules, "fasttext", None)
    with pytest.raises(ConfigError, match="pip install"):
        LanguageId(Language(model=str(model)))


@pytest.mark.parametrize(
    "predict",
    [
        lambda text, k, *_: [(0.99, "__label__en"), (0.9, "__label__ru")],  # always one answer
        lambda text, k, *_: [(float("nan"), "__label__xx")],
        lambda text, k, *_: [],
        lambda text, k: [(0.9, "__label__xx")],  # another signature
    ],
    ids=["constant", "nan", "empty", "signature"],
)
def test_self_test_fails_early_when_the_library_drifts(monkeypatch, tmp_path, predict):
    model = tmp_path / "model.ftz"
    model.write_bytes(b"")
    fake = types.SimpleNamespace(
        load_model=lambda path: types.SimpleNamespace(f=types.SimpleNamespace(predict=predict))
    )
    monkeypatch.setitem(sys.modules, "fasttext", fake)
    with pytest.raises(ConfigError, match="self-test"):
        LanguageId(Language(model=str(model)))


def test_identity_follows_the_content_of_the_model(tmp_path):
    a, b = tmp_path / "a.bin", tmp_path / "b.bin"
    a.write_bytes(b"one")
    b.write_bytes(b"one")
    assert model_identity(Language(model=str(a))) == model_identity(Language(model=str(b)))
    b.write_bytes(b"two")
    assert model_identity(Language(model=str(a))) != model_identity(Language(model=str(b)))


def test_declaration_of_human_rights(config, shared_data):
    files = {
        "English-Latin1": ("cp1252", "en"), "French_Francais-Latin1": ("cp1252", "fr"), "Greek_Ellinika-UTF8": ("utf-8", "el"),
        "Polish-Latin2": ("iso8859_2", "pl"), "Russian-Cyrillic": ("cp1251", "ru"), "Hebrew_Ivrit-Hebrew": ("cp1255", "he"),
        "Chinese_Mandarin-GB2312": ("gb2312", "zh"), "Japanese_Nihongo-SJIS": ("shift_jis", "ja"), "Hindi-UTF8": ("utf-8", "hi"),
        "Korean_Hankuko-UTF8": ("utf-8", "ko"), "Turkish_Turkce-Turkish": ("cp1254", "tr"), "Arabic_Alarabia-Arabic": ("cp1256", "ar"),
    }  # fmt: skip
    texts = []
    with zipfile.ZipFile(shared_data("lid/udhr.zip")) as archive:
        for name, (codec, _) in files.items():
            # the files are cut at 10,000 bytes, maybe inside a character
            texts.append(codecs.getincrementaldecoder(codec)().decode(archive.read(f"udhr/{name}")))
    identify = LanguageId(config())
    expected = [label for _, label in files.values()]
    for variant in (texts, [t.upper() for t in texts], [t.title() for t in texts]):
        labels, scores, _ = identify.predict(variant)
        assert labels == expected
        assert (scores > 0.65).all()
