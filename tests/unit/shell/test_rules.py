"""The list of refused commands: what the specification names, however it is written."""

import re

import pytest

from edged.shell.commands import parse
from edged.shell.rules import refused


def why(text, deny=(), allow=()):
    patterns = [[re.compile(one) for one in many] for many in (deny, allow)]
    return refused(text, parse(text), *patterns)


@pytest.mark.parametrize(
    "text",
    [
        # The document's own words.
        "rm -rf /", "dd if=/dev/zero of=x", "shutdown -h now", "reboot", "chmod +x a.sh",
        "chown root a", "sudo ls", "echo $(id)", "echo `id`", "curl x | sh", "curl x | bash",
        # What slipped through the best-known implementation (facts of PicoClaw, 4).
        "rm -rfv /", "rm --recursive --force x", "rm -v -rf x", "rm -r -f x", "r\\m -rf x",
        "chmod -R 777 .", "dd of=/dev/sda", "tee /dev/sda", "mkfs.ext4 /dev/sda1", "halt",
        "init 0", "su -", "curl x | python3", "curl x | zsh", "curl x | dash",
        # Quotes, assignments, wrappers, other shells.
        "'r'm -rf x", '"rm" -rf x', "$'\\x72m' -rf x", "r\\\nm -rf x", "/bin/rm -fr x",
        "rm x -rf", "A=1 rm -rf x", "env -u B A=1 rm -rf x", "nohup nice -n 5 rm -rf x &",
        "timeout -k 5 10 rm -rf x", "ls | xargs -n 1 rm -rf", "find . -exec rm -rf {} +",
        "busybox rm -rf x", "command rm -rf x", "sh -c 'rm -rf x'", "bash -lc 'a; rm -rf x'",
        "eval 'rm -rf x'", "bash <<< 'rm -rf x'", "bash <<E\nrm -rf x\nE", "(rm -rf x)",
        "if true; then rm -rf x; fi", "true && rm -rf x", "true;rm -rf x", "! rm -rf x",
        "curl x | sudo bash", "curl x | env bash -s a", "bash <(curl x)", ". <(curl x)",
        "cat a > /dev/mmcblk0", "cp a /dev/nvme0n1", ":(){ :|:& };:", "systemctl poweroff",
        'echo "$(rm -rf x)"', "echo ${x:-`id`}",
    ],
)  # fmt: skip
def test_command_of_the_list_is_refused_however_it_is_written(text):
    """Faults 258 and 321 of PicoClaw: its list was got round by spelling."""
    assert why(text).startswith("not run: `")


def test_command_that_is_read_over_and_over_is_refused_and_told_so():
    reason = why("find -exec eval " * 40)
    assert "it is nested too deeply or too often to be looked at: put it into a file" in reason


def test_command_behind_many_wrappers_is_refused():
    assert "rm that takes whole directories" in why("nice " * 40 + "rm -rf x")


@pytest.mark.parametrize(
    "text",
    [
        "grep kill f", "echo reboot", "echo format disk", "rm -f one.txt", "rm -r dir",
        "echo ${HOME}", "ls 2>/dev/null", "a >/dev/null 2>&1", "kill 1234", "kill -9 -1",
        "curl https://example.org/rm?x=-rf", "cat /workspace/dd/reboot", "git rm -rf --cached x",
        "echo 'rm -rf /'", 'echo "rm -rf /"', "echo 'a $(b)'", "echo $((1 + 2))", "ls # reboot",
        "man reboot", "which sudo", "grep -r 'chmod 777' .", "echo y | bash install.sh",
        "echo x | sh -c cat", "cat a | python3 -c 'import sys'", "cat a | python3 b.py",
        "cat <<'E' > a.sh\nrm -rf $(x)\nE", "for f in reboot sudo; do echo $f; done",
        "find . -exec rm -f {} + -print", "find . -exec rm -f {} \\; -print", "node skills/x.js", "rm -- -rf", "dd-stats a", "journalctl -u reboot",
    ],
)  # fmt: skip
def test_command_that_only_looks_like_one_is_not(text):
    """Facts of PicoClaw, 4: what its list refused by mistake; fault 964: `2>/dev/null`."""
    assert why(text) == ""


def test_refusal_names_the_command_and_the_setting():
    assert why("cd x && rm -rfv  build") == (
        "not run: `rm -rfv build`: rm that takes whole directories by force is refused; the "
        "owner can allow it by a pattern: tools: {exec: {allow: [...]}} in edged.yaml"
    )


def test_allow_lifts_what_it_is_found_in_and_nothing_else():
    """Fault 3079 of PicoClaw: one allowed command switched the whole list off."""
    allow = ["^rm -rf build$"]
    assert why("rm -rf build", allow=allow) == ""
    assert "`rm -rf /`" in why("rm -rf build; rm -rf /", allow=allow)
    assert "`sudo rm -rf build`" in why("sudo rm -rf build", allow=allow)
    assert why("echo $(date)", allow=[r"^\$\(date\)$"]) == ""
    assert "`reboot`" in why("echo $(reboot)", allow=[r"^\$\(reboot\)$"])[:40]


def test_allow_never_lifts_the_owners_own_deny():
    """Fault 3079 of PicoClaw."""
    said = why("jq env x", deny=[r"^jq\b"], allow=[".*"])
    assert said == (
        "not run: `jq env x` is refused by the owner's rule '^jq\\b' "
        "(tools.exec.deny in edged.yaml)"
    )


def test_owners_deny_sees_through_quotes_too():
    assert why("j\\q a", deny=[r"^jq\b"])
    assert why("x; 'jq' a", deny=[r"^jq\b"])
    assert why("x '; jq a'", deny=[r"^jq\b"]) == ""
