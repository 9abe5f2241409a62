"""The ``fusec`` command: arguments in, one call of the Python API, its result printed, an exit status.

Exit status 0: done; 1: diagnostics or a failed check; 2: wrong usage; 3: the environment
lacks something; 130: interrupted. ``run`` is the one place where an error becomes text.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

import fusec
from fusec.diagnostics import Diagnostic, FusecError

if TYPE_CHECKING:
    from rich.text import Text

app = typer.Typer(
    name="fusec",
    help="Compile a transformers modeling file into a vLLM-native model package.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
patterns_app = typer.Typer(help="The pattern library: what fusec can rewrite, and into what.")
app.add_typer(patterns_app, name="patterns", invoke_without_command=True)

# The base of what the argument parser raises for a wrong call.
_USAGE_ERROR: Any = typer.BadParameter.__base__


class Stage(StrEnum):
    """The stages after which a conversion can stop and print what it has."""

    READ = "read"
    CONFIGURE = "configure"
    TRACE = "trace"
    MATCH = "match"
    PLAN = "plan"
    REWRITE = "rewrite"


class Dtype(StrEnum):
    """The dtypes in which a port can be verified."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout, errors included.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
PatternsDir = Annotated[
    Path | None, typer.Option("--patterns", metavar="DIR", help="A folder of your own patterns, tried first.")
]


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        print(f"fusec {fusec.__version__}")
        raise typer.Exit


@app.command()
def convert(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A folder with config.json, a Hub id, or a model type.")
    ],
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="OUT", help="Where the package goes.")] = None,
    source: Annotated[
        Path | None, typer.Option("--source", metavar="FILE", help="Take the modeling file from here.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")] = False,
    patterns: PatternsDir = None,
    revision: Annotated[str | None, typer.Option("--revision", help="The revision of a Hub id.")] = None,
    package_name: Annotated[str | None, typer.Option("--package-name", help="The name of the package.")] = None,
    stop_after: Annotated[Stage | None, typer.Option("--stop-after", help="Print this stage, write nothing.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Verdict and plan only, nothing written.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Convert MODEL into a vLLM plugin package at OUT."""
    if out is None and not dry_run and stop_after is None:
        raise typer.BadParameter("say where the package goes (-o OUT), or use --dry-run", param_hint="'-o'")
    with _progress(silent=as_json or quiet) as progress:
        result = fusec.convert(
            model,
            out=out,
            source=source,
            force=force,
            patterns=patterns,
            revision=revision,
            package_name=package_name,
            dry_run=dry_run,
            stop_after=None if stop_after is None else stop_after.value,
            progress=progress,
        )
    from fusec.review.report import conversion_json, conversion_lines

    if as_json:
        _print_json(conversion_json(result))
        return
    _print_diagnostics(result.notes, _roots(model, source))
    if quiet:
        return
    if result.stage_dump is not None:
        print(result.stage_dump)
        return
    _print_lines(conversion_lines(result))
    if result.out is not None:
        from fusec.review.text import styled

        _print_lines(
            [
                styled("\n", ("Wrote ", "bold green"), f"{len(result.files)} files to {result.out}"),
                styled(f"  fusec diff {result.out}     what changed, and why"),
                styled(f"  fusec verify {result.out}   the port against the original, in the engine"),
                styled(f"  pip install {result.out}    then serve the model as usual"),
            ]
        )


@app.command()
def diff(
    target: Annotated[str, typer.Argument(metavar="OUT_OR_MODEL", help="A converted package, or what convert takes.")],
    unified: Annotated[bool, typer.Option("--unified", help="One unified diff of the two files.")] = False,
    stat: Annotated[bool, typer.Option("--stat", help="Counts per class.")] = False,
    pattern: Annotated[str | None, typer.Option("--pattern", metavar="NAME", help="This pattern's hunks.")] = None,
    cls: Annotated[str | None, typer.Option("--class", metavar="NAME", help="This class's hunks.")] = None,
    debug: Debug = False,
) -> None:
    """Show the modeling file beside its port; each hunk names the pattern that made it."""
    if unified and stat:
        raise typer.BadParameter("--unified and --stat exclude each other", param_hint="'--stat'")
    found = fusec.diff(target, pattern=pattern, cls=cls)
    from fusec.review.diff_print import class_lines, stat_lines, unified_lines, unified_text

    if unified and not sys.stdout.isatty():
        sys.stdout.write(unified_text(found))
    elif unified:
        _print_paged(unified_lines(found))
    elif stat:
        _print_lines(stat_lines(found))
    else:
        _print_paged(class_lines(found))


@app.command()
def verify(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A converted package.")],
    model: Annotated[str | None, typer.Option("--model", help="The checkpoint, if not the one converted.")] = None,
    weights: Annotated[bool, typer.Option("--weights", help="The checkpoint's own weights.")] = False,
    tp: Annotated[int, typer.Option("--tp", min=1, help="Tensor-parallel size.")] = 1,
    dtype: Annotated[Dtype, typer.Option("--dtype", help="What the engine computes in.")] = Dtype.FLOAT32,
    compile_: Annotated[bool, typer.Option("--compile", help="With the engine's default compilation.")] = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Let the reference run the checkpoint's own code.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Run the port in the real engine and compare it with the original."""
    gc.enable()
    with _progress(silent=as_json) as progress:
        result = fusec.verify_port(
            out,
            model=model,
            weights=weights,
            tp=tp if tp > 1 else None,
            dtype=dtype.value,
            compile=compile_,
            trust_remote_code=trust_remote_code,
            progress=progress,
        )
    from fusec.review.verification import verification_json, verification_lines

    if as_json:
        _print_json(verification_json(result))
    else:
        _print_lines(verification_lines(result))
    if not result.passed:
        raise typer.Exit(1)


@patterns_app.callback()
def patterns_root(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        patterns_list(None)


@patterns_app.command("list")
def patterns_list(patterns: PatternsDir = None, debug: Debug = False) -> None:
    """List the patterns by role: what each does and which families it serves."""
    from fusec.review.library import list_lines

    _print_lines(list_lines(patterns))


@patterns_app.command("show")
def patterns_show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As `patterns list` prints it.")],
    patterns: PatternsDir = None,
    debug: Debug = False,
) -> None:
    """Show one pattern: its documentation, examples and reference computation."""
    from fusec.review.library import show_lines

    _print_lines(show_lines(name, patterns))


@patterns_app.command("test")
def patterns_test(patterns: PatternsDir = None, debug: Debug = False) -> None:
    """Run each pattern's reference against the engine's layer on random weights."""
    gc.enable()
    from fusec.review.library import try_patterns

    outcome = try_patterns(patterns)
    _print_lines(outcome.lines)
    if not outcome.passed:
        raise typer.Exit(1)


@app.command()
def doctor(as_json: Json = False, debug: Debug = False) -> None:
    """Say what is installed, and whether the engine has every symbol that ports use."""
    result = fusec.doctor()
    from fusec.review.doctor import doctor_json, doctor_lines

    if as_json:
        _print_json(doctor_json(result))
    else:
        _print_lines(doctor_lines(result))
    raise typer.Exit(result.exit_status)


def main() -> NoReturn:
    """The entry point of the ``fusec`` command."""
    # A conversion is short and keeps nearly all that it makes: looking for cycles would be a sixth of its time.
    gc.disable()
    # A terminated conversion cleans up like an interrupted one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(run(sys.argv[1:]))


def run(args: Sequence[str]) -> int:
    """Run one command line and give its exit status; every error is printed here."""
    options = args[: args.index("--")] if "--" in args else args
    as_json, debug = "--json" in options, "--debug" in options
    try:
        status = app(list(args), prog_name="fusec", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except FusecError as error:
        if debug:
            _print_traceback()
        _print_failure(error.diagnostics, as_json, _roots(*options))
        return error.exit_status
    except _USAGE_ERROR as error:
        if as_json:
            _print_failure((Diagnostic("FUS001", error.format_message()),), as_json)
        else:
            error.show()
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python would complain again while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "fusec"):
            return _internal_error(error, as_json, debug)
        if debug:
            _print_traceback()
        message = f"This command needs the package {missing}, which is not installed."
        _print_failure((Diagnostic("FUS004", message, hint="`fusec doctor` lists what is there."),), as_json)
        return 3
    except Exception as error:
        return _internal_error(error, as_json, debug)


def _internal_error(error: Exception, as_json: bool, debug: bool) -> int:
    if debug:
        _print_traceback()
    message = f"fusec met a case that it should have refused by name: {type(error).__name__}: {error}"
    hint = None if debug else "Run again with --debug for the traceback, and report it as a bug of fusec."
    _print_failure((Diagnostic("FUS005", message, hint=hint),), as_json)
    return 1


def _roots(*arguments: str | Path | None) -> list[Path]:
    """Folders in which a diagnostic's file may lie: the arguments that are folders or files."""
    paths = [Path(argument) for argument in arguments if argument is not None and "\0" not in str(argument)]
    return [path if path.is_dir() else path.parent for path in paths if path.exists()]


def _print_failure(diagnostics: Sequence[Diagnostic], as_json: bool, roots: Sequence[Path] = ()) -> None:
    if as_json:
        from fusec.review.problems import diagnostic_json

        _print_json({"ok": False, "diagnostics": [diagnostic_json(diagnostic) for diagnostic in diagnostics]})
    else:
        _print_diagnostics(diagnostics, roots)


def _print_diagnostics(diagnostics: Iterable[Diagnostic], roots: Sequence[Path]) -> None:
    from fusec.review.problems import diagnostic_text
    from fusec.review.text import console

    for diagnostic in diagnostics:
        console(stderr=True).print(diagnostic_text(diagnostic, roots))


def _print_traceback() -> None:
    import traceback

    traceback.print_exc()


def _print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, indent=2, allow_nan=False))


def _print_lines(lines: Iterable[Text]) -> None:
    from fusec.review.text import console

    stdout = console()
    for line in lines:
        stdout.print(line)


def _print_paged(lines: Iterable[Text]) -> None:
    from fusec.review.text import console

    stdout = console()
    if not stdout.is_terminal:
        _print_lines(lines)
        return
    # Keep colours, leave a short text on the screen: what git asks of less.
    os.environ.setdefault("LESS", "FRX")
    with stdout.pager(styles=stdout.color_system is not None):
        for line in lines:
            stdout.print(line)


@contextmanager
def _progress(*, silent: bool) -> Iterator[Callable[[str], None] | None]:
    """A callback that shows the stage at work on stderr, ``None`` where nobody watches."""
    if silent or not sys.stderr.isatty():
        yield None
        return
    from fusec.review.text import console, printable

    with console(stderr=True).status("starting") as status:
        yield lambda stage: status.update(printable(stage))
