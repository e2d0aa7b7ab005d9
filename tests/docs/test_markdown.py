from tests.docs.markdown import anchors, blocks, links


def test_anchors_are_those_of_github():
    assert anchors("# A `b`: c_d (e)\n## It's 5 % - or\n```\n# no\n```\n## Twice\n## Twice\n") == [
        "a-b-c_d-e",
        "its-5----or",
        "twice",
        "twice-1",
    ]


def test_blocks_are_found_with_their_lines():
    page = "Text.\n\n    $ one\n    two\n\n```python\nx = 1\n```\n\n- item\n\n    of the item\n\nEnd.\n\n    three\n"
    assert [(block.language, block.text, block.line) for block in blocks(page)] == [
        ("", "$ one\ntwo\n", 3),
        ("python", "x = 1\n", 7),
        ("", "three\n", 16),
    ]


def test_links_within_the_repository_are_found_outside_of_code():
    page = "[a](b.md#c) [d](https://e) ![f](g.png)\n```\n[h](i.md)\n```\n[j](#k)\n"
    assert links(page) == [("b.md", "c"), ("g.png", ""), ("", "k")]
