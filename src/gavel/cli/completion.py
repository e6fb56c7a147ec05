"""`gavel completion`: scripts with which shells complete commands, and the answers that these ask for."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import typer

from gavel.cli.submit import CommandAfterDashes
from gavel.cli.words import printable

COMMAND_CLASS = CommandAfterDashes


class Shell(StrEnum):
    """A shell that can be told how to complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion_command(
    context: typer.Context,
    shell: Annotated[Shell, typer.Argument(help="The shell: bash, zsh or fish.", metavar="SHELL")],
    answer: Annotated[
        int | None, typer.Option(hidden=True, help="Print what the word at this position can be.", metavar="POSITION")
    ] = None,
) -> None:
    """Print a script that completes commands in your shell.

    Options, ids and names of jobs, arrays, types, users and tags are completed; what only the scheduler knows is asked
    for, and left out if it does not answer within a second.

    bash: add `source <(gavel completion bash)` to ~/.bashrc. zsh: add `source <(gavel completion zsh)` to ~/.zshrc,
    after compinit. fish: `gavel completion fish > ~/.config/fish/completions/gavel.fish`.
    """
    if answer is None:
        print(SCRIPTS[shell], end="")
        return
    from gavel.cli.completion_answers import answers  # noqa: PLC0415 - only a shell asks

    for word, told in answers(context.meta.get("command", []), answer):
        print(word if shell is Shell.BASH or not told else f"{word}\t{printable(told)}")


_BASH = r"""# Completion of gavel for bash: source <(gavel completion bash)
_gavel() {
    local IFS=$'\n'
    COMPREPLY=($("${COMP_WORDS[0]/#\~/$HOME}" completion bash --answer "$COMP_CWORD" -- "${COMP_WORDS[@]}" 2>/dev/null))
}
complete -o bashdefault -o default -F _gavel gavel
"""
_ZSH = r"""#compdef gavel
# Completion of gavel for zsh: source <(gavel completion zsh), after compinit
_gavel() {
    local line
    local -a values texts
    local program=${words[1]/#\~/$HOME}
    for line in "${(@f)$($program completion zsh --answer $((CURRENT - 1)) -- "${(@)words}" 2>/dev/null)}"; do
        [[ -n $line ]] || continue
        values+=("${line%%$'\t'*}")
        texts+=("${line//$'\t'/  }")
    done
    if (( ${#values} )); then
        compadd -l -d texts -a values
    else
        _files
    fi
}
if [[ ${funcstack[1]} == _gavel ]]; then
    _gavel "$@"
else
    compdef _gavel gavel
fi
"""
_FISH = r"""# Completion of gavel for fish: gavel completion fish > ~/.config/fish/completions/gavel.fish
function __gavel_words
    set -l words (commandline -opc)
    set -l found (command gavel completion fish --answer (count $words) -- $words (commandline -ct) 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c gavel -f -a '(__gavel_words)'
"""
SCRIPTS: Mapping[Shell, str] = {Shell.BASH: _BASH, Shell.ZSH: _ZSH, Shell.FISH: _FISH}
