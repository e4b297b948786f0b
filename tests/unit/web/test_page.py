"""Reading HTML, PDF and pages of search engines, as in the sandbox."""

import base64
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pypdf import PdfReader, PdfWriter


@pytest.fixture
def read(inside):
    def run(form, data, charset="", url="https://site.example/a/b"):
        data = data.encode() if isinstance(data, str) else data
        params = {"form": form, "data": base64.b64encode(data).decode()}
        return inside.execute("", {**params, "charset": charset, "url": url})["structured"]

    return run


PAGE = """<!doctype html><html><head><title> Tea &amp;
 cake</title><style>p{}</style>
<script>steal()</script></head><body>
<nav><a href=/home>Home</a></nav>
<h1>Tea</h1><p>A <b>cup</b> of snake_case, 1 * 2 &lt; 3 &amp; more.</p>
<p><a href="../c?x=1&amp;y=2">next</a> <a href="javascript:steal()">no</a>
<img src=t.png alt="a tea pot"></p>
<pre>if a &lt; b:
    brew(&amp;pot)</pre>
<ul><li>black<li>green</ul>
<table><tr><th>Kind<th>Minutes<tr><td>green|white<td>2</table>
<p hidden>unseen</p><noscript>enable it</noscript><svg><text>drawn</text></svg>
<footer>Imprint</footer></body></html>"""


def test_a_page_becomes_readable_markdown(read):
    """Picoclaw section 10: there, entities stayed and links went."""
    found = read("html", PAGE)
    assert found["title"] == "Tea & cake"
    assert found["text"] == (
        "# Tea\n\n"
        "A **cup** of snake_case, 1 * 2 < 3 & more.\n\n"
        "[next](https://site.example/c?x=1&y=2) no [image: a tea pot]\n\n"
        "```\nif a < b:\n    brew(&pot)\n```\n\n"
        "- black\n- green\n\n"
        "| Kind | Minutes |\n| --- | --- |\n| green\\|white | 2 |"
    )


@pytest.mark.parametrize("tag", ["main", "article", "div role=main"])
def test_the_part_that_is_the_page_is_taken(read, tag):
    body = f"<p>before</p><{tag}><p>{'words ' * 60}</p></{tag.split()[0]}><p>after</p>"
    assert read("html", body)["text"] == ("words " * 60).strip()


def test_a_page_that_is_nothing_but_links_is_not_empty(read):
    assert "All news" in read("html", "<nav><a href=/n>All news</a></nav>")["text"]


def test_a_table_for_layout_comes_undone(read):
    text = read("html", "<table><tr><td><p>left</p></td><td><p>right</p></td></tr></table>")[
        "text"
    ]
    assert text.split() == ["left", "right"]


def test_base_says_where_links_lead(read):
    text = read("html", '<base href="https://else.example/d/"><a href=x>y</a>')["text"]
    assert text == "[y](https://else.example/d/x)"
    text = read("html", '<base href="http://[bad/"><a href=/x>y</a>')["text"]
    assert text.endswith("/x)")


@pytest.mark.parametrize(
    ("data", "charset", "text"),
    [
        ("你好".encode("gbk"), "gb2312", "你好"),
        (b"<meta charset=gbk>" + "你好".encode("gbk"), "", "你好"),
        ("こんにちは".encode("shift_jis"), "shift_jis", "こんにちは"),
        ("grüße".encode(), "", "grüße"),
        ("grüße".encode("latin-1"), "", "grüße"),
        ("größe日".encode()[:-1], "", "größe"),
        ("20 €".encode("cp1252"), "iso-8859-1", "20 €"),
        (b"\xef\xbb\xbf" + "é".encode(), "iso-8859-1", "é"),
        ("é".encode("utf-16"), "", "é"),
        ("é".encode(), "no-such-charset", "é"),
        (b"x", "rot13", "x"),
    ],
)
def test_a_page_is_read_in_its_characters(read, data, charset, text):
    """WHATWG Encoding: the mark, the header, the page's own word, the usual guess."""
    assert read("html", data, charset)["text"] == text


@pytest.mark.parametrize(
    "page",
    ["<div>" * 5_000 + "x", "<b><p>" * 500 + "x", "<table>" * 1_000 + "x",
     "<a " + " ".join(f"a{n}=1" for n in range(50_000)) + " href=/>x</a>",
     "<!--" * 10_000 + "-->x", "&" * 10_000 + "x", "<svg><p>x"],
)  # fmt: skip
def test_hostile_html_is_read_to_its_end(read, page):
    """Deep, wide or broken: no recursion, no endless loop."""
    assert "x" in read("html", page)["text"]


def test_a_page_cannot_make_a_table_of_ours_again_and_again(read):
    """The places where tables stood are marked by characters that no page keeps."""
    cells = "<td>cell" * 100
    text = read("html", "\ue0000\ue001" * 1_000 + f"<table><tr>{cells}</table>")["text"]
    assert text.count("| cell") == 100


@given(st.text(st.sampled_from("<>/\"'=&; abdpt!-\n"), max_size=200))
def test_any_soup_of_tags_is_read(inside, soup):
    params = {"form": "html", "data": base64.b64encode(soup.encode()).decode()}
    inside.execute("", {**params, "charset": "", "url": "https://x.example/"})


def pdf(*texts, password=""):
    """A PDF of these pages (ISO 32000-1, 7.5), with a title."""
    writer = PdfWriter()
    for text in texts:
        source = _one_page(text)
        writer.append(PdfReader(io.BytesIO(source)))
    writer.add_metadata({"/Title": "Sheet"})
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def _one_page(text):
    stream = f"BT /F1 12 Tf 50 700 Td ({text}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R /Resources 6 0 R >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Font << /F1 5 0 R >> >>",
    ]
    out, places = b"%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, one)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    start = len(out)
    out += b"xref\n0 7\n0000000000 65535 f \n" + table
    return out + b"trailer << /Size 7 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % start


def test_a_pdf_is_read_page_by_page(read):
    found = read("pdf", pdf("The gap is 4 mm.", "Second sheet"))
    assert found["title"] == "Sheet"
    assert found["text"] == ("(page 1 of 2)\nThe gap is 4 mm.\n\n(page 2 of 2)\nSecond sheet")
    assert not found["problem"]


def test_a_pdf_without_text_or_with_a_password_says_so(read):
    assert read("pdf", pdf(""))["problem"] == "it has no text, only pictures"
    assert read("pdf", pdf("x", password="secret"))["problem"] == "it needs a password"


DUCKDUCKGO = """<div class="result results_links result--ad"><a class="result__a" href="//duckduckgo.com/y.js?ad">Ad</a></div>
<div class="result results_links"><h2 class="result__title"><a class="result__a"
href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fa.example%2Fx%3Fq%3D1%26r%3D2&amp;rut=0123">First <b>hit</b></a></h2>
<a class="result__snippet" href="#">All <b>about</b> it &amp; more</a></div>
<div class="result"><a class="result__a" href="https://b.example/">Second</a></div>
<div class="result"><a class="result__a" href="https://b.example/">Second again</a></div>"""


def test_duckduckgos_results_are_at_their_own_address(read):
    """Picoclaw section 9: there, the tracking stayed and snippets went to other results."""
    found = read("duckduckgo", DUCKDUCKGO, url="https://html.duckduckgo.com/html/")
    assert found["records"] == [
        {"title": "First hit", "url": "https://a.example/x?q=1&r=2",
         "snippet": "All about it & more"},
        {"title": "Second", "url": "https://b.example/", "snippet": ""},
    ]  # fmt: skip


SOGOU = """<div class="results"><div class="vrwrap"><h3 class="vr-title"><a
href="/link?url=hedJjaC291">树莓派 <em>官网</em></a></h3><div class="text-layout">一台小电脑</div>
<div class="r-sech" data-url="https://www.raspberrypi.com/"></div></div>
<div class="vrwrap"><h3><a href="/link?url=https%3A%2F%2Fc.example%2F">Other</a></h3></div></div>"""


def test_sogous_results_are_at_their_own_address(read):
    found = read("sogou", SOGOU, url="https://www.sogou.com/web")
    assert found["records"] == [
        {"title": "树莓派 官网", "url": "https://www.raspberrypi.com/", "snippet": "一台小电脑"},
        {"title": "Other", "url": "https://c.example/", "snippet": ""},
    ]


@pytest.mark.parametrize(
    ("form", "page", "problem"),
    [
        ("duckduckgo", '<div class="anomaly-modal__title">Bots</div>', "robot"),
        ("sogou", '<form id="seccodeForm"></form>', "robot"),
        ("duckduckgo", "<p>new design</p>", "not understood"),
        ("sogou", "<p>new design</p>", "not understood"),
    ],
)
def test_a_page_without_results_says_why(read, form, page, problem):
    """Picoclaw section 9: a bot page read as "No results"."""
    assert problem in read(form, page)["problem"]


def test_no_results_are_no_problem(read):
    assert read("duckduckgo", '<div class="no-results">None</div>') == {"records": []}
