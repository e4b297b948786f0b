"""HTTP tokens: only hashes are kept, the first one is for the board's owner."""

import os

import pytest

from edged.errors import InvalidArgumentsError, NotFoundError, StoreError
from edged.store import Store
from edged.testing.clock import FakeClock
from edged.tokens import PREFIX, Tokens


@pytest.fixture
def make(tmp_path):
    def tokens():
        return Tokens(Store(str(tmp_path / "state")), str(tmp_path), FakeClock())

    return tokens


def first_secret(tmp_path):
    return (tmp_path / "token").read_text().strip()


def test_the_first_token_is_the_owners_and_in_a_file_for_it_alone(make, tmp_path):
    """Contract, section 4: the first one is written to the data directory, 0600."""
    before = os.umask(0)
    try:
        tokens = make()
        tokens.ensure_first()
    finally:
        os.umask(before)
    assert tokens.first == str(tmp_path / "token")
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    found = tokens.find(first_secret(tmp_path))
    assert (found.name, found.user, found.role) == ("first", "local", "owner")
    assert found.created == "2023-11-14T22:13:20.000Z"


def test_a_second_start_keeps_the_first_token(make, tmp_path):
    make().ensure_first()
    secret = first_secret(tmp_path)
    again = make()
    again.ensure_first()
    assert first_secret(tmp_path) == secret
    assert again.find(secret)


def test_a_crash_between_the_two_writes_is_mended_by_the_next_start(make, tmp_path):
    """The file is written, its hash is not: a directory stands where the hash belongs."""
    path = tmp_path / "state" / "tokens.json"
    tokens = make()
    path.mkdir(parents=True)
    with pytest.raises(StoreError):
        tokens.ensure_first()
    stale = first_secret(tmp_path)
    path.rmdir()
    again = make()
    assert again.find(stale) is None
    again.ensure_first()
    assert first_secret(tmp_path) != stale
    assert again.find(first_secret(tmp_path))


def test_no_secret_is_kept(make, tmp_path):
    tokens = make()
    secret = tokens.add("kitchen", "ada@example.org", "agent")
    assert secret.startswith(PREFIX)
    state = (tmp_path / "state" / "tokens.json").read_text()
    assert secret not in state
    assert "kitchen" in state
    assert (tmp_path / "state" / "tokens.json").stat().st_mode & 0o777 == 0o600


def test_a_token_belongs_to_a_user_and_a_role_over_restarts(make):
    """Contract, section 4."""
    secret = make().add("kitchen", "ada@example.org", "agent")
    found = make().find(secret)
    assert (found.user, found.role) == ("ada@example.org", "agent")
    assert [t.name for t in make().rows()] == ["kitchen"]


def test_secrets_cannot_be_guessed(make):
    """MCP, handles: at least 122 bits."""
    tokens = make()
    one, two = (tokens.add(name, "local", "owner") for name in ("a", "b"))
    assert one != two
    assert len(bytes.fromhex(one.removeprefix(PREFIX))) == 24


@pytest.mark.parametrize("secret", ["", "edged_", "x" * 10_000, "ä", "\udcff", "\ud800"])
def test_anything_else_is_no_token(make, secret):
    """Headers hold any bytes; a web server hands them on as half characters."""
    tokens = make()
    tokens.add("kitchen", "local", "owner")
    assert tokens.find(secret) is None


def test_a_revoked_token_is_none_any_more(make):
    tokens = make()
    secret = tokens.add("kitchen", "local", "owner")
    other = tokens.add("cellar", "local", "owner")
    tokens.revoke("kitchen")
    assert tokens.find(secret) is None
    assert make().find(secret) is None
    assert make().find(other).name == "cellar"


def test_the_file_of_the_first_token_goes_with_it(make, tmp_path):
    """A file with a secret that is none any more misleads."""
    tokens = make()
    tokens.ensure_first()
    tokens.add("mine", "local", "owner")
    tokens.revoke("first")
    assert not (tmp_path / "token").exists()
    make().ensure_first()
    assert not (tmp_path / "token").exists()


def test_advice_names_the_file_only_while_it_is_there(make, tmp_path):
    """A path to nothing helps nobody."""
    tokens = make()
    assert tokens.advice() == "an owner makes one: edged token add NAME --role owner"
    tokens.ensure_first()
    assert tokens.advice() == f"the owner's first token is in {tmp_path}/token"
    tokens.revoke("first")
    assert "edged token add" in tokens.advice()


@pytest.mark.parametrize(("names", "words"), [([], "none"), (["b", "a"], "there are: b, a")])
def test_revoking_what_is_not_there_names_what_is(make, names, words):
    tokens = make()
    for name in names:
        tokens.add(name, "local", "owner")
    with pytest.raises(NotFoundError, match=words):
        tokens.revoke("kitchen")


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb", "\x1b[2J", "taken"])
def test_a_name_is_short_printable_and_not_taken(make, name):
    tokens = make()
    tokens.add("taken", "local", "owner")
    with pytest.raises(InvalidArgumentsError, match="name"):
        tokens.add(name, "local", "owner")


@pytest.mark.parametrize(
    "user", ["", "ada", "../../etc", "a/b@example.org", "tools", ".", "LOCAL"]
)
def test_a_user_is_an_identity_that_may_be_a_directory(make, user):
    """Contract, section 3: DATA_PATH/<email> lies beside the daemon's own directories."""
    with pytest.raises(InvalidArgumentsError, match="user: must be an e-mail identity"):
        make().add("x", user, "agent")
    with pytest.raises(InvalidArgumentsError, match="name: .*; user: "):
        make().add("", user, "agent")


def test_a_disk_that_takes_nothing_changes_nothing(make, tmp_path):
    tokens = make()
    secret = tokens.add("kitchen", "local", "owner")
    (tmp_path / "state" / "tokens.json.new").mkdir()
    with pytest.raises(StoreError):
        tokens.add("cellar", "local", "owner")
    with pytest.raises(StoreError):
        tokens.revoke("kitchen")
    assert [t.name for t in tokens.rows()] == ["kitchen"]
    assert tokens.find(secret)


def test_a_broken_file_costs_the_newest_change_alone(make, tmp_path, capsys):
    """Facts on corrupt files: the generation before is used."""
    tokens = make()
    secret = tokens.add("kitchen", "local", "owner")
    tokens.add("cellar", "local", "owner")
    (tmp_path / "state" / "tokens.json").write_bytes(b"\0" * 300)
    again = make()
    assert again.find(secret)
    assert [t.name for t in again.rows()] == ["kitchen"]
    assert "is broken" not in capsys.readouterr().out
