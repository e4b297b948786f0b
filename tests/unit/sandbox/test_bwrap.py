"""A profile becomes exactly the option list of a safe bubblewrap run."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.errors import SandboxSetupError
from edged.sandbox.bwrap import Layout, arguments, command, host_layout, pasteable, places
from edged.sandbox.profile import Bind, Limits, Profile

MERGED = Layout(
    links=(("/bin", "usr/bin"), ("/lib", "usr/lib")),
    dirs=("/lib64",),
    resolv_conf="/run/systemd/resolve/stub-resolv.conf",
)
TOOL = Bind("/srv/ada/tools", "/officer/user/tools", anchor="/srv")
HOME = Bind("/srv/ada/home", "/officer/user/home", write=True, anchor="/srv")
DATA = Bind("/srv/ada/data", "/officer/data", write=True, anchor="/srv")
FDS = {TOOL.source: 11, HOME.source: 12, DATA.source: 13}


def pairs(options: list[str], option: str) -> list[tuple[str, str]]:
    return [(options[i + 1], options[i + 2]) for i, word in enumerate(options) if word == option]


def test_whole_option_list_in_the_order_bubblewrap_must_do_it() -> None:
    """An empty root, system read-only, fresh trees, read-only binds, written ones last."""
    profile = Profile(
        binds=(HOME, TOOL),
        env=(("HOME", "/officer/user/home"), ("TMPDIR", "/var/tmp")),
        cwd="/officer/user/home",
        devices=("/dev/i2c-1",),
        links=(("/workspace", "/officer/user/workspace"),),
        limits=Limits(tmp_size=1024),
    )
    assert arguments(profile, MERGED, FDS) == [
        *("--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc"),
        *("--unshare-uts", "--unshare-cgroup-try", "--unshare-net"),
        *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
        *("--ro-bind", "/usr", "/usr"),
        *("--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"),
        *("--ro-bind", "/lib64", "/lib64"),
        *("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"),
        *("--ro-bind-try", "/etc/alternatives", "/etc/alternatives"),
        *("--ro-bind-try", "/etc/ssl/certs", "/etc/ssl/certs"),
        *("--ro-bind-try", "/etc/ca-certificates", "/etc/ca-certificates"),
        *("--ro-bind-try", "/etc/localtime", "/etc/localtime"),
        *("--ro-bind-try", "/etc/nsswitch.conf", "/etc/nsswitch.conf"),
        *("--proc", "/proc", "--tmpfs", "/proc/1", "--dev", "/dev"),
        *("--size", "1024", "--tmpfs", "/dev/shm"),
        *("--dev-bind-try", "/dev/i2c-1", "/dev/i2c-1"),
        *("--size", "1024", "--perms", "1777", "--tmpfs", "/tmp"),
        *("--symlink", "/officer/user/workspace", "/workspace"),
        *("--ro-bind-fd", "11", "/officer/user/tools"),
        *("--bind-fd", "12", "/officer/user/home"),
        *("--remount-ro", "/proc/1", "--remount-ro", "/dev", "--remount-ro", "/"),
        *("--chdir", "/officer/user/home", "--clearenv"),
        *("--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin"),
        *("--setenv", "LANG", "C.UTF-8", "--setenv", "TMPDIR", "/var/tmp"),
        *("--setenv", "HOME", "/officer/user/home"),
    ]


def test_network_brings_the_names_files_and_the_real_resolver_file() -> None:
    """A link to a directory that is not mounted would dangle in the empty root."""
    options = arguments(Profile(network=True), MERGED, {})
    assert "--unshare-net" not in options
    assert [target for _, target in pairs(options, "--ro-bind-try")][-3:] == [
        "/etc/resolv.conf",
        "/etc/hosts",
        "/etc/services",
    ]
    assert (MERGED.resolv_conf, "/etc/resolv.conf") in pairs(options, "--ro-bind-try")


def test_network_without_a_resolver_file_binds_none() -> None:
    assert "/etc/resolv.conf" not in arguments(Profile(network=True), Layout(), {})


def test_plain_sources_are_bound_by_path() -> None:
    profile = Profile(
        binds=(Bind("/opt/a", "/a"), Bind("/opt/b", "/b", optional=True), Bind("/opt/a", "/c"))
    )
    options = arguments(profile, Layout(), {})
    assert pairs(options, "--ro-bind")[-2:] == [("/opt/a", "/a"), ("/opt/a", "/c")]
    assert pairs(options, "--ro-bind-try")[-1] == ("/opt/b", "/b")


@pytest.mark.parametrize("bind", [HOME, TOOL])
def test_written_or_anchored_source_without_descriptor_is_our_fault(bind: Bind) -> None:
    """By path a link put in its place by a tool would be followed."""
    with pytest.raises(ValueError, match="needs a descriptor"):
        arguments(Profile(binds=(bind,)), MERGED, {})


def test_missing_optional_anchored_source_is_skipped_not_bound_by_path() -> None:
    bind = Bind("/srv/ada/x", "/x", anchor="/srv", optional=True)
    assert "/x" not in arguments(Profile(binds=(bind,)), MERGED, {})


def test_one_descriptor_cannot_serve_two_binds() -> None:
    """A descriptor is closed by bubblewrap after its first use."""
    twice = Bind(HOME.source, "/workspace", write=True, anchor="/srv")
    with pytest.raises(SandboxSetupError, match="bound twice: use a link for /workspace"):
        arguments(Profile(binds=(HOME, twice)), MERGED, FDS)


@pytest.mark.parametrize(
    "other",
    [
        Profile(binds=(HOME, Bind("/opt/x", "/officer/user/home/x"))),
        Profile(binds=(Bind("/opt/x", "/officer/user/home"), HOME)),
        Profile(binds=(HOME, Bind(DATA.source, "/officer/user/home/d", write=True))),
        Profile(binds=(HOME,), links=(("/officer/user/home/l", "/etc"),)),
        Profile(binds=(Bind(HOME.source, "/", write=True),)),
        Profile(binds=(Bind(HOME.source, "/dev", write=True),)),
        Profile(binds=(Bind(HOME.source, "/tmp", write=True),)),
        Profile(binds=(Bind(HOME.source, "/etc", write=True),)),
        Profile(binds=(Bind(HOME.source, "/dev/bus", write=True),), devices=("/dev/bus/usb/1",)),
    ],
)
def test_mount_point_at_or_below_a_written_bind_is_refused(other: Profile) -> None:
    """CVE-2026-87766: bubblewrap before 0.12.0 follows a tool's links there."""
    with pytest.raises(SandboxSetupError, match="CVE-2026-87766"):
        arguments(other, MERGED, FDS)


def test_neighbour_of_a_written_bind_with_the_same_beginning_is_fine() -> None:
    binds = (HOME, Bind("/opt/x", "/officer/user/home2"))
    assert "/officer/user/home2" in arguments(Profile(binds=binds), MERGED, FDS)


@pytest.mark.parametrize("target", ["a", "/a/../b", "/a/", "//a", "/a/./b", ""])
def test_unclean_mount_points_are_refused(target: str) -> None:
    with pytest.raises(SandboxSetupError, match="absolute path"):
        arguments(Profile(binds=(Bind("/opt", target),)), MERGED, {})


@pytest.mark.parametrize(
    "device",
    [
        "i2c-1",
        "/dev",
        "/dev/",
        "/dev/../etc",
        "/sys/class/gpio",
        "/dev/shm/x",
        "/dev/log",
        "/dev/pts/0",
    ],
)
def test_what_is_no_device_node_is_refused(device: str) -> None:
    with pytest.raises(SandboxSetupError, match="exact node"):
        arguments(Profile(devices=(device,)), MERGED, {})


@pytest.mark.parametrize(
    "name",
    [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "GLIBC_TUNABLES",
        "BASH_ENV",
        "ENV",
        "NODE_OPTIONS",
        "PYTHONPATH",
    ],
)
def test_variables_that_change_the_runtime_are_refused_by_name(name: str) -> None:
    with pytest.raises(SandboxSetupError, match=f"variable {name} would"):
        arguments(Profile(env=((name, "1"),)), MERGED, {})


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A=B", "BASH_FUNC_x%%", "É", "A\0B"])
def test_variables_with_odd_names_are_refused(name: str) -> None:
    """POSIX, Environment Variable Definition; bash imports functions by such names."""
    with pytest.raises(SandboxSetupError, match="letters, digits"):
        arguments(Profile(env=((name, "1"),)), MERGED, {})


def test_value_with_a_nul_is_refused_without_showing_it() -> None:
    with pytest.raises(SandboxSetupError, match=r"^variable TOKEN: its value has a NUL byte$"):
        arguments(Profile(env=(("TOKEN", "s3cret\0--bind"),)), MERGED, {})


def test_no_option_can_carry_another_one_behind_a_nul() -> None:
    """`--args` separates by NUL."""
    with pytest.raises(SandboxSetupError, match="NUL"):
        arguments(Profile(cwd="/a\0--share-net"), MERGED, {})


def test_visible_command_line_has_numbers_and_the_command_only() -> None:
    assert command(3, 4, 5, 6, ["python3", "/tool/index.py"]) == [
        *("bwrap", "--args", "3", "--seccomp", "4", "--info-fd", "5", "--block-fd", "6"),
        *("--", "python3", "/tool/index.py"),
    ]


def test_pasted_line_is_quoted_complete_and_hides_secrets() -> None:
    profile = Profile(
        binds=(HOME, Bind("/opt/my tool", "/tool", optional=True)),
        env=(("TOKEN", "s3cret"), ("NAME", "it's")),
    )
    line = pasteable(profile, MERGED, ["sh", "-c", "echo hi"], frozenset({"TOKEN"}))
    assert line.startswith("env -i bwrap --unshare-user ")
    assert line.endswith(" -- sh -c 'echo hi'")
    assert "--bind /srv/ada/home /officer/user/home" in line
    assert "--ro-bind-try '/opt/my tool' /tool" in line
    assert "s3cret" not in line
    assert "--setenv TOKEN '***'" in line


def test_layout_is_read_from_the_host(tmp_path: os.PathLike[str]) -> None:
    root = os.fspath(tmp_path)
    os.makedirs(f"{root}/usr/bin")
    os.makedirs(f"{root}/lib64")
    os.makedirs(f"{root}/run")
    os.makedirs(f"{root}/etc")
    os.symlink("usr/bin", f"{root}/bin")
    with open(f"{root}/run/resolv", "w"):
        pass
    os.symlink("../run/resolv", f"{root}/etc/resolv.conf")
    layout = host_layout(root)
    assert layout.links == (("/bin", "usr/bin"),)
    assert layout.dirs == ("/lib64",)
    assert layout.resolv_conf == os.path.realpath(f"{root}/run/resolv")


def test_layout_without_a_resolver_file_names_none(tmp_path: os.PathLike[str]) -> None:
    assert host_layout(os.fspath(tmp_path)) == Layout()


PARTS = st.lists(st.sampled_from(["a", "b", "usr", "tmp", "dev"]), min_size=1, max_size=3)
BINDS = st.lists(st.tuples(PARTS, st.booleans()), max_size=4)


@given(BINDS)
def test_whatever_is_accepted_writes_last_and_mounts_nothing_below(
    drawn: list[tuple[list[str], bool]],
) -> None:
    binds = tuple(
        Bind(f"/s{i}", "/" + "/".join(parts), write=write)
        for i, (parts, write) in enumerate(drawn)
    )
    try:
        options = arguments(Profile(binds=binds), MERGED, {f"/s{i}": i for i in range(len(binds))})
    except SandboxSetupError:
        return
    order = [word for word in options if word in ("--bind-fd", "--ro-bind-fd", "--remount-ro")]
    assert order == sorted(order, key=["--ro-bind-fd", "--bind-fd", "--remount-ro"].index)
    for written in (bind for bind in binds if bind.write):
        inside = [
            other.target
            for other in binds
            if other is not written and (other.target + "/").startswith(written.target + "/")
        ]
        assert inside == []


def test_places_of_a_run_are_what_is_made_in_its_root() -> None:
    profile = Profile(binds=(DATA,), links=(("/workspace", "/officer/data"),))
    found = places(profile, MERGED)
    assert {"/usr", "/bin", "/lib64", "/tmp", "/dev", "/etc/ssl/certs"} < set(found)
    assert found[-2:] == ["/workspace", "/officer/data"]
