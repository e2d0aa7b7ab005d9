import re
from html import unescape

from dask_efficiency.show.document import Document, Section, Spark, Table
from dask_efficiency.show.markdown import markdown
from tests.report.samples import by_hand


def test_a_document_is_headline_findings_and_folded_sections() -> None:
    table = Table(("cause", "seconds"), (("spill", "3.0"), ("a|b", "1.0")))
    sections = (
        Section("Causes", ("a sentence", Spark("memory", (0.5, 1.0)), table)),
        Section("Caveats", ("x",), caveat=True),
    )
    found = Document("a run", "2 workers", "10 s lost", sections, findings=(("Spilling: saves 1 s", "Buy memory."),))
    assert markdown(found) == (
        "### 10 s lost\n\na run. 2 workers\n\n1. Spilling: saves 1 s\n   Buy memory.\n\n"
        "<details><summary>Causes</summary>\n\na sentence\n\nmemory  \n`▄█`\n\n"
        "| cause | seconds |\n| --- | ---: |\n| spill | 3.0 |\n| a\\|b | 1.0 |\n\n</details>\n\n**Caveats**\n\nx\n"
    )


def test_names_make_no_link_picture_mention_or_markup() -> None:
    evil = "![x](https://a.b/c.png) <img> @team #1 `code` *b* $m$ www.a.b"
    text = markdown(Document(evil, "", evil, ()))
    assert re.findall(r"(?<!\\)[\[\]<@#`*$]|(?<!\\):/", text) == ["#"] * 3  # the heading's
    assert "www." not in text


def test_a_name_in_a_summary_is_text_and_no_backslash_is_seen() -> None:
    sections = (Section("my_job.py", ("x",)), Section("<img src=//a.bc/x.png> &lt; https://a.bc", ("x",)))
    text = markdown(Document("", "", "", sections))
    assert "<summary>my_job.py</summary>" in text
    assert "<summary>&lt;img src=//a.bc/x.png&gt; &amp;lt; https:\u200b//a.bc</summary>" in text


def test_no_mention_or_reference_is_left_when_backslashes_and_entities_are_gone() -> None:
    evil = "@team #1 !1 %1 $1 &1 ~bug a/b#12"
    text = unescape(markdown(Document(evil, "", evil, (Section(evil, (evil,)),))).replace("\\", ""))
    assert re.findall(r"[@~]\w|[#!%$&]\d", text) == []
    assert text.count("@\u200bteam") == 4


def test_a_report_and_a_comparison_are_shown_as_markdown() -> None:
    text = markdown(by_hand().first_screen)
    assert text.startswith("### 5.0 s, of which")
    assert "1. Spilling to disk: saves up to 750 ms." in text


def test_names_steer_no_terminal() -> None:
    text = markdown(Document("w\x1b[2J\u202e", "", "10 s lost", ()))
    assert text.replace("\n", "").isprintable()
    assert r"w\\x1b\[2J\\u202e" in text
