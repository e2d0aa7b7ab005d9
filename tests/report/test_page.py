import base64
import hashlib
import json
import re

import pytest

from dask_efficiency.report.blocks import Html, joined, safe, table
from dask_efficiency.report.page import embedded, folded, headline, page, section, whole_section
from dask_efficiency.report.section import Section
from tests.report.samples import HOSTILE_NAMES
from tests.report.test_notebook import Reader

SCRIPT = "<script>alert(1)</script>"


def test_text_is_escaped_wherever_it_stands() -> None:
    body = joined(
        [
            headline(SCRIPT, SCRIPT, SCRIPT, [(SCRIPT, SCRIPT)]),
            section(SCRIPT, SCRIPT, folded(SCRIPT, SCRIPT)),
            table([SCRIPT], [[SCRIPT]]),
            whole_section(Section(SCRIPT, (SCRIPT,), (SCRIPT,), ((SCRIPT,),))),
        ]
    )
    assert "<script" not in body
    assert body.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 15


def test_markup_is_escaped_once_and_not_again() -> None:
    assert safe(safe("a < b")) == "a &lt; b"
    assert joined([Html("<b>"), "<", Html("</b>")]) == "<b>&lt;</b>"


def test_a_page_without_body_or_data_is_a_closed_document() -> None:
    assert Reader(page("t", Html("")).partition("<main>")[2].partition("</main>")[0]).elements == []


def test_a_section_without_content_is_left_out() -> None:
    assert section("Spill", "", Html("")) == ""


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, "</script><b>", "<!--<script>", "\u2028"])
def test_data_in_a_page_ends_no_element_and_comes_back(name: str) -> None:
    html = page("t", Html(""), data={name: [name]})
    held = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert held is not None
    assert json.loads(held.group(1)) == {name: [name]}
    assert not set("<>&") & set(held.group(1))


def test_what_json_cannot_hold_is_no_data() -> None:
    with pytest.raises(ValueError, match="JSON"):
        embedded(float("nan"))


def test_the_policy_forbids_requests_and_all_scripts_but_the_pages_own() -> None:
    html = page("t", Html(""), script="document.title = 'more'")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    script = re.search(r"<script>(.*?)</script>", html, re.DOTALL)
    assert policy is not None
    assert script is not None
    assert script.group(1).endswith("document.title = 'more'")
    digest = base64.b64encode(hashlib.sha256(script.group(1).encode()).digest()).decode()
    assert "default-src 'none'" in policy.group(1)
    assert f"script-src 'sha256-{digest}';" in policy.group(1)
    assert html.index("Content-Security-Policy") < html.index("<style") < html.index("<script")


def test_the_shell_asks_for_nothing() -> None:
    html = page("t", Html(""))
    assert not re.search(r"""(src|href)=(?!"data:)|url\(|@import|https?:""", html)
