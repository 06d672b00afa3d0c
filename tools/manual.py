"""The manual pages: one for each command of fleetctl, for fleetd and for its settings.

The text of an option is its --help; the rest of a page is in manual_texts.
"""

import argparse
from collections.abc import Iterator

import msgspec

from fleetctl.cli import COMMANDS, GROUPS, SPELLINGS, full_parser
from fleetd import __version__
from fleetd.__main__ import parser as fleetd_parser
from fleetd.config import Config

from . import manual_texts as texts
from . import roff
from .completions import commands_of

PLACE = "fleetctl/share/man"
SOURCE = f"fleetd {__version__}"
# Options of every command, described once on every page.
EVERYWHERE = ("--help", "--json", "--exact")


def files() -> dict[str, str]:
    """Return the pages by their paths."""
    whole = full_parser()
    commands = commands_of(whole)
    pages = {f"man1/fleetctl-{name}.1": _command(name, each) for name, each in commands.items()}
    pages |= {
        f"man1/fleetctl-{other}.1": f".so man1/fleetctl-{name}.1\n"
        for other, name in SPELLINGS.items()
    }
    pages |= {
        "man1/fleetctl.1": _fleetctl(whole),
        "man1/fleet.1": ".so man1/fleetctl.1\n",
        "man1/fleetd.1": _fleetd(),
        "man5/fleet-config.5": _config(),
    }
    return {f"{PLACE}/{name}": text for name, text in pages.items()}


def _command(name: str, parser: argparse.ArgumentParser) -> str:
    below = commands_of(parser)
    brief = COMMANDS[name].rstrip(".")
    entries = [_leaf(name, action, each) for action, each in below.items()]
    # A command that runs by itself, with or without subcommands.
    alone = not below or parser.get_default("run")
    leaves = [*([parser] if alone else []), *below.values()]
    shown = [text for each in leaves if (text := _examples(each))]
    own = _options(parser) if alone else []
    others = [other for other, target in SPELLINGS.items() if target == name]
    body = [
        *roff.section("synopsis", *map(_synopsis, leaves)),
        *roff.section(
            "description",
            roff.paragraph(parser.description or brief),
            *(
                roff.paragraph(
                    f"``fleetctl {other}`` is another spelling for the commands below it."
                )
                for other in others
            ),
        ),
        *roff.section("commands", *entries),
        *roff.section("options", own, _everywhere(leaves[-1])),
        *roff.section("exit status", roff.entries(texts.EXIT_STATUS)),
        *roff.section("examples", *map(roff.example, shown)),
        *_see_also("fleetctl(1)", *texts.RELATED.get(name, ())),
    ]
    return roff.page(f"fleetctl-{name}", 1, SOURCE, brief, body)


def _synopsis(parser: argparse.ArgumentParser) -> list[str]:
    return roff.usage(parser.format_usage(), ("[-h]", "[--json]", "[--exact]", "COMMAND", "..."))


def _leaf(name: str, action: str, parser: argparse.ArgumentParser) -> list[str]:
    described = roff.paragraph(parser.description or "")
    return roff.subsection(f"fleetctl {name} {action}", described, _options(parser))


def _examples(parser: argparse.ArgumentParser) -> str:
    return (parser.epilog or "").removeprefix("examples:\n")


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return roff.entries(_each_option(parser, hidden=EVERYWHERE))


def _everywhere(parser: argparse.ArgumentParser) -> list[str]:
    found = roff.entries(_each_option(parser, only=EVERYWHERE))
    return [*roff.paragraph("Every command takes:"), *found] if found else []


def _each_option(
    parser: argparse.ArgumentParser, *, hidden: tuple[str, ...] = (), only: tuple[str, ...] = ()
) -> Iterator[tuple[str, str]]:
    formatter = parser._get_formatter()  # noqa: SLF001
    for action in parser._actions:  # noqa: SLF001
        names = set(action.option_strings)
        if action.help == argparse.SUPPRESS or isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            continue
        if names & set(hidden) or (only and not names & set(only)):
            continue
        help_text = formatter._expand_help(action) if action.help else ""  # noqa: SLF001
        words = list(map(str, action.choices or ()))
        if action.metavar is not None and not all(word in help_text for word in words):
            help_text += f" ({', '.join(words)})"
        yield _term(action), help_text[:1].upper() + help_text[1:]


def _term(action: argparse.Action) -> str:
    value = action.metavar or "|".join(map(str, action.choices or [action.dest]))
    if not action.option_strings:
        return roff.choices(roff.italic(str(value)))
    names = ", ".join(map(roff.bold, action.option_strings))
    return names if action.nargs == 0 else f"{names} {roff.choices(roff.italic(str(value)))}"


def _see_also(*pages: str) -> list[str]:
    named = [f"\\fB{roff.escape(page.partition('(')[0])}\\fR({page[-2]})" for page in pages]
    return roff.section("see also", [".P", ",\n".join(named)])


def _fleetctl(whole: argparse.ArgumentParser) -> str:
    listed = [
        roff.subsection(
            group.capitalize(),
            roff.entries(
                (f"\\fBfleetctl\\-{roff.escape(name)}\\fR(1)", _sentence(brief))
                for name, brief in commands.items()
            ),
        )
        for group, commands in GROUPS.items()
    ]
    body = [
        *roff.section(
            "synopsis",
            roff.usage("usage: fleetctl COMMAND ..."),
            roff.usage("usage: fleet COMMAND ..."),
        ),
        *roff.section("description", *map(roff.paragraph, texts.FLEETCTL)),
        *roff.section("commands", *listed),
        *roff.section("options", roff.entries(_each_option(whole))),
        *roff.section("environment", roff.entries(_bold(texts.ENVIRONMENT))),
        *roff.section("files", roff.entries(_italic(texts.FILES))),
        *roff.section("exit status", roff.entries(texts.EXIT_STATUS)),
        *roff.section("examples", roff.example(texts.EXAMPLES)),
        *_see_also("fleetd(1)", "fleet-config(5)"),
    ]
    return roff.page("fleetctl", 1, SOURCE, "see and steer the fleet of agents", body)


def _fleetd() -> str:
    parser = fleetd_parser()
    body = [
        *roff.section("synopsis", _synopsis(parser)),
        *roff.section("description", *map(roff.paragraph, texts.FLEETD)),
        *roff.section("options", roff.entries(_each_option(parser))),
        *roff.section("signals", roff.entries(_bold(texts.SIGNALS))),
        *roff.section("exit status", roff.entries(texts.FLEETD_EXIT_STATUS)),
        *roff.section("environment", roff.entries(_bold(texts.ENVIRONMENT + texts.SYSTEMD))),
        *roff.section("files", roff.entries(_italic(texts.FILES))),
        *_see_also("fleetctl(1)", "fleetctl-daemon(1)", "fleet-config(5)", "systemd.service(5)"),
    ]
    return roff.page("fleetd", 1, SOURCE, "remembers for fleets of AI coding agents", body)


def _config() -> str:
    settings = msgspec.inspect.type_info(Config)
    if not isinstance(settings, msgspec.inspect.StructType):
        raise TypeError(settings)
    top: list[tuple[str, str]] = []
    sections: list[list[str]] = []
    for field in settings.fields:
        if isinstance(field.type, msgspec.inspect.StructType):
            inner = [_setting(f"{field.name}.{each.name}", each) for each in field.type.fields]
            about = (field.type.cls.__doc__ or "").strip()
            sections.append(
                roff.subsection(f"[{field.name}]", roff.paragraph(about), roff.entries(inner))
            )
        else:
            top.append(_setting(field.name, field))
    body = [
        *roff.section("description", *map(roff.paragraph, texts.CONFIG)),
        *roff.section("settings", roff.entries(top), *sections),
        *roff.section("files", roff.entries(_italic(texts.CONFIG_FILES))),
        *roff.section("examples", roff.example(texts.CONFIG_EXAMPLE)),
        *_see_also("fleetd(1)", "fleetctl-config(1)"),
    ]
    return roff.page("fleet-config", 5, SOURCE, "the settings of fleetd", body)


def _setting(key: str, field: msgspec.inspect.Field) -> tuple[str, str]:
    default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    place = "the platform's place" if key.startswith("paths.") else "none"
    shown = msgspec.json.encode(default).decode() if default != "" else place
    term = f"{roff.bold(key.rpartition('.')[2])} = {roff.italic(_kind(field.type))}"
    return term, f"{texts.SETTINGS[key]} Default: {shown}."


def _kind(field_type: msgspec.inspect.Type) -> str:
    """Return the allowed values."""
    if isinstance(field_type, msgspec.inspect.IntType):
        bounds = [str(field_type.ge) if field_type.ge is not None else "", str(field_type.le or "")]
        return f"integer, {bounds[0]} to {bounds[1]}" if bounds[1] else f"integer, from {bounds[0]}"
    if isinstance(field_type, msgspec.inspect.LiteralType):
        return " | ".join(f'"{value}"' for value in field_type.values)
    if isinstance(field_type, msgspec.inspect.DictType):
        return f"{_kind(field_type.value_type)} by name"
    if isinstance(field_type, msgspec.inspect.ListType):
        return "list of strings"
    return "boolean" if isinstance(field_type, msgspec.inspect.BoolType) else "string"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _bold(pairs: tuple[tuple[str, str], ...]) -> Iterator[tuple[str, str]]:
    return ((roff.bold(term), text) for term, text in pairs)


def _italic(pairs: tuple[tuple[str, str], ...]) -> Iterator[tuple[str, str]]:
    return ((roff.italic(term), text) for term, text in pairs)
