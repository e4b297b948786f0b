"""What is told of a program's standard error when it ended."""

from edged.mcp.upstream.stdio import LAST_MAX, last_words

NPM = """\
npm warn config something
npm error code E404
npm error 404 Not Found - GET https://registry.example.org/nosuch - Not found
npm error 404
npm error 404  'nosuch@*' is not in this registry.
npm error 404
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git folder.
npm error A complete log of this run can be found in: /edged-home/.npm/_logs/1-debug-0.log
"""


def test_of_npm_the_first_lines_are_told_for_its_last_names_a_log_alone():
    assert last_words(NPM).startswith(
        "npm: E404; Not Found - GET https://registry.example.org/nosuch - Not found; "
        "'nosuch@*' is not in this registry."
    )
    older = "npm ERR! code ENOTFOUND\nnpm ERR! network request to x failed\n"
    assert last_words(older) == "npm: ENOTFOUND; network request to x failed"
    assert len(last_words("npm error " + "x" * 10_000)) == LAST_MAX


def test_of_others_the_last_line_that_tells_of_an_error_is_told():
    """A traceback ends with it; what a shell says after it says less."""
    assert last_words("Traceback:\n  x\nValueError: bad\nbye\n") == "ValueError: bad"
    assert last_words("starting\nno key: set API_KEY\n") == "no key: set API_KEY"
    assert last_words("") == ""
