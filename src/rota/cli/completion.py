"""`rota completion`."""

import click
from click.shell_completion import get_completion_class

from rota.core.errors import OptionError


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a completion script for SHELL: commands, options and names.

    \b
    Examples:
      rota completion bash > ~/.local/share/bash-completion/completions/rota
      rota completion zsh  > ~/.zfunc/_rota
      rota completion fish > ~/.config/fish/completions/rota.fish
    """  # noqa: D301 - \b keeps click from wrapping the lines
    found = get_completion_class(shell)
    if found is None:  # pragma: no cover - click knows all choices
        raise OptionError(f"no completion for {shell}")
    root = click.get_current_context().find_root().command
    script = found(root, {}, "rota", "_ROTA_COMPLETE")
    click.echo(script.source_template % script.source_vars())
