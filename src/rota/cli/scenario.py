"""`rota scenario run`: scripted events in, decisions out."""

from pathlib import Path

import click

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def scenario() -> None:
    """Play scripted events: regression tests of schedulers as files."""


@scenario.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_FILE)
@click.option("--after", multiple=True, type=_FILE,
              help="Play this one first; its pods are known (a restart of HiveD).")  # fmt: skip
@click.option("--strict", is_flag=True,
              help="HiveD: changes of state that no event lists count as unmet, too.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Print only events with unmet expectations.")
def run(*, files: tuple[Path, ...], after: tuple[Path, ...], strict: bool, quiet: bool) -> None:
    """Play the scenarios of FILE: a line of JSON per event.

    Exits with 1 if an expectation of a file is not met.

    \b
    Examples:
      rota scenario run my-regression.json
      rota scenario run --strict unit_08.json --after unit_07.json
      rota scenario run -q fuzz.json.gz
    """  # noqa: D301 - \b keeps click from wrapping the lines
    import msgspec

    from rota.study.scenario.hived import RecordedDecision
    from rota.study.scenario.play import read_scenarios, run_scenario

    events = unmet = 0
    for path in files:
        for one in read_scenarios(path):
            recorded = RecordedDecision()
            for before in after:
                for earlier in read_scenarios(before):
                    for _ in run_scenario(earlier, before.parent, recorded=recorded):
                        pass
            for line in run_scenario(one, path.parent, recorded=recorded, strict=strict):
                events += 1
                unmet += len(line.unmet)
                if line.unmet or not quiet:
                    click.echo(msgspec.json.encode(line).decode())
    click.echo(f"{events:,} events played, {unmet:,} expectations not met", err=True)
    if unmet:
        raise SystemExit(1)
