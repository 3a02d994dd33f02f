"""The command line: finds the command, maps what it raises to an exit code."""

from __future__ import annotations

import gc

# One short run: collecting cycles while the libraries load costs a tenth of it, and inputs are bounded in size.
gc.disable()

import importlib  # noqa: E402
import sys  # noqa: E402

import click  # noqa: E402

from srtgen import __version__  # noqa: E402
from srtgen.console import EXIT_BUG, EXIT_INTERRUPTED  # noqa: E402

DEFAULT = "generate"
# Command to module; a command is imported when it runs, so that generating pays for no other.
COMMANDS = {
    "generate": "generate",
    "check": "check",
    "explain": "explain",
    "schema": "schema",
    "reference": "reference",
    "import-inferencex": "import_inferencex",
    "migrate": "migrate",
    "plan": "plan",
    "diff": "diff",
    "verify": "verify",
    "results": "results",
}


class _Commands(click.Group):
    """Commands by name; words that name none are a recipe to generate from."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = COMMANDS.get(cmd_name)
        return importlib.import_module(f"srtgen.commands.{module}").command if module else None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in COMMANDS and args[0] not in ("-h", "--help", "--version"):
            args = [DEFAULT, *args]
        # click looks for -o among the long options first and words its miss, for which it loads difflib and locale.
        end = args.index("--") if "--" in args else len(args)
        args = ["--output" if word == "-o" else word for word in args[:end]] + args[end:]
        return super().parse_args(ctx, args)


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="srtgen")
def command() -> None:
    """Turn a YAML recipe into a self-contained folder of shell scripts that serves and benchmarks an LLM on Slurm.

    srtgen RECIPE -o FOLDER is short for srtgen generate RECIPE -o FOLDER.
    """


def main() -> None:
    """Run the command; anything unforeseen is our bug and says so."""
    try:
        code = command.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = EXIT_INTERRUPTED
    except Exception:
        import traceback  # only a bug pays for it

        traceback.print_exc()
        click.echo(f"srtgen {__version__}: this is a bug of srtgen, not of the recipe; please report it", err=True)
        code = EXIT_BUG
    sys.exit(code or 0)
