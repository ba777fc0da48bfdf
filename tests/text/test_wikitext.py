"""What a reader of the page would see, and nothing of the markup."""

import time

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_curate.text import wikitext
from gpu_curate.text.wikitext import Namespaces, extract, is_redirect

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
        ("-{zh-hans:计算机; zh-hant:電腦}- -{R|x}- -{一}-", "计算机 一"),
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
        ("== Head {{anchor|x}} ==", "Head", ()),
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
    assert text("[[Lêer:A.jpg|x]]") == "x"  # not the name of a namespace on a wiki that does not say so


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
    limit = wikitext.MAX_TEMPLATE_DEPTH
    assert extract("{{nowrap|" * limit + "x" + "}}" * limit).text == "x"


def test_nested_templates_cannot_multiply_text():
    """Each slot of a recipe names its argument once, or 40 levels would give 2^40 copies."""
    data = yaml.safe_load(wikitext.resources.files("gpu_curate.text").joinpath("wikitext.yaml").read_text("utf-8"))
    recipes = [*data["prose"], *data["prose_prefixes"].values()]
    for recipe in recipes:
        slots = [name for slot in wikitext._SLOT.finditer(recipe) for name in (slot[3] or slot[0]).split("|")]
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


def test_redirect_words():
    assert is_redirect("#REDIRECT [[Bar]]")
    assert is_redirect(" #перенаправление [[x]]")
    assert is_redirect("#Weiterleitung [[x]]")
    assert not is_redirect("# patrz [nie]\n# two")
    assert not is_redirect("# one\n# two")
    assert not is_redirect("REDIRECT [[x]]")
    assert not is_redirect("")
