import base64
import hashlib
import json
import re
from typing import Any

import pytest
from jinja2 import UndefinedError

from dask_efficiency.show.document import Aside, Code, Document, Label, Legend, Table, section
from dask_efficiency.show.html.render import _environment, fragment, page
from tests.report.samples import HOSTILE_NAMES
from tests.report.test_report_page import Reader

SCRIPT = "<script>alert(1)</script>"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;"
EMPTY = Document("t", "", "", ())

TABLE = Table((SCRIPT,), ((SCRIPT,), (Label(SCRIPT, "#ffffff", SCRIPT),), (Label(SCRIPT, hint=SCRIPT),)), sortable=True)
FOLDED = section(SCRIPT, SCRIPT, folded=True)
LEGEND = Legend(((Label(SCRIPT, "#ffffff", SCRIPT), SCRIPT),))
EVERYWHERE = section(SCRIPT, SCRIPT, Aside(SCRIPT), TABLE, LEGEND, Code(SCRIPT), FOLDED)
BESIDE: dict[str, Any] = {"stats": ((SCRIPT, SCRIPT),), "footer": SCRIPT, "page_title": SCRIPT, "data": SCRIPT}
HOSTILE = Document(SCRIPT, SCRIPT, SCRIPT, (EVERYWHERE,), (SCRIPT,), **BESIDE)


def body(html: str) -> str:
    """What a page shows."""
    return html.partition("<main>")[2].partition("</main>")[0]


def test_text_is_escaped_once_wherever_it_stands() -> None:
    html, piece = page(HOSTILE), fragment(HOSTILE)
    assert "<script" not in body(html)
    assert f"<title>{ESCAPED}</title>" in html
    assert html.count("<script") == 2
    assert "<script" not in piece
    assert piece.count(ESCAPED) >= 16
    Reader(body(html))
    Reader(piece)
    assert ">a &lt; b<" in fragment(Document("t", "", "", (section("", "a < b"),)))


def test_what_stands_between_backticks_is_code_wherever_a_page_has_sentences() -> None:
    text = f"`f{SCRIPT}` in a.py `"
    table = Table(("", "in"), (("x", text),), words=(0, 1))
    told = Document("t", "", "", (section("", text, Aside(text), table),), (text,), findings=((text, text),))
    coded = f"<code>f{ESCAPED}</code> in a.py `"
    for html in (body(page(told)), fragment(told).partition("</pre>")[2]):
        assert (html.count(coded), html.count("`")) == (6, 6)


def test_a_page_without_sections_is_a_closed_document_with_a_warning() -> None:
    assert [tag for tag, _ in Reader(body(page(EMPTY))).elements] == ["header", "h1", "div", "div", "footer"]
    assert "names of workers, hosts, tasks and files, settings, and the source code" in page(EMPTY)


def test_a_template_leaves_nothing_undefined() -> None:
    with pytest.raises(UndefinedError):
        _environment().from_string("{{ no_such_name }}").render()


def test_a_page_has_no_room_for_the_line_breaks_of_its_templates() -> None:
    assert "\n" not in body(page(HOSTILE))


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, "</script><b>", "<!--<script>", "\u2028"])
def test_data_in_a_page_ends_no_element_and_comes_back(name: str) -> None:
    html = page(Document("t", "", "", (), data={name: [name]}))
    held = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert held is not None
    assert json.loads(held.group(1)) == {name: [name]}
    assert not set("<>&") & set(held.group(1))


def test_data_that_json_cannot_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        page(Document("t", "", "", (), data=float("nan")))


def test_the_policy_forbids_requests_and_all_scripts_but_the_pages_own() -> None:
    html = page(EMPTY)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    script = re.search(r"<script>(.*?)</script>", html, re.DOTALL)
    assert policy is not None
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script.group(1).encode()).digest()).decode()
    assert "default-src 'none'" in policy.group(1)
    assert f"script-src 'sha256-{digest}';" in policy.group(1)
    assert html.index("Content-Security-Policy") < html.index("<style") < html.index("<script")


def test_the_shell_asks_for_nothing() -> None:
    assert not re.search(r"""(src|href)=(?!"data:)|url\(|@import|https?:""", page(EMPTY))


def test_sections_that_are_narrow_stand_side_by_side() -> None:
    narrow = [section(name, "text", narrow=True) for name in "ab"]
    html = body(page(Document("t", "", "", (section("wide", "text"), *narrow, section("last", "text")))))
    pair = re.search(r'<div class="de-pair">(.*?)</div></section></div>', html)
    assert pair is not None
    assert re.findall("<h2>(.*?)</h2>", pair.group(0)) == ["a", "b"]
    assert html.count("de-pair") == 1
    Reader(html)
