"""The table of commands: all of them load, and each help fits a screen."""

import subprocess
import sys
from collections.abc import Mapping

import click
import pytest
from click.testing import CliRunner, Result

from dask_efficiency.cli import main
from dask_efficiency.cli.commands import COMMANDS, GROUPS, LazyGroup, _is_installed

INSTALLED = [name for name, (home, _) in COMMANDS.items() if _is_installed(home)]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, terminal_width=80, prog_name="dask-efficiency")


def found(name: str) -> click.Command:
    command: click.Command = main
    for word in name.split():
        assert isinstance(command, click.Group)
        under = command.get_command(click.Context(command), word)
        assert under is not None
        command = under
    return command


@pytest.mark.parametrize("name", INSTALLED)
def test_a_command_loads_under_its_name_and_its_help_begins_with_its_line(name: str) -> None:
    command = found(name)
    assert command.name == name.split()[-1]
    assert (command.help or "").splitlines()[0] == COMMANDS[name][1]
    assert run(*name.split(), "--help").exit_code == 0


@pytest.mark.parametrize(
    "group", ["", *(group for group in GROUPS if any(name.startswith(group) for name in INSTALLED))]
)
def test_the_help_of_a_group_fits_a_screen_with_a_whole_line_for_each_command(group: str) -> None:
    lines = run(*group.split(), "--help").stdout.splitlines()
    assert len(lines) <= 26
    assert max(map(len, lines)) <= 80
    listed = dict(line.split(maxsplit=1) for line in lines[lines.index("Commands:") + 1 :])
    names = [name.removeprefix(f"{group} ") for name in INSTALLED if name.startswith(group)]
    assert list(listed) == list(dict.fromkeys(name.split()[0] for name in names))
    for name, line in listed.items():
        assert line == (GROUPS[name] if name in GROUPS else COMMANDS[f"{group} {name}".strip()][1])


def options_of(name: str) -> Mapping[str, click.Option]:
    return {option.opts[-1]: option for option in found(name).params if isinstance(option, click.Option)}


@pytest.mark.parametrize(
    "option", ["--json", "--html", "--chrome", "--what-if", "--cluster", "--hostfile", "--tls-cert"]
)
def test_an_option_is_the_same_wherever_it_is(option: str) -> None:
    # which print JSON line by line, and which leaves standard output to its script
    streams = ("top", "fleet watch", "run")
    all_options = [options_of(name) for name in INSTALLED if option != "--json" or name not in streams]
    having = [options[option] for options in all_options if option in options]
    assert having or len(INSTALLED) < len(COMMANDS)  # only a wing that is not there may have it
    assert len({(one.metavar, one.help, one.multiple, one.is_flag, str(one.default)) for one in having}) == bool(having)


def test_commands_whose_folder_is_missing_are_not_listed_and_reported_as_missing() -> None:
    table = {
        "one": ("dask_efficiency.nowhere:command", "One."),
        "wing two": ("dask_efficiency.gone.cli:command", "Two."),
    }
    group = LazyGroup("main", table={**table, "demo": COMMANDS["demo"]}, groups={"wing": "A wing."})
    assert group.list_commands(click.Context(group)) == ["demo"]
    for name, folder in (("one", "dask_efficiency.nowhere"), ("wing", "dask_efficiency.gone")):
        result = CliRunner().invoke(group, [name])
        assert result.exit_code == 1
        assert result.stderr == f"Error: {name!r} is not installed here: there is no {folder}\n"
    result = run("watch")  # a name that is in no table
    assert result.exit_code == 2
    assert "No such command 'watch'" in result.stderr


def test_help_imports_no_command_and_no_cluster() -> None:
    code = "import sys; from dask_efficiency.cli import main; main(['--help'], standalone_mode=False);"
    code += "print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    homes = {home.partition(":")[0] for home, _ in COMMANDS.values()}
    assert not {*homes, "distributed", "dask", "numpy", "pandas", "rich"} & set(done.stderr.split())
