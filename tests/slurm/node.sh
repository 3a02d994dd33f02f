#!/usr/bin/env bash
# Acts on one node of the running local Slurm, for failure tests.
#
# usage: node.sh ACTION NODE [COMMAND...]     (state folder: $SLURM_LOCAL_DIR)
#   kill    SIGKILL to its slurmd; job steps on it go on running
#   crash   SIGKILL to everything on the node at once, as in a power cut
#   cut     silence: its network link goes down, nothing is killed (--netns)
#   join    undoes cut
#   start   starts its slurmd again
#   pids    lists the pids of all that runs on it
#   addr    prints its address
#   exec    runs COMMAND on it, outside of Slurm; NODE "hub" is the controller
# shellcheck source-path=SCRIPTDIR
set -Eeuo pipefail
shopt -s inherit_errexit
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=lib.sh
. "${here}/lib.sh"

link() {
    local node=$1 state=$2
    local -a enter
    [[ ${mode} == netns ]] || die "cut and join need start.sh --netns"
    enter_cmd hub
    "${enter[@]}" ip link set "${node}" "${state}"
}

# nsenter ends up in / after a change of mount namespace: the command goes back.
run_on() {
    local node=$1
    local -a enter
    shift
    enter_cmd "${node}"
    # shellcheck disable=SC2016  # expanded by the sh that runs it
    exec ${enter[@]+"${enter[@]}"} sh -c 'cd "$1" && shift && exec "$@"' sh "${PWD}" "$@"
}

crash() {
    local node=$1
    kill_recorded "slurmd-${node}"
    wait_for 5 clear_node "${node}" || die "some processes on ${node} would not end"
}

start() {
    local node=$1
    wait_for 5 gone "slurmd-${node}" || die "slurmd of ${node} is running"
    start_slurmd "${node}"
}

main() {
    local action node
    (($# >= 2)) || die "usage: node.sh ACTION NODE [COMMAND...]"
    action=$1 node=$2
    shift 2
    load_state
    [[ " ${nodes} hub " == *" ${node} "* ]] || die "no node '${node}' (there are: ${nodes})"
    case ${action} in
    kill) kill_recorded "slurmd-${node}" ;;
    crash) crash "${node}" ;;
    cut) link "${node}" down ;;
    join) link "${node}" up ;;
    start) start "${node}" ;;
    pids) node_pids "${node}" ;;
    addr) sed -n "s/ ${node}\$//p" "${dir}/hosts" ;;
    exec) run_on "${node}" "$@" ;;
    *) die "unknown action '${action}'" ;;
    esac
}

main "$@"
