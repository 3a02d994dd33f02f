#!/usr/bin/env bash
# Starts a local Slurm, runs a command with it, stops it; exits as the command.
#
# usage: with-slurm.sh [START-OPTIONS] [N] -- COMMAND...
#   with-slurm.sh --netns 3 -- sinfo
# With --netns the command itself runs in the controller's network, so that it can reach the
# nodes' addresses (and nothing else).
# shellcheck source-path=SCRIPTDIR
set -Eeuo pipefail
shopt -s inherit_errexit
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)

main() {
    local exports
    local -a options=()
    while (($#)) && [[ $1 != -- ]]; do
        options+=("$1")
        shift
    done
    if (($# < 2)); then
        printf 'usage: with-slurm.sh [START-OPTIONS] [N] -- COMMAND...\n' >&2
        exit 2
    fi
    shift
    exports=$("${here}/start.sh" ${options[@]+"${options[@]}"})
    # shellcheck source=/dev/null  # what start.sh printed
    . /dev/stdin <<<"${exports}"
    trap '"${here}/stop.sh"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    "${here}/node.sh" exec hub "$@"
}

main "$@"
