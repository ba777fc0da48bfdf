"""Language identification: speed against the bare library, and accuracy by case handling and length.

    python scripts/bench/language.py --corpus corpus.parquet --udhr udhr.zip [--record]

The corpus is a Parquet file with a column `text`; udhr.zip is NLTK's copy of the Universal Declaration of Human Rights
(335 translations in many encodings, named in the file names). Needs the extra `language`.
"""

from __future__ import annotations

import argparse
import codecs
import zipfile

import common
import numpy as np
import pyarrow.parquet as pq

from gpu_curate.config import Language
from gpu_curate.text.language import LanguageId, model_path

# File name (before the encoding) to lid.176 label, for the translations whose language is among the 176.
_LABELS = """
Afrikaans=af Albanian_Shqip=sq Arabic_Alarabia=ar Asturian_Bable=ast Basque_Euskara=eu Belorus_Belaruski=be
Bengali=bn Bikol_Bicolano=bcl Bosnian_Bosanski=bs Breton=br Bulgarian_Balgarski=bg Burmese_Myanmar=my Catalan=ca
Catalan_Catala=ca Cebuano=ceb Chinese_Mandarin=zh Corsican=co Croatian_Hrvatski=hr Czech=cs Czech_Cesky=cs
Danish_Dansk=da Dutch_Nederlands=nl English=en Esperanto=eo Estonian_Eesti=et Farsi_Persian=fa Farsi_Persian-v2=fa
Filipino_Tagalog=tl Finnish_Suomi=fi French_Francais=fr Frisian=fy Galician_Galego=gl German_Deutsch=de
Greek_Ellinika=el Guarani=gn Gujarati=gu HaitianCreole_Kreyol=ht HaitianCreole_Popular=ht Hebrew_Ivrit=he Hindi=hi
Hindi_web=hi Hrvatski_Croatian=hr Hungarian_Magyar=hu Icelandic_Yslenska=is Ido=io Iloko_Ilocano=ilo Indonesian=id
Interlingua=ia IrishGaelic_Gaeilge=ga Italian=it Italian_Italiano=it Japanese_Nihongo=ja Javanese=jv Kannada=kn
Kapampangan=pam Kazakh=kk Korean_Hankuko=ko Kurdish=ku Lao=lo Latin_Latina=la Latin_Latina-v2=la Latvian=lv
Lithuanian_Lietuviskai=lt Luxembourgish_Letzebuergeusch=lb Macedonian=mk Malagasy=mg Malay_BahasaMelayu=ms
Maltese=mt Marathi=mr Minangkabau=min Mongolian_Khalkha=mn Nepali=ne Norwegian=no Norwegian_Norsk-Bokmal=no
Norwegian_Norsk-Nynorsk=nn OccitanAuvergnat=oc OccitanLanguedocien=oc Osetin_Ossetian=os Polish=pl
Polish_Polski=pl Portuguese_Portugues=pt Punjabi_Panjabi=pnb Quechua=qu Quichua=qu Rhaeto-Romance_Rumantsch=rm
Romanian=ro Romanian_Romana=ro Russian=ru Russian_Russky=ru Sanskrit=sa Sardinian=sc
ScottishGaelic_GaidhligAlbanach=gd Serbian_Srpski=sr Sinhala=si Slovak=sk Slovak_Slovencina=sk
Slovenian_Slovenscina=sl Somali=so Sorbian=hsb Spanish=es Spanish_Espanol=es Sundanese=su Swaheli=sw
Swahili_Kiswahili=sw Swedish_Svenska=sv Tamil=ta Turkish_Turkce=tr Ukrainian=uk Uzbek=uz Vietnamese=vi
Walloon_Wallon=wa Waray=war Welsh_Cymraeg=cy Yoruba=yo
"""
LABELS = dict(pair.split("=") for pair in _LABELS.split())
CODECS = {
    "UTF8": "utf-8", "Latin1": "cp1252", "Latin2": "cp1250", "Cyrillic": "cp1251", "Arabic": "cp1256", "Hebrew": "cp1255",
    "Greek": "cp1253", "Turkish": "cp1254", "Baltic": "iso8859_13", "EUC": "euc_jp", "SJIS": "shift_jis",
    "JIS": "iso2022_jp", "GB2312": "gb2312", "HZ": "hz",
}  # fmt: skip
MISLABELLED = {"Czech_Cesky-UTF8": "cp1250"}  # what the bytes are


def translations(path: str) -> list[tuple[str, str]]:
    """(label, text) of every file we can name and decode. The files are cut at 10,000 bytes, maybe in a character."""
    pairs = []
    with zipfile.ZipFile(path) as archive:
        for entry in archive.namelist():
            name = entry.rsplit("/", 1)[-1]
            language, _, encoding = name.rpartition("-")
            if language in LABELS and encoding in CODECS:
                decoder = codecs.getincrementaldecoder(MISLABELLED.get(name, CODECS[encoding]))()
                pairs.append((LABELS[language], decoder.decode(archive.read(entry))))
    return pairs


def pieces(text: str, chars: int, count: int = 8) -> list[str]:
    """The first runs of whole words of at least `chars` characters, after the 40 words of the head."""
    out: list[str] = []
    run = ""
    for word in text.split()[40:]:
        run = f"{run} {word}".strip()
        if len(run) >= chars:
            out.append(run)
            run = ""
        if len(out) == count:
            break
    return out


def mostly_upper(text: str) -> str:
    return text.lower() if sum(map(str.isupper, text)) > sum(map(str.islower, text)) else text


def accuracy(bare, pairs: list[tuple[str, str]]) -> None:
    handlings = {"untouched": str, "lower-case": str.lower, "lower-case if mostly upper": mostly_upper}
    print(f"{len(pairs)} translations, {len({label for label, _ in pairs})} languages; share with the right label")
    print(f"{'chars':>6} {'as':8} {'n':>5}  " + "  ".join(handlings))
    for chars in (0, 400, 100, 40, 20):
        cut = [(label, piece) for label, text in pairs for piece in (pieces(text, chars) if chars else [text])]
        for case, change in {"is": str, "capitals": str.upper, "title": str.title}.items():
            row = []
            for name, handle in handlings.items():
                answers = (bare(handle(change(t)).replace("\n", " ") + "\n", 1, 0.0, "strict") for _, t in cut)
                right = [bool(a) and a[0][1] == f"__label__{label}" for a, (label, _) in zip(answers, cut, strict=True)]
                row.append(f"{np.mean(right):{len(name)}.3f}")
            print(f"{chars or 'all':>6} {case:8} {len(cut):5}  " + "  ".join(row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--udhr")
    parser.add_argument("--model", default="lid.176.ftz")
    parser.add_argument("--documents", type=int, default=300)
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()

    import fasttext

    config = Language(model=args.model)
    ours = LanguageId(config)
    bare = fasttext.load_model(str(model_path(config)))
    texts = pq.read_table(args.corpus, columns=["text"])["text"].slice(0, args.documents).to_pylist()
    lines = [t.replace("\n", " ").lower() for t in texts]
    nbytes = sum(len(t.encode()) for t in texts)
    seconds = common.interleaved(
        {"ours": lambda: ours.predict(texts), "bare": lambda: [bare.predict(t) for t in lines]}, rounds=7
    )
    rates = {name: [nbytes / s / 1e6 for s in values] for name, values in seconds.items()}
    ratio = float(np.median(rates["ours"]) / np.median(rates["bare"]))
    print(f"{len(texts)} documents, {nbytes / 1e6:.1f} MB; MB/s per core, p20 p50 p80")
    for name, values in rates.items():
        print(f"{name:6} " + " ".join(f"{q:.2f}" for q in common.quantiles(values)))
    print(f"ratio {ratio:.3f}")
    if args.record:
        common.record("language", args.model, "MB/s", rates["ours"], "fasttext-predict, lower-cased lines", ratio)
    if args.udhr:
        accuracy(bare.f.predict, translations(args.udhr))


if __name__ == "__main__":
    main()
