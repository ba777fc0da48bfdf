"""What a reader of the page would see, and nothing of the markup."""

import re
import time
from importlib import resources

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_curate.text.wikitext import extract, is_redirect, tables, templates
from gpu_curate.text.wikitext.tables import Namespaces

GERMAN = Namespaces.of([(6, "Datei"), (14, "Kategorie"), (10, "Vorlage")])


def text(source: str, **options) -> str:
    return extract(source, **options).text


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("", ""),
        (" \n\n ", ""),
        ("a", "a"),
        ("'''Ulmo''' is a ''river''.", "Ulmo is a river."),
        ("'''''both''''' and ''''four''''", "both and 'four'"),
        ("L'''Amleto'' e '''grande'''", "L'Amleto e grande"),
        ("[[Ulmo]]s and [[Ulmo (river)|the Ulmo]]", "Ulmos and the Ulmo"),
        ("[[a|b|c]] [[Ulmo#Locks|locks]]", "b|c locks"),
        ("[[:Category:Rivers]] [[Help:Contents]] [[wikt:lock|lock]]", "Category:Rivers Help:Contents lock"),
        ("[http://x.org a site] [http://x.org] http://x.org/y [sic]", "a site http://x.org/y [sic]"),
        ("[[File:A.jpg|thumb|A [[tower]] at [http://x y].]]It stands.", "It stands."),
        ("[[Image:A.jpg]][[File : B.png|thumb]][[file:c.png]]x", "x"),
        ("x\n[[Category:Rivers|Ulmo]]\n[[Category:Ulmo]]\n[[de:Ulmo]]\n[[zh-min-nan:Ulmo]]", "x"),
        ("== Course ==\nIt flows.\n=== Upper ===\nFast.", "Course\nIt flows.\nUpper\nFast."),
        ("* one\n** two\n# three\n; term : definition\n: indented\n----\nend", "one\ntwo\nthree\nterm : definition\nindented\n\nend"),
        ("a<ref>note</ref> b<ref name=x/> c<ref name='y>z'>n</ref>.<references/>", "a b c."),
        ("a<!-- b -->c\n<!-- line -->\nd <!-- open", "ac\nd"),
        ("a\n{| class=x\n! h\n|-\n| c || d\n{|\n| inner\n|}\n|}\nb", "a\n\nb"),
        ("a <table><tr><td>c<table><tr><td>d</td></tr></table></td></tr></table> b", "a\nb"),
        ("<gallery>\nFile:A.jpg|caption\n</gallery>x<timeline>t</timeline><score>c</score>", "x"),
        ("1<br>2<br/>3<BR clear=all>4", "1\n2\n3\n4"),
        ("H<sub>2</sub>O <span style=\"a>b\">x</span> <font color=red>y</font>", "H2O x y"),
        ("<div style='x'>a</div>b<blockquote>c</blockquote>", "a\nb\nc"),
        ("x < y, <unknown> stays, a<b>c</b>", "x < y, <unknown> stays, ac"),
        ("<nowiki>[[x]] ''y'' {{z}}</nowiki> a<nowiki/>b", "[[x]] ''y'' {{z}} ab"),
        ("<syntaxhighlight lang=c>if (a[b[0]]) {{ x; }}</syntaxhighlight>", "if (a[b[0]]) {{ x; }}"),
        ("&nbsp;&amp;lt; &#8211; &#x2014; &eacute; AT&T ?a=1&sect=2 &bogus;", "&lt; – — é AT&T ?a=1&sect=2 &bogus;"),
        ("__NOTOC__a __FORCETOC__ b __init__", "a b __init__"),
        ("-{zh-hans:计算机; zh-hant:電腦}- -{R|x}- -{一}-", "计算机 x 一"),
        ("a\r\nb\x00c\x7fd", "a\nbcd"),
        ("{{{name|default}}} {{{name}}}", "default"),
    ],
)  # fmt: skip
def test_shows_what_the_page_shows(source, shown):
    got = extract(source)
    assert got.text.strip("\xa0") == shown
    assert got.gaps == ()


def test_prose_templates_keep_their_values():
    source = "At {{convert|1300|mi|km}}, the Ulmo has {{formatnum:6000}} locks, opened {{date|4|5|1911}}."
    assert extract(source) == ("At 1300 mi, the Ulmo has 6000 locks, opened 4 5 1911.", (), 0)


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("{{convert|5|to|10|km|mi}}", "5 to 10 km"),
        ("{{cvt|6|ft|2|in|m|abbr=on}}", "6 ft 2 in"),
        ("{{Convert|2|x|4|m2}}", "2 × 4 m²"),
        ("{{lang|fr|[[Paris|la ''Ville'']] Lumière}}", "la Ville Lumière"),
        ("{{lang-de|Straße}}, {{langx|ru|река}}, {{transl|ar|ALA|kitāb}}", "Straße, река, kitāb"),
        ("{{abbr|HTML|HyperText}} {{nowrap|a b}} {{nobr|1=c=d}}", "HTML a b c=d"),
        ("{{start date|1911|5|4}} {{Birth date and age|df=yes|1911|5|4}} {{dts|1911}}", "May 4, 1911 4 May 1911 1911"),
        ("{{as of|2010|5|lc=y}} {{As of|2011}}", "as of May 2010 As of 2011"),
        ("{{frac|1|2}} {{frac|3|1|2}} {{frac|4}}", "1/2 3 1/2 1/4"),
        ("{{val|5|e=3|ul=km}} {{circa|1900}} {{circa|1900|1910}}", "5 × 10^3 km c. 1900 c. 1900–1910"),
        ("{{nihongo|Tokyo|東京|Tōkyō}} {{chem|H|2|O}}", "Tokyo (東京, Tōkyō) H2O"),
        ("{{hlist|a|b|[[c|d]]}} {{USS|Ulmo}} a{{snd}}b{{'s}} x{{=}}y", "a, b, d USS Ulmo a – b's x=y"),
        ("''Ulmo''{{'s}} ''b''{{'}}s {{sic}} {{sic|ore}} B{{music|flat}} {{ordinal|3}} {{nth|112}}", "Ulmo's b's [sic] ore B♭ 3rd 112th"),
        ("{{s|XIX}} {{s-|XX|e}} {{unité|10|km}}", "XIXe siècle XXe siècle 10 km"),
        ("{{lc:ABC}} {{ucfirst:abc}} {{#if: x |yes|no}} {{#if:|yes|no}}", "abc Abc yes no"),
        ("{{Template:nowrap|a}} {{ nowrap\n|b\n}} {{<!-- c -->nowrap|c}} {{NoWrap|d}} {{small caps|e}} {{small_caps|f}}", "a b c d e f"),
        ("{{nowrap|{{convert|3|km}} of {{lang|de|{{small|x}}}}}}", "3 km of x"),
        ("{{blockquote|To be<ref>n</ref>, {{sic|ore}} not.{{cn}}|author=W}}", "To be, ore not."),
        ("{{cquote|quote=So it goes.|author=K}} {{lang|fr|texte=oui}} {{nuclide|carbon|14}}", "So it goes. oui carbon-14"),
        ("{{nowrap|a{{!}}b}} {{nowrap|[http://x?a=b c]}}", "a|b c"),
    ],
)  # fmt: skip
def test_template_recipes(source, shown):
    got = extract(source)
    assert " ".join(got.text.split()) == shown
    assert got.gaps == ()


def test_template_of_the_wiki_itself_by_its_namespace_name():
    assert text("{{Vorlage:nowrap|a}}", namespaces=GERMAN) == "a"


def test_pagename_is_the_title():
    assert text("{{PAGENAME}} is a river.", title="Ulmo") == "Ulmo is a river."


@pytest.mark.parametrize(
    ("source", "shown", "gaps"),
    [
        ("At {{distance|1300}}, the Ulmo ends.", "At, the Ulmo ends.", ("distance",)),
        ("The {{Foo_bar|x}} flows.", "The flows.", ("foo bar",)),
        ("{{foo}} is a river.", "is a river.", ("foo",)),
        ("It is <math>E</math> there. {{a}} Then.", "It is there. Then.", ("<math>",)),
        ("It flows.{{foo}} Then.", "It flows. Then.", ()),  # after the full stop: a note, not a word
        ("It flows{{cn|date=May}} on.", "It flows on.", ()),
        ("{{Infobox river\n|length={{convert|3|km}}\n}}\n'''Ulmo''' is", "Ulmo is", ()),
        ("{{stub}}\ntext\n{{Navbox}}", "text", ()),
        ("* {{dmoz|x}}\n* {{foo}}\n* b", "b", ()),
        ("Ulmo ({{IPA|x}}; born 1911)", "Ulmo (born 1911)", ()),
        ("Ulmo ({{IPA|x}}) and ({{foo}}) end.", "Ulmo and end.", ("foo",)),
        ("Ulmo (born 1911, {{IPA|x}}) end.", "Ulmo (born 1911) end.", ()),
        ("Ulmo ({{IPA|x}} {{respell|y}}) is.", "Ulmo is.", ()),
        ("Ulmo ({{IPA|x}}, {{foo}} / {{bar}}) is", "Ulmo is", ("foo", "bar")),
        ("Ulmo ({{IPA|x}} {{respell|z}}; {{IPA|y}}; born 1911) is", "Ulmo (born 1911) is", ()),
        ("Ulmo ({{IPA|x}} river {{IPA|y}}) is", "Ulmo (river) is", ()),
        ("call f() now", "call f() now", ()),
        ("== Head {{anchor|x}} ==\nb", "Head\nb", ()),
        ("{{未知模板|x}}很快。", "很快。", ("未知模板",)),
        ("{{قالب}} سريع.", "سريع.", ("قالب",)),
        ("河流。{{未知}}很快。", "河流。很快。", ("未知",)),
        ("河流。{{cn}}很快。", "河流。很快。", ()),
        ("{{เทมเพลต}}เร็ว", "เร็ว", ("เทมเพลต",)),
        ("ثم {{قالب}}، وذهب", "ثم، وذهب", ("قالب",)),
        ("Река.{{foo}} Затем", "Река. Затем", ()),
        ("a {{x}}{{y}} b", "a b", ("x", "y")),
        ("a {{nowrap|b {{x}} c}} d", "a b c d", ("x",)),
        ("a {{nowrap}} b", "a b", ("nowrap",)),
    ],
)
def test_template_dropped_inside_a_sentence_is_a_gap(source, shown, gaps):
    assert extract(source)[:2] == (shown, gaps)


def test_localised_names_of_the_dump():
    assert text("[[Datei:A.jpg|mini|Ein Turm]] Der Turm steht.", namespaces=GERMAN) == "Der Turm steht."
    latgalian = Namespaces.of([(6, "Fails"), (14, "Kategoreja"), (2600, "Tēma")])
    assert text("[[Fails:A.jpg|x]]a[[kategoreja:B]] [[Tēma:c]]", namespaces=latgalian) == "a Tēma:c"
    assert text("[[Lêer:A.jpg|mini|x]]a", namespaces=Namespaces.of([(6, "Lêer")])) == "a"
    # not the name of a namespace on a wiki in another language
    assert text("[[Lêer:A.jpg|x]]", namespaces=Namespaces.of([], "de")) == "x"
    assert text("[[Lêer:A.jpg|x]]a") == "a"  # of a wiki in no known language


@pytest.mark.parametrize(
    "name", ["Datei", "Fichier", "Файл", "Archivo", "Immagine", "ファイル", "Bild", "Plik", "IMAGE"]
)
def test_file_names_known_without_siteinfo(name):
    assert text(f"[[{name}:A.jpg|x]]a") == "a"


def test_namespace_number_of_a_title():
    assert [GERMAN.number(t) for t in ("Kategorie:X", "user talk:X", "Ulmo", "2001: A", ":x")] == [14, 3, 0, 0, 0]


def test_tables_are_kept_on_request():
    source = 'a\n{| style="x"\n|+ Cap\n! h1 !! h2\n|-\n| style="y" | [[c|d]] || e\n| f\n|}\nb'
    assert text(source, keep_tables=True) == "a\nCap\nh1\th2\n\nd\te\nf\n\nb"
    assert text("<table><tr><td style='x'>a</td><td>b</td></tr></table>c", keep_tables=True) == "a\tb\n\nc"
    indented = '{|\n |- style="x"\n ! style="width:1px;"|h1!!h2\n |-\n | a||b||style="y"|1\n |}'
    assert text(indented, keep_tables=True) == "h1\th2\n\na\tb\t1"
    template_has_bar = '{|\n|colspan="2" {{foo}}\n|bgcolor=white ROWSPAN=3 {{nowrap|n/a}}\n|x = 5\n|}'
    assert text(template_has_bar, keep_tables=True) == "n/a\nx = 5"


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("The {{convert|5|km is long.", "The convert|5|km is long."),
        ("{{Infobox\n| a = b\ntext", "text"),
        ("a }} b ]] c", "a b c"),
        ("see [[Ulmo and\nnext [[b]]", "see Ulmo and\nnext b"),
        ("x [[File:A.jpg|thumb|cap [[b]]\ny", "x\ny"),
        ("a <ref>b {{c}} d", "a b d"),
        ("a\n{| style=x\n| b\n|-\ntext", "a\ntext"),
        ("| style=x\n|}\ntext", "text"),
        ("<div style='x\ntext", "text"),
        ("a [http://x b\nc", "a [http://x b\nc"),
        ("'''a b", "a b"),
        ("<table>[http://x </table>] c", "] c"),
        ("[[File:a.jpg|thumb|see [http://x foo]] b", "b"),
        ("[[a|see [http://x foo]]] b", "see foo b"),
        ("[http://x [[a]] b] c", "a b c"),
    ],
)
def test_unclosed_markup_leaves_no_residue_and_loses_no_text(source, shown):
    got = text(source)
    assert got == shown
    assert not any(mark in got for mark in ("{{", "[[", "|thumb", "style="))


def test_unclosed_markup_is_counted():
    assert extract("[[a {{b <ref>c\n{| x").unclosed == 4
    assert extract("[[a]] {{b}} <ref>c</ref>\n{|\n|}").unclosed == 0


def test_nested_unclosed_tags_and_links_end_in_bounded_time():
    source = "".join(f"[[link {i} <b>" for i in range(400)) + "word " * 11_000
    start = time.process_time()
    got = extract(source)
    assert time.process_time() - start < 1
    assert got.text.endswith("word word")
    assert got.unclosed == 400


HOSTILE = [
    "{{", "[[", "{|", "\n{|", "<ref>", "'''", "<!--", "<nowiki>", "<b>", '<b x="', "[http://x ", "{{{", "}}", "]]", "\n|}",
    "<table>", "</table>", "[[File:", "[[a|", "{{a|", "{{nowrap|", "{{#if:", "<math>", "\n=", "-{", "__A", "&#", "({{x}}",
    "{{x}} ", "( , {{x}}", "\xa0", "a'''b''", "\n!a!!b", "{{!}}", "<a href='", "\n{{nowrap|", "[[x<b>", " ", "&amp", "[[de:x",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
@pytest.mark.parametrize("closing", ["", "}}", "]]", "\n|}"])
def test_time_is_linear_in_hostile_markup(unit, closing):
    def seconds(n: int) -> float:
        start = time.process_time()
        extract("x " + unit * n + closing * n)
        return time.process_time() - start

    # a quadratic scan of 8,000 units takes some ten seconds; a linear one, 0.15 s
    assert seconds(8_000) < 2


def test_depth_of_prose_templates_is_bounded():
    deep = "{{nowrap|" * 5000 + "x" + "}}" * 5000
    assert extract(deep).text == ""
    limit = tables.MAX_TEMPLATE_DEPTH
    assert extract("{{nowrap|" * limit + "x" + "}}" * limit).text == "x"


def test_nested_templates_cannot_multiply_text():
    """Each slot of a recipe names its argument once, or 40 levels would give 2^40 copies."""
    data = yaml.safe_load(resources.files("gpu_curate.text.wikitext").joinpath("wikitext.yaml").read_text("utf-8"))
    recipes = [*data["prose"], *data["prose_prefixes"].values()]
    for recipe in recipes:
        slots = [name for slot in templates.SLOT.finditer(recipe) for name in (slot[3] or slot[0]).split("|")]
        assert len(slots) == len(set(slots)), recipe
    names = [name for group in data["prose"].values() for name in group]
    assert len(names) == len(set(names))
    assert not set(names) & set(data["dropped"])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.sampled_from([*HOSTILE, "}}", "|", "]", "a", " b ", "\n", ">", "|}", "</ref>", "{{lang|x|", "\x7f"]),
        max_size=40,
    )
)
def test_any_markup_gives_text_without_control_characters(pieces):
    got = extract("".join(pieces))
    assert got == extract("".join(pieces))
    assert not any(ord(c) < 32 and c not in "\n\t" for c in got.text)
    assert "\x7f" not in got.text
    assert "[[" not in got.text.replace("&", "")
    assert got.text == got.text.strip()


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("* {{citation}}.", ""),
        ("* <ref>x</ref>.\n* {{foo}} – {{bar}}\n# ,", ""),
        ("a\n{{x}}, {{y}};\nb", "a\nb"),
        ("a<ref>x</ref>\n.\nb", "a\nb"),
        ("<pre>a\n.\n}\nb</pre>", "a\n.\n}\nb"),
        ("From {{inh}}, {{der}}, from {{m}}.", "From, from."),
        ("vowels, such as {{a}}, {{b}}, {{c}} or {{d}}.", "vowels, such as, or."),
        ("the {{a}}, {{b}} and", "the, and"),
        ("angle, {{x}}, and", "angle, and"),
        ("河流{{未知}}、{{甲}}，很快。", "河流、很快。"),
        ("ثم {{a}}، {{b}}، وذهب", "ثم، وذهب"),
        ("* {{foo}} – a note\n* {{foo}}, b\n* c, {{foo}}\n* d – {{foo}}", "a note\nb\nc\nd"),
        ("* {{Citation\n|a=b}}. First of", "First of"),
        ("as follows: {{x}}\n* a", "as follows:\na"),
        ("see {{x}} / {{y}}.", "see."),
        ("End. {{foo}}. New", "End. New"),
        ("{{x}}... so", "... so"),
        ("a ({{x}} [{{y}}]) b", "a b"),
        ("a ([{{y}}] {{x}}) b", "a b"),
        ("是（{{x}}）的《{{y}}》", "是的"),
        ("a (<ref>x</ref>) b ([http://x.org]) c ([[File:x.jpg]]) d", "a b c d"),
        ("a “{{x}}” b \"{{x}}\" c", "a b c"),
        ("f(''{{x}}'') and call f()", "f and call f()"),
        ("pre-{{x}}, b", "pre, b"),
        ("a&nbsp;{{x}}\nb", "a\nb"),
    ],
)  # fmt: skip
def test_nothing_of_a_dropped_template_stands_around_it(source, shown):
    assert text(source) == shown


SEPARATORS = [", ", "; ", " – ", " ", "、", "، ", ": ", " / "]
ITEMS = ["w", "{{x}}", "({{x}})", "{{cn}}"]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(ITEMS), st.sampled_from(SEPARATORS)), min_size=1, max_size=8), max_size=4
    ),
    st.sampled_from(["", "* ", "== h ==\n", ": "]),
    st.sampled_from([".", "", "。"]),
)
def test_no_separator_is_left_alone(lines, start, end):
    source = "\n".join(
        start + "".join(item + separator for item, separator in line[:-1]) + line[-1][0] + end for line in lines
    )
    for line in text(source).split("\n"):
        assert not line or "w" in line or line == "h", source
        assert not re.search(r"[,;–、،:/] ?[,;–、،:/.。)]|\(\)|^[ ,;–、،:/.。]|[,;–、،/]$", line), (source, line)


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("a\n== Notes ==\n{{reflist}}", "a"),
        ("a\n== Notes ==\n<references/>\n== Gallery ==\n<gallery>\nx.jpg\n</gallery>\n== B ==\nb", "a\n\nB\nb"),
        ("== A ==\n=== B ===\n==== C ====\n{{x}}\n== D ==\nd", "D\nd"),
        ("== A ==\n=== B ===\n\n=== C ===\nc", "A\n\nC\nc"),
        ("== A ==\n=== B ===\nb\n=== C ===\n== D ==\n=== E ===\n== F ==\nf", "A\nB\nb\n\nF\nf"),
        ("=== A ===\n== B ==\n=== C ===\nc", "B\nC\nc"),
        ("== A ==\n* {{foo}}.\n{|\n|x\n|}\n[[Category:A]]", ""),
        ("== {{foo}} ==\na", "a"),
        ("== A =\na\n= b", "A\na\n= b"),
        ("= A =\n====== B ======\nb", "A\nB\nb"),
    ],
)  # fmt: skip
def test_heading_without_text_below_goes(source, shown):
    assert text(source) == shown


def test_table_that_is_kept_keeps_its_heading():
    assert text("== A ==\n{|\n|x\n|}", keep_tables=True) == "A\nx"


CHINESE, SERBIAN = Namespaces.of([], "zh"), Namespaces.of([], "sr")


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("-{zh-hans:a;zh-hant:b}-", "a"),
        ("-{zh-hant:b;zh-hans:a}-", "a"),  # the order is MediaWiki's, not the page's
        ("-{zh-tw:c;zh-hant:b}-", "b"),
        ("-{zh-Hant:b;zh-Hans-CN:a}-", "b"),
        ("-{A|zh-hant:b;zh-hans:a}-x", "ax"),
        ("-{H|zh-hans:a;zh-hant:b}-x -{T|zh-hans:a}-y -{-|zh-hans:a}-z", "x y z"),
        ("-{R|raw}- -{raw}- -{raw: x}-", "raw raw raw: x"),
        ("-{zh;zh-hans|t}-", "t"),
        ("-{巨集=>zh-cn:宏;}- -{H|巨集=>zh-cn:宏;}-x", "宏 x"),
        ("-{N|zh-tw}-", "中文（臺灣）"),
        ("-{D|zh-cn:a;zh-tw:b}-", "中文（中国大陆）：a；中文（臺灣）：b；"),
        ("-{zh-hans:-{zh-tw:p;zh-cn:q}-;zh-hant:r}-", "q"),
        ("-{zh-hans:a;b;zh-hant:c;}-", "a;b"),
        ("-{zh-hans:[[a|b]];zh-hant:[[c|d]]}-", "b"),
        ("[[-{A}-|-{zh-hans:x; zh-hant:y}-]] [[-{A}-]]", "x A"),
        ("{{nowrap|-{R|a}-}} {{lang|en|-{A|zh-cn:a;zh-tw:b}-}}", "a a"),
        ("-{a }-{b}- }- -{}-", "a {b}- }-"),
        ("<nowiki>-{a}-</nowiki>", "-{a}-"),
    ],
)  # fmt: skip
def test_variants_on_a_wiki_that_has_them(source, shown):
    assert " ".join(text(source, namespaces=CHINESE).split()) == shown


@pytest.mark.parametrize("language", ["en", "de", "ja", "ko", "yue", "lzh", "ru"])
def test_no_variants_on_other_wikis(language):
    source = "N-{4-[ethyl]benzoyl}-L-glutamic acid, -{zh-hans:a;zh-hant:b}-"
    assert text(source, namespaces=Namespaces.of([], language)) == source


def test_chemical_name_of_a_wiki_in_no_known_language():
    source = "N-{4-[ethyl]benzoyl}-L-glutamic acid, -{x: y; z}-"
    assert text(source) == source


@pytest.mark.parametrize(
    ("language", "source", "shown"),
    [
        ("sr", "-{sr-el:a; sr-ec:а}- -{sr-el:x}- -{писмо|sr-cyrl:q}-", "а x q"),
        ("uz", "-{uz-cyrl:а;uz-latn:a}-", "a"),
        ("kk", "-{kk-arab:ا;kk-cyrl:а}-", "а"),
        ("ku", "-{ku-arab:ا;ku-latn:a}-", "a"),
        ("crh", "-{crh-cyrl:а;crh-latn:a}-", "a"),
        ("iu", "-{ike-latn:a;ike-cans:ᐊ}-", "ᐊ"),
        ("shi", "-{shi-tfng:ⴰ;shi-latn:a}-", "a"),
        ("gan", "-{gan-hant:b;gan-hans:a}-", "a"),
        ("wuu", "-{wuu-hant:b;wuu-hans:a}-", "a"),
        ("tg", "-{tg-latn:a;tg:а}-", "а"),
        ("tly", "-{tly-cyrl:а;tly:a}-", "a"),
        ("ban", "-{ban-bali:ᬅ;ban:a}-", "a"),
        ("sh", "-{sh-cyrl:а;sh-latn:a}-", "a"),
        ("mni", "-{x}-", "x"),
        ("zgh", "-{zgh-latn:a;zgh:ⴰ}-", "ⴰ"),
    ],
)
def test_variants_of_every_language_of_mediawiki(language, source, shown):
    assert text(source, namespaces=Namespaces.of([], language)) == shown


def test_time_is_linear_in_rules_of_variants():
    for unit in ("-{", "}-", "-{zh-hans:", "-{H|", ";zh-hans:a=>", "-{a}-", "-{zh-hans:a;", "=>", "; "):
        start = time.process_time()
        extract("-{zh-hans:x " + unit * 20_000 + "}-" * 10_000, CHINESE)
        assert time.process_time() - start < 2, unit


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("{{tsl|en|Foo|某物}}是好的。", "某物是好的。"),
        ("{{tsl|en|Foo|某物|显示}} {{Translink|ja|Foo}}", "显示 Foo"),
        ("{{link-en|某物|Thing}} {{link-ja|某物|もの|显示}} {{le|甲|A}}", "某物 显示 甲"),
        ("{{internal link helper/en|乙|B}} {{Internal link helper|乙|B|lang=en|d=丁}}", "乙 丁"),
        ("{{link-interwiki|zh=本|zh_title=示|lang=en|lang_title=X}} {{link-interwiki|zh=本|lang=en|lang_title=X}}", "示 本"),
        ("{{仮リンク|東京|en|Tokyo}} {{仮リンク|東京|en|Tokyo|label=京}}", "東京 京"),
        ("{{ill|Local|de|Foreign}} {{ill|Local|de|Foreign|lt=shown}} {{interlanguage link|Local|de}}", "Local shown Local"),
        ("{{ill|de|Foreign}} {{ill|en|Foreign|Local}}", "Foreign Local"),
        ("{{нп5|Город|города|en|City}} {{не переведено|Город||en|City}} {{iw|Город|en}}", "города Город Город"),
        ("{{не перекладено|треба=Місто|текст=міста}}", "міста"),
        ("{{lien|langue=en|trad=Foo|fr=Titre|texte=affiché}} {{lien|langue=en|trad=Foo|fr=Titre}} {{lien|langue=en|trad=Foo}}",
         "affiché Titre Foo"),
        ("{{読み仮名|東京|とうきょう}} {{llang|en|Tokyo}}", "東京（とうきょう） Tokyo"),
        ("{{وإو|عر=مدينة|تر=City|لغ=en|نص=المدينة}}", "المدينة"),
    ],
)  # fmt: skip
def test_links_to_other_wikis_show_the_text_that_the_template_shows(source, shown):
    got = extract(source, CHINESE)
    assert (got.text, got.gaps) == (shown, ())


TABLE = [
    line.split("\t")
    for line in resources.files("gpu_curate.text.wikitext").joinpath("wikitext.tsv").read_text("utf-8").splitlines()[1:]
]


def test_behaviour_switches_of_all_languages_go():
    switches = {(case, word) for kind, _, case, words in TABLE if kind == "switch" for word in words.split("|")}
    assert len(switches) > 1000
    assert {
        ("0", "__KEIN_INHALTSVERZEICHNIS__"),
        ("0", "__БЕЗ_ОГЛ__"),
        ("0", "＿＿目次＿＿"),
        ("1", "__INDEX__"),
    } <= switches
    for case, word in switches:
        assert text(f"a{word}b") == "ab"
        assert text(f"a{word.lower()}b") == "ab" or case == "1"


def test_words_between_underscores_that_are_no_switches_stay():
    source = "__init__ __FILE__ __LINE__ __index__ a__b__c __ __"
    assert text(source) == source
    assert text("__NOTOC____TOC__x__bar__NOTOC__ __DISAMBIG__") == "x__bar"


def test_names_of_files_and_categories_are_those_of_the_language():
    for kind, language, number, names in TABLE:
        if kind == "namespace" and number in ("6", "14") and language != "en":
            for name in names.split("|"):
                assert text(f"a[[{name}:X|y]]b", namespaces=Namespaces.of([], language)) == "ab", (language, name)
    assert text("[[Attēls:a.jpg|x]]b", namespaces=Namespaces.of([], "ltg")) == "b"  # falls back to Latvian


def test_redirect_words_of_all_languages():
    words = {word for kind, _, _, words in TABLE if kind == "redirect" for word in words.split("|")}
    assert len(words) > 150
    for word in words:
        assert is_redirect(f"#{word} [[Bar]]")
        assert is_redirect(f" # {word.lower()} : [[Bar]]") or word.lower().casefold() != word.casefold()


def test_redirect_words():
    assert is_redirect("#REDIRECT [[Bar]]")
    assert is_redirect(" #перенаправление [[x]]")
    assert is_redirect("#Weiterleitung [[x]]")
    assert not is_redirect("# patrz [nie]\n# two")
    assert not is_redirect("# one\n# two")
    assert not is_redirect("REDIRECT [[x]]")
    assert not is_redirect("")
